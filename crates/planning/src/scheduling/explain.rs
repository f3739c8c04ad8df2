//! Explains the scheduling state of one pod.
//!
//! Computed from a snapshot alone, so every replica can answer.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;

use super::plan::SolveOptions;
use super::solve;
use crate::reason::Reason;
use mortise_apis::labels;
use mortise_apis::names::{NodeName, PoolName};
use mortise_state::ledger::NominationTarget;
use mortise_state::snapshot::{Pod, Snapshot};

/// The scheduling state of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "state")]
#[allow(
    missing_docs,
    reason = "the variant's sentence says what its fields are"
)]
pub enum PodSchedulingState {
    /// Bound to a node.
    On { node: NodeName },
    /// Terminating on a node.
    Leaving { node: NodeName },
    /// Deleted before it was bound.
    Deleted,
    /// It has scheduling gates.
    Gated,
    /// Its specification cannot be interpreted.
    Invalid { why: String },
    /// A DaemonSet pod, which waits for free capacity on its own node.
    DaemonSetPod,
    /// A static pod.
    StaticPod,
    /// kube-scheduler evicts pods for it on this node.
    Preempting { node: NodeName },
    /// It is nominated to a node or NodeClaim.
    Nominated { target: String },
    /// It requires nodes without a NodePool.
    OptedOut,
    /// Its volumes or labels must be fixed before it can be scheduled.
    Ignored { why: String },
    /// It fits on an existing node.
    Fits { target: String },
    /// A new node could run it.
    NewNode {
        pool: PoolName,
        instance_type: String,
    },
    /// No NodePool can run it; see the reasons.
    Unschedulable,
    /// Too few pods of its gang exist or have a place; see the reasons.
    WaitsForGang,
}

/// The scheduling state of a pod, and the reasons.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PodExplanation {
    /// Its state.
    pub state: PodSchedulingState,
    /// The scheduler of the pod, if it has not reported the pod unschedulable yet: no node is launched before.
    pub unconfirmed: Option<Arc<str>>,
    /// The blocker of each NodePool; empty unless the pod is unschedulable.
    pub reasons: Vec<Reason>,
}

impl fmt::Display for PodSchedulingState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::On { node } => write!(f, "on node {node}"),
            Self::Leaving { node } => write!(f, "leaving node {node}"),
            Self::Deleted => f.write_str("deleted before it was bound"),
            Self::Gated => {
                f.write_str("has scheduling gates; it is not planned before they are removed")
            }
            Self::Invalid { why } => write!(f, "invalid: {why}"),
            Self::DaemonSetPod => {
                f.write_str("waits for its own node; no nodes are launched for DaemonSet pods")
            }
            Self::StaticPod => {
                f.write_str("static pod of its node; no nodes are launched for static pods")
            }
            Self::Preempting { node } => {
                write!(f, "kube-scheduler preempts pods for it on node {node}")
            }
            Self::Nominated { target } => write!(f, "pending; nominated to {target}"),
            Self::OptedOut => write!(
                f,
                "pending; it requires nodes without {}, which are not launched",
                labels::NODEPOOL
            ),
            Self::Ignored { why } => write!(f, "pending; ignored: {why}"),
            Self::Fits { target } => write!(f, "pending; fits on {target}"),
            Self::NewNode {
                pool,
                instance_type,
            } => write!(
                f,
                "pending; NodePool {pool} can launch a node for it ({instance_type})"
            ),
            Self::Unschedulable => f.write_str("pending; no NodePool can run it (see why)"),
            Self::WaitsForGang => f.write_str("pending; waits for its gang (see why)"),
        }
    }
}

impl PodExplanation {
    const fn from_state(state: PodSchedulingState) -> Self {
        Self {
            state,
            unconfirmed: None,
            reasons: Vec::new(),
        }
    }
}

/// The scheduling state of a pod. A pending pod is placed alone, with the pods of its gang if it has one, as if no other pod were
/// pending, with the settings of `options`.
///
/// # Cost
/// One solve of one pod, some milliseconds in a large cluster; nothing for pods that are bound or ignored.
#[must_use]
pub fn explain(
    now: Timestamp,
    snapshot: &Snapshot,
    pod: &Arc<Pod>,
    options: &SolveOptions,
) -> PodExplanation {
    if let Some(state) = state_without_solve(snapshot, pod) {
        return PodExplanation::from_state(state);
    }
    let options = SolveOptions {
        pending: false,
        extra: vec![Arc::clone(pod)],
        repack: 0,
        ..options.clone()
    };
    let (plan, report) = solve(now, snapshot, &options, &|| false);
    let own = report.unplaced.into_iter();
    let own = own.filter(|each| each.pods.iter().any(|(_, uid)| *uid == pod.uid));
    let reasons: Vec<Reason> = own.flat_map(|each| each.reasons).collect();
    let mut ignored = report.ignored.into_iter();
    let why = ignored.find(|(key, _)| *key == pod.key);
    let why = why.map(|(_, why)| why);
    let has = |pods: &[Arc<Pod>]| pods.iter().any(|own| own.uid == pod.uid);
    let unconfirmed = (!pod.unschedulable).then(|| Arc::clone(&pod.class.scheduler_name));
    let state = if let Some(why) = why {
        PodSchedulingState::Ignored {
            why: why.to_string(),
        }
    } else if let Some(placement) = plan.placements.iter().find(|each| each.pod.uid == pod.uid) {
        let target = match &placement.place {
            NominationTarget::Node(node) => format!("node/{node}"),
            NominationTarget::Claim(claim) => format!("nodeclaim/{claim}"),
        };
        PodSchedulingState::Fits { target }
    } else if let Some(claim) = plan.claims.iter().find(|claim| has(&claim.pods)) {
        let cheapest = claim.instance_types.first();
        PodSchedulingState::NewNode {
            pool: claim.pool.clone(),
            instance_type: cheapest.map(ToString::to_string).unwrap_or_default(),
        }
    } else if reasons
        .iter()
        .any(|reason| matches!(reason, Reason::GangWaits(_)))
    {
        PodSchedulingState::WaitsForGang
    } else {
        PodSchedulingState::Unschedulable
    };
    PodExplanation {
        state,
        unconfirmed,
        reasons,
    }
}

/// The state of a pod that needs no solve.
fn state_without_solve(snapshot: &Snapshot, pod: &Pod) -> Option<PodSchedulingState> {
    if let Some(node) = &pod.node {
        let node = node.clone();
        return Some(if pod.deleted.is_some() {
            PodSchedulingState::Leaving { node }
        } else {
            PodSchedulingState::On { node }
        });
    }
    if pod.deleted.is_some() {
        return Some(PodSchedulingState::Deleted);
    }
    if pod.gated {
        return Some(PodSchedulingState::Gated);
    }
    if let Some(why) = &pod.class.malformed {
        return Some(PodSchedulingState::Invalid {
            why: why.to_string(),
        });
    }
    if pod.is_node_owned() {
        return Some(PodSchedulingState::StaticPod);
    }
    if pod.is_daemon() {
        return Some(PodSchedulingState::DaemonSetPod);
    }
    if let Some(node) = &pod.nominated {
        return Some(PodSchedulingState::Preempting { node: node.clone() });
    }
    if let Some(nomination) = snapshot.ledger.nomination(&pod.uid) {
        let target = match &nomination.place {
            NominationTarget::Node(node) => format!("node/{node}"),
            NominationTarget::Claim(claim) => format!("nodeclaim/{claim}"),
        };
        return Some(PodSchedulingState::Nominated { target });
    }
    pod.class.opts_out().then_some(PodSchedulingState::OptedOut)
}
