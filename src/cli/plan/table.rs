//! A plan as tables.

use std::collections::BTreeMap;

use mortise_apis::values::money::MicroUsd;
use mortise_sim::plan::{BlockedNode, PlanReport, PlannedCommand, PlannedLaunch, RemovedNode};

use crate::cli::layout::aligned;

/// Nodes, pods or reasons that a cell or a table lists.
const LISTED: usize = 3;
/// Rows of a table of nodes that stay.
const ROWS: usize = 20;

/// The plan, a line each.
pub(super) fn lines(report: &PlanReport) -> Vec<String> {
    let mut lines = vec![format!(
        "{}: {} nodes, {} pods, {} pending",
        report.taken_at, report.nodes, report.pods, report.pending
    )];
    let mut section = |title: &str, rows: Vec<Vec<String>>| {
        if rows.len() > 1 {
            lines.push(String::new());
            lines.push(title.to_owned());
            lines.extend(aligned(&rows));
        }
    };
    section("Launch", launches(&report.launches));
    section("Disrupt", commands(&report.commands));
    section("Also", actions(report));
    section("No place", unplaced(report));
    section("Blocked", nodes(&report.blocked));
    section("Stay", nodes(&report.kept));
    let nothing = report.launches.is_empty()
        && report.commands.is_empty()
        && report.actions.is_empty()
        && report.unplaced.is_empty();
    if nothing {
        lines.push(String::new());
        lines.push("Nothing to do".to_owned());
    }
    let totals = &report.totals;
    lines.push(String::new());
    let unknown = match totals.unknown_prices {
        0 => String::new(),
        count => format!("; {count} prices are unknown and count as 0"),
    };
    lines.push(format!(
        "$/h: {} now, {} launches, {} disruption, {} removed: {} after{unknown}",
        dollars(totals.before_micro_usd),
        signed(totals.launches_micro_usd),
        signed(totals.commands_micro_usd),
        signed(MicroUsd(-totals.removed_micro_usd.0)),
        dollars(totals.after_micro_usd),
    ));
    lines
}

fn launches(all: &[PlannedLaunch]) -> Vec<Vec<String>> {
    let mut rows = vec![header(&[
        "NODEPOOL", "TYPE", "ZONE", "CAPACITY", "$/H", "TYPES", "PODS",
    ])];
    rows.extend(all.iter().map(|each| {
        vec![
            each.node_pool.clone(),
            shown(each.instance_type.as_ref()),
            shown(each.zone.as_ref()),
            shown(each.capacity_type.as_ref()),
            price(each.price_micro_usd),
            each.instance_types.len().to_string(),
            listed(each.pods.iter().map(ToString::to_string)),
        ]
    }));
    rows
}

fn commands(all: &[PlannedCommand]) -> Vec<Vec<String>> {
    let mut rows = vec![header(&[
        "REASON",
        "NODES",
        "REPLACED BY",
        "$/H",
        "AFTER",
        "PODS MOVED",
    ])];
    rows.extend(all.iter().map(|each| {
        let node = |node: &RemovedNode| match &node.instance_type {
            Some(name) => format!("{} ({name})", node.name),
            None => node.name.clone(),
        };
        let new = each.replacements.iter().map(|new| {
            let parts = [&new.instance_type, &new.zone, &new.capacity_type];
            parts.map(|part| shown(part.as_ref())).join(" ")
        });
        let replaced: usize = each.replacements.iter().map(|new| new.pods.len()).sum();
        vec![
            each.reason.to_owned(),
            listed(each.nodes.iter().map(node)),
            listed(new),
            price(each.before_micro_usd),
            price(each.after_micro_usd),
            (each.moves.len() + replaced).to_string(),
        ]
    }));
    rows
}

fn actions(report: &PlanReport) -> Vec<Vec<String>> {
    let mut all: BTreeMap<(&str, &str), Vec<String>> = BTreeMap::new();
    for action in &report.actions {
        let of = all.entry((action.by, action.action)).or_default();
        of.push(action.object.clone());
    }
    let mut rows = vec![header(&["BY", "ACTION", "OBJECTS"])];
    rows.extend(all.into_iter().map(|((by, action), objects)| {
        vec![
            by.to_owned(),
            action.to_owned(),
            listed(objects.into_iter()),
        ]
    }));
    rows
}

fn unplaced(report: &PlanReport) -> Vec<Vec<String>> {
    let mut rows = vec![header(&["PODS", "WHY"])];
    rows.extend(report.unplaced.iter().map(|each| {
        vec![
            listed(each.pods.iter().map(ToString::to_string)),
            each.why.clone(),
        ]
    }));
    rows
}

fn nodes(all: &[BlockedNode]) -> Vec<Vec<String>> {
    let mut rows = vec![header(&["NODE", "NODEPOOL", "WHY"])];
    let shown = all.iter().take(ROWS);
    rows.extend(
        shown.map(|each| vec![each.node.clone(), each.node_pool.clone(), each.why.clone()]),
    );
    if let Some(more @ 1..) = all.len().checked_sub(ROWS) {
        rows.push(vec![
            format!("and {more} more"),
            String::new(),
            "-o json shows all".to_owned(),
        ]);
    }
    rows
}

fn header(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// The first of them, and how many more.
fn listed(all: impl Iterator<Item = String>) -> String {
    let all: Vec<String> = all.collect();
    if all.is_empty() {
        return "-".to_owned();
    }
    let first = all
        .iter()
        .take(LISTED)
        .cloned()
        .collect::<Vec<_>>()
        .join(", ");
    match all.len().checked_sub(LISTED) {
        Some(more @ 1..) => format!("{first} and {more} more"),
        _ => first,
    }
}

fn shown(text: Option<&String>) -> String {
    text.cloned().unwrap_or_else(|| "?".to_owned())
}

fn price(price: Option<MicroUsd>) -> String {
    price.map_or_else(|| "?".to_owned(), dollars)
}

/// Four decimal places: instance types cost from a fraction of a cent.
fn dollars(price: MicroUsd) -> String {
    let hundredths = (price.0.abs() + 50) / 100;
    let sign = if price.0 < 0 { "-" } else { "" };
    format!("{sign}{}.{:04}", hundredths / 10_000, hundredths % 10_000)
}

fn signed(price: MicroUsd) -> String {
    if price.0 < 0 {
        dollars(price)
    } else {
        format!("+{}", dollars(price))
    }
}
