//! What became of a cluster in a scenario.

use jiff::Timestamp;
use serde::Serialize;

use crate::node_claim_history::NodeClaimStep;
use crate::scores::{ClusterMinute, Scores};
use crate::stats::Stats;

/// The cluster at one time.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ScenarioSample {
    /// When.
    pub at: Timestamp,
    /// Seconds since the start.
    pub seconds: i64,
    /// What happened at this time, before the sample; `None`: time passed.
    pub happened: Option<String>,
    /// Node objects.
    pub nodes: u64,
    /// Pods that run and are ready, those of DaemonSets not counted.
    pub pods_running: u64,
    /// Pods that have no node.
    pub pods_pending: u64,
    /// Price of the instances, in micro-dollars an hour.
    pub price_micro_usd: i64,
    /// Since the start: instances launched.
    pub launched: u64,
    /// Since the start: instances terminated.
    pub terminated: u64,
    /// Since the start: pods evicted.
    pub evicted: u64,
}

/// A Node at the end.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ScenarioNode {
    /// Its NodePool.
    pub node_pool: String,
    /// Its name.
    pub name: String,
    /// Instance type.
    pub instance_type: String,
    /// Zone.
    pub zone: String,
    /// `spot`, `on-demand` or `reserved`.
    pub capacity_type: String,
    /// Pods on it, those of DaemonSets not counted.
    pub pods: u64,
}

/// A whole scenario.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ScenarioReport {
    /// Seed of its random choices.
    pub seed: u64,
    /// When it began.
    pub start: Timestamp,
    /// The cluster at regular times, and after each entry of the timeline.
    pub samples: Vec<ScenarioSample>,
    /// The Nodes at the end.
    pub nodes: Vec<ScenarioNode>,
    /// What became of NodeClaims, in order.
    pub node_claims: Vec<NodeClaimStep>,
    /// Totals.
    pub totals: Stats,
    /// How well the cluster was run.
    pub scores: Scores,
    /// Every minute, for plots; not part of the JSON.
    #[serde(skip)]
    pub minutes: Vec<ClusterMinute>,
    /// Digest of all decisions and samples in their order, of 64 bits.
    pub history: String,
}
