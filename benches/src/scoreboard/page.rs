//! The scoreboard as a table, and as a page.

use std::path::Path;

use anyhow::{Context as _, Result};

use mortise_sim::Scores;
use mortise_sim::baseline::SimulatedPolicy;

use super::{Row, Scenario, ScoreboardResults};

/// The rows as a table in Markdown.
pub(super) fn table(results: &ScoreboardResults) -> Vec<String> {
    let mut lines = vec![
        "| scenario | policy | $ | above the bound | pods waited: half, 99 in 100, longest | evictions | of one workload | nodes launched | at a time | empty node-hours | violations |".to_owned(),
        "|---|---|---|---|---|---|---|---|---|---|---|".to_owned(),
    ];
    lines.extend(results.rows.iter().map(line));
    lines
}

/// What else is counted, over all scenarios and seeds, as a table in Markdown.
pub(super) fn sums(results: &ScoreboardResults) -> Vec<String> {
    let mut lines = vec![
        "| policy | pods of DaemonSets | without a node after 30 s | spot instances announced to be taken | pods on them when they were taken | nodes launched | that no pod ever used | pods bound to another node than nominated | pods moved back within a day |".to_owned(),
        "|---|---|---|---|---|---|---|---|---|".to_owned(),
    ];
    lines.extend(SimulatedPolicy::ALL.into_iter().map(|policy| {
        let rows = results.rows.iter().filter(|row| row.policy == policy);
        let sum = |of: fn(&Scores) -> u64| rows.clone().map(|row| of(&row.scores)).sum::<u64>();
        format!(
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            name(policy),
            sum(|scores| scores.daemon_pods),
            sum(|scores| scores.late_daemon_pods),
            sum(|scores| scores.interruptions),
            sum(|scores| scores.reclaimed_pods),
            sum(|scores| scores.nodes_launched),
            sum(|scores| scores.unused_nodes),
            sum(|scores| scores.bound_elsewhere),
            sum(|scores| scores.moved_back),
        )
    }));
    lines
}

const fn name(policy: SimulatedPolicy) -> &'static str {
    match policy {
        SimulatedPolicy::Mortise => "mortise",
        SimulatedPolicy::MortiseDeletionCosts => "mortise with deletion costs",
        SimulatedPolicy::MortiseAlone => "mortise without extender",
        SimulatedPolicy::Karpenter => "Karpenter's way",
    }
}

fn line(row: &Row) -> String {
    let Row {
        scenario,
        policy,
        seeds,
        scores,
        waiting_at_end,
    } = row;
    let seeds = (*seeds).max(1);
    let per_seed = |sum: u64| {
        let tenths = sum * 10 / seeds;
        format!("{}.{}", tenths / 10, tenths % 10)
    };
    let cents = scores.spent_micro_usd / seeds.cast_signed() / 10_000;
    let dollars = format!("{}.{:02}", cents / 100, cents % 100);
    let over = scores.above_bound();
    let waited = scores.pending_s;
    let left = match waiting_at_end {
        0 => String::new(),
        pods => format!(" ({pods} wait at the end)"),
    };
    let moved = scores.most_moves();
    let name = name(*policy);
    format!(
        "| `{scenario}` | {name} | {dollars} | {over} | {}, {}, {} s{left} | {} | {moved} | {} | {} | {} | {} |",
        waited.p50,
        waited.p99,
        waited.most,
        per_seed(scores.evictions),
        per_seed(scores.nodes_launched),
        scores.most_nodes,
        per_seed(scores.empty_node_minutes / 60),
        scores.violations,
    )
}

/// Replaces a table of the page.
pub(super) fn write(
    block: &str,
    scenarios: &[Scenario],
    results: &ScoreboardResults,
    seeds: u64,
) -> Result<()> {
    let mut lines = table(results);
    lines.push(String::new());
    lines.push("All scenarios and seeds together:".to_owned());
    lines.push(String::new());
    lines.extend(sums(results));
    lines.push(String::new());
    lines.push(match seeds {
        1 => "Seed 1. The scenarios:".to_owned(),
        _ => format!("Seeds 1 to {seeds}. The scenarios:"),
    });
    lines.push(String::new());
    for scenario in scenarios {
        lines.push(format!("- `{}`: {}", scenario.name, scenario.about));
    }
    replace_block(block, &lines)
}

/// Replaces what the page has between the marks of a block.
pub(crate) fn replace_block(name: &str, lines: &[String]) -> Result<()> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/scoreboard.md");
    let text =
        std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let (begin, end) = (
        format!("<!-- begin: {name} -->"),
        format!("<!-- end: {name} -->"),
    );
    let (before, rest) = text
        .split_once(&begin)
        .with_context(|| format!("no {begin}"))?;
    let (_, after) = rest.split_once(&end).with_context(|| format!("no {end}"))?;
    let body = lines.join("\n");
    std::fs::write(&path, format!("{before}{begin}\n{body}\n{end}{after}"))?;
    Ok(())
}
