//! Karpenter's metrics and mortise's.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::*;

/// A row of the table of Karpenter's metrics.
struct Row {
    type_: &'static str,
    labels: BTreeSet<&'static str>,
    /// `default`, `full`, or `left out: ` with the reason.
    shown: &'static str,
}

/// Karpenter's names of its metrics, and when they are served here.
fn karpenter_metrics() -> BTreeMap<&'static str, Row> {
    let rows = include_str!("../upstream.tsv").lines().map(|line| {
        let fields: Vec<&str> = line.split('\t').collect();
        let labels = fields[2].split(',').filter(|label| !label.is_empty());
        let row = Row {
            type_: fields[1],
            labels: labels.collect(),
            shown: fields[3],
        };
        (fields[0], row)
    });
    rows.collect()
}

/// Metrics on a page: name as Karpenter writes it, type, and the labels of all its series.
fn on_page(page: &str) -> BTreeMap<String, (String, BTreeSet<String>)> {
    let mut all: BTreeMap<String, (String, BTreeSet<String>)> = BTreeMap::new();
    let mut current = (String::new(), String::new());
    for line in page.lines() {
        if let Some(typed) = line.strip_prefix("# TYPE ") {
            let (name, type_) = typed.split_once(' ').unwrap();
            let total = if type_ == "counter" { "_total" } else { "" };
            current = (format!("{name}{total}"), type_.to_owned());
        } else if !line.starts_with('#') {
            let entry = all.entry(current.0.clone()).or_default();
            entry.0.clone_from(&current.1);
            let labels = line
                .split_once('{')
                .and_then(|(_, rest)| rest.rsplit_once('}'));
            let labels = labels.map_or("", |(labels, _)| labels).split("\",");
            let names = labels.filter_map(|label| label.split_once('='));
            let names = names.map(|(name, _)| name.to_owned());
            entry
                .1
                .extend(names.filter(|name| name != "le" && name != "quantile"));
        }
    }
    all
}

/// Labels of a metric on the page, except those that mortise adds to Karpenter's: NodePool, class and provider.
fn own_labels<'a>(
    name: &str,
    type_: &str,
    labels: &'a BTreeSet<String>,
    detail: TelemetryDetail,
) -> BTreeSet<&'a str> {
    let mut labels: BTreeSet<&str> = labels.iter().map(String::as_str).collect();
    let mut take = |label: &str| assert!(labels.remove(label), "{name} has no {label}");
    if type_ == "gauge" && name.starts_with("operator_node") && !name.contains("_nodepool_") {
        take("karpenter_sh_nodepool");
        take("karpenter_kwok_sh_kwoknodeclass");
        if name.starts_with("operator_node_") {
            take("karpenter_sh_initialized");
        }
    }
    if name.starts_with("karpenter_nodes_") && detail == TelemetryDetail::Full && type_ == "gauge" {
        for of_kwok in ["cpu", "family", "memory", "size"] {
            take(&format!("instance_{of_kwok}"));
        }
    }
    // A number for each plan is no label by default.
    if detail == TelemetryDetail::Bounded
        && [
            "karpenter_scheduler_queue_depth",
            "karpenter_scheduler_unfinished_work_seconds",
        ]
        .contains(&name)
    {
        labels.insert("scheduling_id");
    }
    labels
}

#[test]
fn every_metric_of_karpenter_is_served_with_its_type_and_labels_or_left_out_for_a_reason() {
    let known = karpenter_metrics();
    assert_eq!(known.len(), 134, "as many as Karpenter has");
    for detail in [TelemetryDetail::Bounded, TelemetryDetail::Full] {
        let shared = everything_counted(detail);
        let page = render(&shared, &BTreeMap::new()).unwrap();
        let page = on_page(&page);
        for (name, (type_, labels)) in &page {
            let own = ["mortise_", "process_", "operator_kwoknodeclass_"];
            if own.iter().any(|prefix| name.starts_with(prefix)) {
                continue;
            }
            let Some(row) = known.get(name.as_str()) else {
                panic!("{name} is no metric of Karpenter");
            };
            assert_eq!(type_, row.type_, "{name}");
            let labels = own_labels(name, type_, labels, detail);
            assert_eq!(labels, row.labels, "{name}");
        }
        for (name, row) in &known {
            let is_there = page.contains_key(*name);
            let wanted = match row.shown {
                "default" => true,
                "full" => detail == TelemetryDetail::Full,
                why => {
                    let why = why.strip_prefix("left out: ").unwrap();
                    assert!(why.len() > 10, "{name}: {why}");
                    false
                }
            };
            assert_eq!(is_there, wanted, "{name}, {detail:?}: {}", row.shown);
        }
    }
}

