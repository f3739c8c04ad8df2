//! Nodes whose drain would never end by itself, before it begins: PodDisruptionBudgets that never allow an eviction, and pods that
//! are protected without end.
//!
//! # Problem
//! Such a node does not drift, is not consolidated, and once it has expired it drains for weeks. Whoever could change that learns of it
//! when an upgrade waits for the last ten nodes.
//!
//! # What counts
//! A pod that a drain waits for, with a blocker that only a change of an object ends. Pods of
//! Jobs end by themselves, and a NodeClaim with `terminationGracePeriod` is drained in the end: neither counts.

use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;

use super::blockers::{MOST, going_since, owner_of, protection};
use super::budgets::{PodBlocker, standing_blocker};
use super::is_handed_over;
use crate::drain::pdb::Pdbs;
use crate::drain_blocker::DrainBlocker;
use mortise_apis::names::{ClaimName, NodeName, PoolName};
use mortise_state::snapshot::{Pod, Snapshot, StateNode};

/// A node whose drain would never end by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UndrainableNode {
    /// Its Node.
    pub node: NodeName,
    /// Its NodeClaim.
    pub claim: Option<ClaimName>,
    /// Its NodePool.
    pub pool: Option<PoolName>,
    /// Why, by pod; at most ten. `since`: when the pod was started.
    pub blockers: Vec<DrainBlocker>,
}

/// Nodes that are not being deleted and whose drain would never end by itself. Sorted by name.
///
/// # Cost
/// That of [`Pdbs::new`], and of [`Pdbs::check`] for each pod.
#[must_use]
pub fn undrainable_nodes(snapshot: &Snapshot, now: Timestamp) -> Vec<UndrainableNode> {
    let pdbs = Pdbs::new(snapshot);
    let nodes = snapshot.nodes.values();
    let mut all: Vec<UndrainableNode> = nodes
        .filter_map(|node| {
            let blockers = undrainable_because(snapshot, &pdbs, now, node);
            let found = !blockers.is_empty();
            found.then_some(UndrainableNode {
                node: node.node_name()?,
                claim: node.claim_name(),
                pool: node.pool(),
                blockers,
            })
        })
        .collect();
    all.sort_by(|a, b| a.node.cmp(&b.node));
    all
}

/// Why the drain of the node would never end by itself; nothing while it is being deleted.
#[must_use]
pub fn undrainable_because(
    snapshot: &Snapshot,
    pdbs: &Pdbs<'_>,
    now: Timestamp,
    node: &StateNode,
) -> Vec<DrainBlocker> {
    let Some(claim) = node.claim.as_ref().filter(|_| node.node.is_some()) else {
        return Vec::new();
    };
    if claim.spec.termination_grace_period.is_some() || going_since(snapshot, node).is_some() {
        return Vec::new();
    }
    let pods = node.pods.iter();
    let pods = pods.filter(|pod| pod.is_waiting_eviction(now) && pod.deleted.is_none());
    let blocker = |pod: &Arc<Pod>| {
        let (kind, detail, unblocks) = cause((snapshot, pdbs), now, pod)?;
        Some(DrainBlocker {
            kind,
            what: format!("pod {}", pod.key),
            owner: owner_of(pod),
            since: pod.started.unwrap_or(now),
            detail,
            unblocks,
        })
    };
    pods.filter_map(blocker).take(MOST).collect()
}

fn cause(
    (snapshot, pdbs): (&Snapshot, &Pdbs<'_>),
    now: Timestamp,
    pod: &Pod,
) -> Option<PodBlocker> {
    if !pod.is_protected(now) {
        return standing_blocker(pdbs, pod).filter(|_| !is_handed_over(snapshot, pdbs, pod));
    }
    // A duration ends, also of a pod that is not started yet.
    let has_no_end = pod.is_protected_for_good() && !pod.is_of_job();
    has_no_end.then(|| protection(pod))
}
