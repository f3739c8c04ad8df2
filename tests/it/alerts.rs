//! The rules and dashboards that mortise writes, in the hands of Prometheus' own tool.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use mortise_manifests::render::{ALERTS, DASHBOARDS};
use mortise_tests::harness::{Mortise, StateDir, promtool};
use serde_json::{Value, json};
use tokio::process::Command;

const CASES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/data/alerts/cases.yaml");
const METRICS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/metrics.md");
const RUNBOOKS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/tasks/alerts.md");
/// Suffixes of the series of a histogram.
const PARTS: [&str; 3] = ["_bucket", "_count", "_sum"];

/// Runs promtool in a directory; what it says, if it agrees.
async fn checked(directory: &Path, args: &[&str]) -> Result<String> {
    let program = promtool().await?;
    let output = Command::new(&program)
        .current_dir(directory)
        .args(args)
        .kill_on_drop(true)
        .output()
        .await?;
    let said = [&output.stdout[..], &output.stderr[..]].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    ensure!(output.status.success(), "promtool {args:?}: {said}");
    Ok(said)
}

/// Each expression with where it is.
fn expressions() -> Result<Vec<(String, String)>> {
    let rules = mortise_manifests::render::rule_groups();
    let mut all = Vec::new();
    for group in rules["groups"].as_array().context("groups")? {
        for rule in group["rules"].as_array().context("rules")? {
            let name = rule["alert"].as_str().or_else(|| rule["record"].as_str());
            let expr = rule["expr"].as_str().context("expr")?;
            all.push((name.context("a name")?.to_owned(), expr.to_owned()));
        }
    }
    for dashboard in DASHBOARDS {
        for panel in dashboard.rows.iter().flat_map(|row| row.panels) {
            let place = format!("{}: {}", dashboard.name, panel.title);
            all.extend(
                panel
                    .queries
                    .iter()
                    .map(|(expr, _)| (place.clone(), (*expr).to_owned())),
            );
        }
    }
    Ok(all)
}

/// Every alert is silent before its time and fires then, with its labels and texts.
#[tokio::test]
async fn alerts_fire_when_they_should() -> Result<()> {
    let mut state = StateDir::create("alerts")?;
    let rules = Mortise::output(&["manifests", "alerts", "--rule-file"]).await?;
    std::fs::write(state.join("rules.yaml"), &rules)?;
    let cases = std::fs::read_to_string(CASES)?;
    std::fs::write(state.join("cases.yaml"), &cases)?;
    let said = checked(
        state.path(),
        &["check", "rules", "--lint=all", "rules.yaml"],
    )
    .await?;
    let count = format!("{} rules found", rules.matches("expr:").count());
    ensure!(said.contains(&count), "{count}: {said}");
    checked(state.path(), &["test", "rules", "cases.yaml"]).await?;

    let cases: Value = serde_saphyr::from_str(&cases)?;
    let mut fires: BTreeMap<String, BTreeSet<bool>> = BTreeMap::new();
    for case in cases["tests"].as_array().context("tests")? {
        for check in case["alert_rule_test"].as_array().into_iter().flatten() {
            let name = check["alertname"].as_str().context("a name")?;
            let expected = check["exp_alerts"].as_array().context("alerts")?;
            let seen = fires.entry(name.to_owned()).or_default();
            seen.insert(!expected.is_empty());
        }
    }
    for alert in ALERTS {
        let seen = fires.get(alert.name).map_or(0, BTreeSet::len);
        ensure!(seen == 2, "{} needs a case without and with it", alert.name);
    }
    state.discard();
    Ok(())
}

/// The object of Prometheus Operator has the same rules, and Prometheus can read every expression of the dashboards.
#[tokio::test]
async fn prometheus_reads_every_expression() -> Result<()> {
    let mut state = StateDir::create("expressions")?;
    let object = Mortise::output(&["manifests", "alerts", "--namespace", "watch"]).await?;
    let object: Value = serde_saphyr::from_str(&object)?;
    let rules = Mortise::output(&["manifests", "alerts", "--rule-file"]).await?;
    let rules: Value = serde_saphyr::from_str(&rules)?;
    ensure!(object["spec"] == rules && object["metadata"]["namespace"] == "watch");

    let mut records = Vec::new();
    for (at, (_, expr)) in expressions()?.iter().enumerate() {
        records.push(json!({ "record": format!("test:{at}"), "expr": expr }));
    }
    let all = json!({ "groups": [{ "name": "all", "rules": records }] });
    std::fs::write(state.join("all.json"), all.to_string())?;
    checked(state.path(), &["check", "rules", "--lint=none", "all.json"]).await?;

    // What the sidecar loads is what one imports by hand.
    let maps = Mortise::output(&["manifests", "dashboards"]).await?;
    let maps: Vec<Value> = serde_saphyr::from_multiple(&maps)?;
    ensure!(maps.len() == DASHBOARDS.len(), "{} objects", maps.len());
    for (dashboard, map) in DASHBOARDS.iter().zip(&maps) {
        let alone = Mortise::output(&["manifests", "dashboards", "--json", dashboard.name]).await?;
        let alone: Value = serde_json::from_str(&alone)?;
        let inner = &map["data"][format!("{}.json", dashboard.name)];
        let inner: Value = serde_json::from_str(inner.as_str().context("a file")?)?;
        ensure!(alone == inner && alone["panels"].as_array().is_some());
    }
    state.discard();
    Ok(())
}

/// The metrics that an expression names.
fn metrics(expr: &str) -> impl Iterator<Item = &str> {
    expr.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .filter(|word| {
            ["mortise_", "karpenter_", "leader_election_"]
                .iter()
                .any(|prefix| word.starts_with(prefix))
        })
}

/// Rules and dashboards ask only for what is served by default.
#[test]
fn every_metric_is_served_by_default() -> Result<()> {
    let page = std::fs::read_to_string(METRICS)?;
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    let mut served: BTreeMap<&str, &str> = BTreeMap::new();
    for row in rows {
        let name = row.split(['`', '{']).next().context("a name")?;
        let last = row.trim_end_matches(" |").rsplit(" | ").next();
        served.insert(name, last.context("its last cell")?);
    }
    for (place, expr) in expressions()? {
        for name in metrics(&expr) {
            let family = PARTS.iter().find_map(|part| name.strip_suffix(part));
            let said = served.get(name).or_else(|| served.get(family?));
            let said = said.with_context(|| format!("{place}: {name} is not a metric"))?;
            let is_default = name.starts_with("mortise_") || *said == "default";
            ensure!(is_default, "{place}: {name} is served with {said}");
        }
    }
    Ok(())
}

/// Each alert has a runbook, and each runbook an alert.
#[test]
fn each_alert_has_a_runbook() -> Result<()> {
    let page = std::fs::read_to_string(RUNBOOKS)?;
    let headings = page.lines().filter_map(|line| line.strip_prefix("### "));
    let headings: BTreeSet<&str> = headings.collect();
    let names: BTreeSet<&str> = ALERTS.iter().map(|alert| alert.name).collect();
    ensure!(headings == names, "{headings:?} instead of {names:?}");
    Ok(())
}
