//! What `/debug/explain` answers, as far as it is shown.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::cli::drain_blocker::DrainBlocker;

/// When, and by whom.
#[derive(Debug, Deserialize)]
pub(super) struct Stamp {
    pub(super) at: Timestamp,
    pub(super) leading: bool,
}

#[derive(Debug, Deserialize)]
pub(super) struct Decision {
    pub(super) at: Timestamp,
    pub(super) decider: Value,
    pub(super) subject: String,
    pub(super) verdict: Value,
    pub(super) text: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct Condition {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) status: String,
    #[serde(default)]
    pub(super) reason: String,
    #[serde(default)]
    pub(super) message: String,
}

/// When a pod goes if its workload shrinks.
#[derive(Debug, Deserialize)]
pub(super) struct DeletionCost {
    pub(super) cost: i32,
    /// mortise wrote it.
    pub(super) own: bool,
    /// Pods of its owner that go before it.
    pub(super) earlier_pods: usize,
    pub(super) pods: usize,
}

/// Whether a drain hands a pod over.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum HandOver {
    Possible {
        deployment: String,
        wait_seconds: i64,
    },
    NotPossible {
        not_possible: String,
    },
}

#[derive(Debug, Deserialize)]
pub(super) struct Pod {
    #[serde(flatten)]
    pub(super) stamp: Stamp,
    pub(super) pod: String,
    pub(super) verdict: String,
    pub(super) node: Option<String>,
    pub(super) created: Timestamp,
    pub(super) requests: Map<String, Value>,
    pub(super) priority: i64,
    pub(super) scheduler: String,
    pub(super) scheduler_says: Option<String>,
    pub(super) nominated_to: Option<String>,
    pub(super) nominated_until: Option<Timestamp>,
    pub(super) do_not_disrupt: Option<String>,
    pub(super) disruption_budgets: Vec<String>,
    #[serde(default)]
    pub(super) deletion_cost: Option<DeletionCost>,
    #[serde(default)]
    pub(super) hand_over: Option<HandOver>,
    pub(super) blockers: Vec<PoolBlocker>,
    pub(super) why: Option<String>,
    pub(super) decisions: Vec<Decision>,
}

/// Why a NodePool has no node for a pod, or why the pod has none anywhere.
#[derive(Debug, Deserialize)]
pub(super) struct PoolBlocker {
    pub(super) pool: Option<String>,
    pub(super) blocker: Option<String>,
    pub(super) constraint: Option<String>,
    #[serde(default)]
    pub(super) detail: String,
    pub(super) nearest_type: Option<String>,
    pub(super) lacks: Option<Map<String, Value>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Node {
    #[serde(flatten)]
    pub(super) stamp: Stamp,
    pub(super) name: String,
    pub(super) claim: Option<String>,
    pub(super) pool: Option<String>,
    pub(super) instance_type: Option<String>,
    pub(super) zone: Option<String>,
    pub(super) capacity_type: Option<String>,
    pub(super) phase: String,
    pub(super) created: Option<Timestamp>,
    pub(super) price: Option<f64>,
    pub(super) pods: usize,
    pub(super) daemon_pods: usize,
    pub(super) nominations: usize,
    pub(super) allocatable: Map<String, Value>,
    pub(super) used: Map<String, Value>,
    pub(super) conditions: Vec<Condition>,
    pub(super) times: Times,
    pub(super) disruption_blockers: Vec<DisruptionBlocker>,
    pub(super) drain_blockers: Vec<DrainBlocker>,
    #[serde(default)]
    pub(super) never_drains_because: Vec<DrainBlocker>,
    pub(super) decisions: Vec<Decision>,
}

/// When something is going to happen to a node.
#[derive(Debug, Deserialize)]
pub(super) struct Times {
    pub(super) consolidation_policy: Option<String>,
    pub(super) consolidate_after: Option<String>,
    pub(super) consolidatable: bool,
    pub(super) consolidatable_at: Option<Timestamp>,
    pub(super) drifted: Option<Since>,
    pub(super) expires_at: Option<Timestamp>,
    pub(super) termination_grace_period: Option<String>,
    pub(super) deleting_since: Option<Timestamp>,
    pub(super) terminates_by: Option<Timestamp>,
    pub(super) fence: Option<Since>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Since {
    pub(super) reason: String,
    pub(super) since: Option<Timestamp>,
}

#[derive(Debug, Deserialize)]
pub(super) struct DisruptionBlocker {
    pub(super) text: String,
    pub(super) clears: String,
    pub(super) until: Option<Timestamp>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Pool {
    #[serde(flatten)]
    pub(super) stamp: Stamp,
    pub(super) nodepool: String,
    pub(super) ready: bool,
    pub(super) node_class: String,
    pub(super) node_class_found: bool,
    pub(super) instance_types_offered: Option<usize>,
    pub(super) nodes: u64,
    pub(super) nodes_limit: Option<Value>,
    pub(super) capacity: Map<String, Value>,
    pub(super) limits: Map<String, Value>,
    pub(super) conditions: Vec<Condition>,
    pub(super) budgets: Budgets,
    pub(super) pause: Option<Pause>,
    pub(super) policy: Option<Policy>,
    #[serde(default)]
    pub(super) commitments: Vec<PoolCommitment>,
    pub(super) decisions: Vec<Decision>,
}

/// A commitment that pays for its nodes.
#[derive(Debug, Deserialize)]
pub(super) struct PoolCommitment {
    pub(super) text: String,
}

/// The NodePoolPolicy in force, with a line for each limit.
#[derive(Debug, Deserialize)]
pub(super) struct Policy {
    pub(super) name: String,
    pub(super) limits: Vec<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Pause {
    /// What it covers: `cluster`, or the kind and name of an object.
    #[serde(default)]
    pub(super) scope: Value,
    pub(super) reason: String,
    pub(super) until: Option<Timestamp>,
}

/// What budgets allow now, and the budgets as they are written.
#[derive(Debug, Deserialize)]
pub(super) struct Budgets {
    pub(super) now: Vec<BudgetNow>,
    pub(super) written: Vec<WrittenBudget>,
}

#[derive(Debug, Deserialize)]
pub(super) struct BudgetNow {
    pub(super) reason: String,
    pub(super) allowed: Option<i64>,
    pub(super) disrupted: i64,
    pub(super) left: Option<i64>,
}

#[derive(Debug, Deserialize)]
pub(super) struct WrittenBudget {
    pub(super) nodes: String,
    pub(super) reasons: Option<Vec<String>>,
    pub(super) schedule: Option<String>,
    pub(super) duration: Option<String>,
    pub(super) active: bool,
    pub(super) changes_at: Option<Timestamp>,
    pub(super) error: Option<String>,
}
