//! What `/api/v1/state` and `/debug/disruption` answer, as far as it is shown.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::cli::drain_blocker::DrainBlocker;

#[derive(Debug, Deserialize)]
pub(super) struct State {
    pub(super) totals: Totals,
    pub(super) pools: Vec<PoolRow>,
    pub(super) nodes: Vec<NodeRow>,
    pub(super) pending: Vec<PendingPod>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Totals {
    pub(super) at: Timestamp,
    pub(super) leading: bool,
    pub(super) nodes: usize,
    pub(super) pods: usize,
    pub(super) pending: usize,
    pub(super) price: f64,
    pub(super) price_unknown: usize,
}

#[derive(Debug, Deserialize)]
pub(super) struct PoolRow {
    pub(super) name: String,
    pub(super) ready: bool,
}

#[derive(Debug, Deserialize)]
pub(super) struct NodeRow {
    pub(super) key: String,
    pub(super) name: String,
    pub(super) pool: Option<String>,
    pub(super) instance_type: Option<String>,
    pub(super) zone: Option<String>,
    pub(super) capacity_type: Option<String>,
    pub(super) phase: String,
    pub(super) fence: Option<String>,
    pub(super) created: Option<Timestamp>,
    pub(super) price: Option<f64>,
    pub(super) pods: usize,
    pub(super) allocatable: Map<String, Value>,
    pub(super) used: Map<String, Value>,
}

#[derive(Debug, Deserialize)]
pub(super) struct PendingPod {
    pub(super) pod: String,
    pub(super) created: Timestamp,
    pub(super) nominated_to: Option<String>,
    pub(super) stalled: Option<String>,
    pub(super) scheduler_says: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Disruption {
    pub(super) nodes: Vec<NodeDisruption>,
    pub(super) pools: Vec<PoolBudgets>,
    #[serde(default)]
    pub(super) undrainable: Vec<UndrainableNode>,
}

/// A node whose drain would never end by itself.
#[derive(Debug, Deserialize)]
pub(super) struct UndrainableNode {
    pub(super) node: String,
    pub(super) blockers: Vec<DrainBlocker>,
}

#[derive(Debug, Deserialize)]
pub(super) struct NodeDisruption {
    pub(super) key: String,
    pub(super) blockers: Vec<Blocker>,
    pub(super) drifted: Option<Value>,
    pub(super) expires_at: Option<Timestamp>,
    pub(super) deleting_since: Option<Timestamp>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Blocker {
    pub(super) text: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct PoolBudgets {
    pub(super) name: String,
    pub(super) now: Vec<BudgetUse>,
}

#[derive(Debug, Deserialize)]
pub(super) struct BudgetUse {
    pub(super) reason: String,
    pub(super) allowed: Option<i64>,
    pub(super) disrupted: i64,
}
