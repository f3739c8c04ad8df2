//! The screen.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use jiff::Timestamp;
use mortise_apis::values::since;
use serde_json::Value;

use super::NodeOrder;
use super::cluster::{Disruption, NodeDisruption, NodeRow, PendingPod, State};
use crate::cli::layout::{ago, aligned, cut, in_time, wrapped};

/// Pending pods that are listed.
const PENDING: usize = 20;
/// Nodes that are listed because their drain would never end.
const UNDRAINABLE: usize = 10;
/// An expiry that is nearer than this is shown.
const NEAR_MS: i64 = 24 * 3_600_000;

/// The screen, a line each, none longer than the width of the terminal. What is not for a terminal is not cut.
pub(super) fn lines(
    state: &State,
    disruption: &Disruption,
    order: NodeOrder,
    width: Option<usize>,
) -> Vec<String> {
    let width = width.unwrap_or(usize::MAX);
    let totals = &state.totals;
    let unknown = match totals.price_unknown {
        0 => String::new(),
        count => format!(" (the price of {count} is unknown)"),
    };
    let role = if totals.leading { "leader" } else { "follower" };
    let mut lines = vec![format!(
        "{}: {} nodes, ${:.4}/h{unknown}, {} pods, {} pending; said by the {role}",
        totals.at.strftime("%F %TZ"),
        totals.nodes,
        totals.price,
        totals.pods,
        totals.pending
    )];
    let mut section = |rows: &[Vec<String>]| {
        if rows.len() > 1 {
            lines.push(String::new());
            lines.extend(aligned(rows));
        }
    };
    section(&pools(state, disruption));
    lines.extend(nodes(state, disruption, order, width));
    lines.extend(undrainable(disruption, width));
    let pending = pending(&state.pending, totals.at);
    if pending.len() > 1 {
        lines.push(String::new());
        lines.extend(aligned(&pending));
    }
    if totals.pending > PENDING {
        lines.push(format!("  and {} more", totals.pending - PENDING));
    }
    lines.iter().map(|line| cut(line, width)).collect()
}

fn header(names: &[&str]) -> Vec<Vec<String>> {
    vec![names.iter().map(|name| (*name).to_owned()).collect()]
}

fn amount(of: &serde_json::Map<String, Value>, name: &str) -> f64 {
    of.get(name).and_then(Value::as_f64).unwrap_or(0.0)
}

/// Used part of the nodes in percent; `-` without capacity.
fn fill<'a>(nodes: impl Iterator<Item = &'a NodeRow>, name: &str) -> String {
    let (used, all) = nodes.fold((0.0, 0.0), |(used, all), node| {
        (
            used + amount(&node.used, name),
            all + amount(&node.allocatable, name),
        )
    });
    if all > 0.0 {
        format!("{:.0}%", 100.0 * used / all)
    } else {
        "-".to_owned()
    }
}

fn pools(state: &State, disruption: &Disruption) -> Vec<Vec<String>> {
    let mut rows = header(&[
        "NODEPOOL",
        "NODES",
        "CPU",
        "MEMORY",
        "$/H",
        "READY",
        "DISRUPTED OF ALLOWED",
    ]);
    for pool in &state.pools {
        let own = || {
            let nodes = state.nodes.iter();
            nodes.filter(|node| node.pool.as_deref() == Some(&pool.name))
        };
        let price: f64 = own().filter_map(|node| node.price).sum();
        let budgets = disruption.pools.iter().find(|each| each.name == pool.name);
        let budgets: Vec<String> = budgets
            .into_iter()
            .flat_map(|each| &each.now)
            .map(|each| {
                let allowed = each
                    .allowed
                    .map_or_else(|| "any".to_owned(), |allowed| allowed.to_string());
                format!("{} {}/{allowed}", each.reason, each.disrupted)
            })
            .collect();
        rows.push(vec![
            pool.name.clone(),
            own().count().to_string(),
            fill(own(), "cpu"),
            fill(own(), "memory"),
            format!("{price:.4}"),
            if pool.ready { "yes" } else { "no" }.to_owned(),
            budgets.join(", "),
        ]);
    }
    rows
}

/// The table of nodes. Where it is wider than the terminal, the state of a node is in lines of its own.
fn nodes(state: &State, disruption: &Disruption, order: NodeOrder, width: usize) -> Vec<String> {
    let mut rows = node_rows(state, disruption, order);
    if rows.len() == 1 {
        return Vec::new();
    }
    let mut lines = vec![String::new()];
    let table = aligned(&rows);
    if table.iter().all(|line| line.chars().count() <= width) {
        lines.extend(table);
        return lines;
    }
    let states: Vec<Option<String>> = rows.iter_mut().map(Vec::pop).collect();
    for (at, (line, state)) in aligned(&rows).into_iter().zip(states).enumerate() {
        lines.push(line);
        if at > 0 {
            lines.extend(wrapped(&state.unwrap_or_default(), 6, width));
        }
    }
    lines
}

