//! Where one pod stands: what keeps it from running, or where it is expected.
//!
//! Answered from a snapshot alone, so every replica can, whether or not it has decided anything.

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

/// Where a pod stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "state")]
#[allow(
    missing_docs,
    reason = "the variant's sentence says what its fields are"
)]
pub enum PodSchedulingState {
    /// On a node.
    On { node: NodeName },
    /// On a node that it is leaving.
    Leaving { node: NodeName },
    /// Deleted before it got a node.
    Deleted,
    /// It has scheduling gates: nobody looks at it.
    Gated,
    /// It cannot be understood.
    Invalid { why: String },
    /// Its DaemonSet sends it to a node of its own, which must have room.
    DaemonSetPod,
    /// A static pod.
    StaticPod,
    /// kube-scheduler evicts pods for it on this node.
    Preempting { node: NodeName },
    /// Its room is promised.
    Nominated { target: String },
    /// It asks for nodes that are not from here.
    OptedOut,
    /// Its volumes or labels keep it from being placed before somebody mends them.
    Ignored { why: String },
    /// It fits on a machine that is there or coming.
    Fits { target: String },
    /// A new node would take it.
    NewNode {
        pool: PoolName,
        instance_type: String,
    },
    /// Nothing takes it: see the reasons.
    Unschedulable,
}

/// Where a pod stands, and why.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PodExplanation {
    /// Where it stands.
    pub state: PodSchedulingState,
    /// kube-scheduler, or the scheduler that the pod names, has not reported it unschedulable yet: no node is bought before.
    pub unconfirmed: Option<Arc<str>>,
    /// Per pool what is in the way; empty unless nothing takes it.
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
        }
    }
}

impl PodExplanation {
    const fn of(state: PodSchedulingState) -> Self {
        Self {
            state,
            unconfirmed: None,
            reasons: Vec::new(),
        }
    }
}

/// Where a pod stands. A pending pod is placed alone, as if no other were pending, with the settings of `options`.
///
/// # Cost
/// Unless the pod has a node or is not looked at: a solve of one pod, which is some milliseconds in a large cluster.
#[must_use]
pub fn explain(
    now: Timestamp,
    snapshot: &Snapshot,
    pod: &Arc<Pod>,
    options: &SolveOptions,
) -> PodExplanation {
    if let Some(state) = without_a_solve(snapshot, pod) {
        return PodExplanation::of(state);
    }
    let options = SolveOptions {
        pending: false,
        extra: vec![Arc::clone(pod)],
        repack: 0,
        ..options.clone()
    };
    let (plan, report) = solve(now, snapshot, &options, &|| false);
    let why = report.ignored.into_iter().next().map(|(_, why)| why);
    let unconfirmed = (!pod.unschedulable).then(|| Arc::clone(&pod.class.scheduler_name));
    let state = if let Some(why) = why {
        PodSchedulingState::Ignored { why }
    } else if let Some(placement) = plan.placements.first() {
        let target = match &placement.place {
            NominationTarget::Node(node) => format!("node/{node}"),
            NominationTarget::Claim(claim) => format!("nodeclaim/{claim}"),
        };
        PodSchedulingState::Fits { target }
    } else if let Some(claim) = plan.claims.first() {
        let cheapest = claim.instance_types.first();
        PodSchedulingState::NewNode {
            pool: claim.pool.clone(),
            instance_type: cheapest.map(ToString::to_string).unwrap_or_default(),
        }
    } else {
        PodSchedulingState::Unschedulable
    };
    PodExplanation {
        state,
        unconfirmed,
        reasons: report
            .unplaced
            .into_iter()
            .flat_map(|each| each.reasons)
            .collect(),
    }
}

/// What is known of a pod at once.
fn without_a_solve(snapshot: &Snapshot, pod: &Pod) -> Option<PodSchedulingState> {
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
    if let Some(promise) = snapshot.ledger.nomination(&pod.uid) {
        let target = match &promise.place {
            NominationTarget::Node(node) => format!("node/{node}"),
            NominationTarget::Claim(claim) => format!("nodeclaim/{claim}"),
        };
        return Some(PodSchedulingState::Nominated { target });
    }
    pod.class.opts_out().then_some(PodSchedulingState::OptedOut)
}