/// The page of the documentation.
const PAGE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../docs/reference/metrics.md"
);

/// The documentation has the same table; `UPDATE_EXPECT=1` rewrites it.
#[test]
fn the_documentation_lists_every_metric_of_karpenter() {
    const BEGIN: &str =
        "<!-- generated: metrics of Karpenter -->\n| metric | type | served |\n|---|---|---|\n";
    const END: &str = "<!-- end -->";
    let page = std::fs::read_to_string(PAGE).unwrap();
    let rows = include_str!("../upstream.tsv").lines().map(|line| {
        let fields: Vec<&str> = line.split('\t').collect();
        format!("| `{}` | {} | {} |\n", fields[0], fields[1], fields[3])
    });
    let wanted: String = rows.collect();
    let (before, rest) = page.split_once(BEGIN).unwrap();
    let (found, after) = rest.split_once(END).unwrap();
    if found != wanted && std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(PAGE, format!("{before}{BEGIN}{wanted}{END}{after}")).unwrap();
        return;
    }
    let mut both = wanted.lines().zip(found.lines());
    let first = both.find(|(wanted, found)| wanted != found);
    assert!(
        found == wanted,
        "UPDATE_EXPECT=1 rewrites {PAGE}: {first:#?}"
    );
}

/// mortise's own metrics have a row each, with their type, and every row belongs to a registered metric.
#[test]
fn the_documentation_lists_every_metric_of_ours() {
    let page = std::fs::read_to_string(PAGE).unwrap();
    let rows = page.lines().filter(|line| line.starts_with("| `mortise_"));
    let listed: BTreeMap<&str, &str> = rows
        .map(|row| {
            let cells: Vec<&str> = row.split(" | ").collect();
            let name = cells[0].trim_start_matches("| `");
            (name.split(['{', '`']).next().unwrap(), cells[1])
        })
        .collect();
    let shared = everything_counted(TelemetryDetail::Full);
    let served = render(&shared, &BTreeMap::new()).unwrap();
    for (name, (type_, _)) in on_page(&served) {
        if name.starts_with("mortise_") {
            assert_eq!(listed.get(name.as_str()), Some(&type_.as_str()), "{name}");
        }
    }
    for row in Metrics::series() {
        let total = if row.kind == "counter" { "_total" } else { "" };
        let name = format!("{}{total}", row.name);
        if name.starts_with("mortise_") {
            assert_eq!(listed.get(name.as_str()), Some(&row.kind), "{name}");
        } else {
            let known = karpenter_metrics();
            let known = known.get(name.as_str()).unwrap();
            assert_eq!(known.shown == "full", row.full_only, "{name}");
            assert!(
                row.labels
                    .iter()
                    .all(|label| known.labels.contains(label) || *label == "karpenter_sh_nodepool"),
                "{row:?}"
            );
        }
    }
    let folders = ["metrics", "serve/exposition"].map(|folder| {
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("src")
            .join(folder)
    });
    let entries = folders
        .iter()
        .flat_map(|folder| std::fs::read_dir(folder).unwrap());
    let sources =
        entries.map(|entry| std::fs::read_to_string(entry.unwrap().path()).unwrap_or_default());
    let sources: String = sources.collect();
    for name in listed.keys() {
        let registered = format!("\"{}\"", name.trim_end_matches("_total"));
        assert!(sources.contains(&registered), "{name} is not registered");
    }
}