fn node_rows(state: &State, disruption: &Disruption, order: NodeOrder) -> Vec<Vec<String>> {
    let now = state.totals.at;
    let known: BTreeMap<&str, &NodeDisruption> = disruption
        .nodes
        .iter()
        .map(|each| (each.key.as_str(), each))
        .collect();
    let mut sorted: Vec<&NodeRow> = state.nodes.iter().collect();
    sorted.sort_by(|a, b| compare(a, b, order).then_with(|| a.name.cmp(&b.name)));
    let mut rows = header(&[
        "NODE", "NODEPOOL", "TYPE", "ZONE", "CAPACITY", "CPU", "MEMORY", "PODS", "$/H", "AGE",
        "STATE",
    ]);
    let or_dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    rows.extend(sorted.into_iter().map(|node| {
        vec![
            node.name.clone(),
            or_dash(&node.pool),
            or_dash(&node.instance_type),
            or_dash(&node.zone),
            or_dash(&node.capacity_type),
            fill(std::iter::once(node), "cpu"),
            fill(std::iter::once(node), "memory"),
            node.pods.to_string(),
            node.price
                .map_or_else(|| "?".to_owned(), |price| format!("{price:.4}")),
            node.created
                .map_or_else(|| "-".to_owned(), |created| ago(now, created)),
            node_state(node, known.get(node.key.as_str()).copied(), now),
        ]
    }));
    rows
}

fn compare(a: &NodeRow, b: &NodeRow, order: NodeOrder) -> Ordering {
    let share = |node: &NodeRow| {
        let of = |name| {
            let all = amount(&node.allocatable, name);
            if all > 0.0 {
                amount(&node.used, name) / all
            } else {
                0.0
            }
        };
        of("cpu").max(of("memory"))
    };
    match order {
        NodeOrder::Cost => b.price.unwrap_or(0.0).total_cmp(&a.price.unwrap_or(0.0)),
        NodeOrder::Fill => share(b).total_cmp(&share(a)),
        // One without a time is the newest.
        NodeOrder::Age => {
            let created = |node: &NodeRow| node.created.unwrap_or(Timestamp::MAX);
            created(a).cmp(&created(b))
        }
        NodeOrder::Name => a.name.cmp(&b.name),
    }
}

/// Phase, what is planned, and the first blocker.
fn node_state(node: &NodeRow, disruption: Option<&NodeDisruption>, now: Timestamp) -> String {
    let mut parts = vec![node.phase.replace('_', " ")];
    if let Some(fence) = &node.fence {
        parts.push(format!("planned: {fence}"));
    }
    let Some(disruption) = disruption else {
        return parts.join("; ");
    };
    if let Some(begun) = disruption.deleting_since {
        parts.push(format!("for {}", ago(now, begun)));
        return parts.join(" ");
    }
    if disruption.drifted.is_some() {
        parts.push("drifted".to_owned());
    }
    if let Some(at) = disruption.expires_at.filter(|at| since(*at, now) < NEAR_MS) {
        parts.push(format!("expires {}", in_time(now, at)));
    }
    if let Some(first) = disruption.blockers.first() {
        let more = match disruption.blockers.len() {
            1 => String::new(),
            count => format!(" (and {} more)", count - 1),
        };
        parts.push(format!("held: {}{more}", first.text));
    }
    parts.join("; ")
}

/// Nodes whose drain would never end by itself, each with the first pod that blocks it.
fn undrainable(disruption: &Disruption, width: usize) -> Vec<String> {
    let all = &disruption.undrainable;
    if all.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![String::new(), "  NEVER DRAINS BY ITSELF".to_owned()];
    for node in all.iter().take(UNDRAINABLE) {
        let Some(first) = node.blockers.first() else {
            continue;
        };
        let more = match node.blockers.len() {
            1 => String::new(),
            count => format!(" (and {} more)", count - 1),
        };
        let text = format!("{}: {first}{more}", node.node);
        lines.extend(wrapped(&text, 2, width));
        lines.extend(wrapped(
            &format!("to free it: {}", first.unblocks),
            6,
            width,
        ));
    }
    if all.len() > UNDRAINABLE {
        lines.push(format!("  and {} more nodes", all.len() - UNDRAINABLE));
    }
    lines
}

fn pending(pods: &[PendingPod], now: Timestamp) -> Vec<Vec<String>> {
    let mut rows = header(&[
        "PENDING POD",
        "AGE",
        "EXPECTED ON",
        "STALLED",
        "KUBE-SCHEDULER SAYS",
    ]);
    rows.extend(pods.iter().take(PENDING).map(|pod| {
        let or_dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        vec![
            pod.pod.clone(),
            ago(now, pod.created),
            or_dash(&pod.nominated_to),
            or_dash(&pod.stalled),
            or_dash(&pod.scheduler_says),
        ]
    }));
    rows
}
