//! The reference's recorded results on the recorded clusters: the command that its first round finds.

use std::path::Path;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::inputs;

#[derive(Deserialize)]
struct RawResults {
    runs: Vec<RawRun>,
}

#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawRun {
    method: String,
    get_candidates_ns: u64,
    budget_mapping_ns: u64,
    compute_commands_ns: u64,
    decision: String,
    #[serde(default)]
    nodes_removed: usize,
    #[serde(default)]
    pods_moved: usize,
    #[serde(default)]
    estimated_savings: f64,
}

/// What the reference found first, and how long that took.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct RecordedRound {
    /// Milliseconds of candidates, budgets and search: of several nodes, and of single ones if that finds nothing. Medians.
    pub(super) ms: f64,
    pub(super) nodes: usize,
    pub(super) pods: usize,
    /// Dollars per hour.
    pub(super) saving: f64,
}

/// The recorded round of a cluster.
pub(super) fn round(folder: &Path, name: &str) -> Result<RecordedRound> {
    let results: RawResults = inputs::read(folder, &format!("consolidation-{name}-result"))?;
    let median = |method: &str| {
        let mut runs: Vec<RawRun> = results.runs.clone();
        runs.retain(|run| run.method == method);
        runs.sort_by_key(RawRun::ns);
        runs.get(runs.len() / 2).cloned()
    };
    let multi = median("multi");
    let is_found = multi.as_ref().is_some_and(|run| run.decision != "no-op");
    let single = median("single").filter(|_| !is_found);
    let asked: Vec<RawRun> = multi.into_iter().chain(single).collect();
    Ok(RecordedRound {
        ms: asked.iter().map(RawRun::ns).map(ms).sum(),
        nodes: asked.iter().map(|run| run.nodes_removed).sum(),
        pods: asked.iter().map(|run| run.pods_moved).sum(),
        saving: asked.iter().map(|run| run.estimated_savings).sum(),
    })
}

impl RawRun {
    const fn ns(&self) -> u64 {
        self.get_candidates_ns + self.budget_mapping_ns + self.compute_commands_ns
    }
}

#[expect(clippy::cast_precision_loss, reason = "for display")]
fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}
