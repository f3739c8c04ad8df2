//! Learns the boot taints of NodePools, and leaves them out of what counts for scheduling on young nodes.
//!
//! A component that is not declared in `startupTaints` taints each node at its start and removes the taint when it is ready. If such
//! a taint counted, the pods that wait for the node would get another one, and so on. A NodePool's taint is learned when the first of its
//! nodes loses it; until then it counts, as in Karpenter.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Taint;
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::names::NodeName;
use mortise_apis::values::since;
use mortise_apis::{k8s, taints};

use super::Index;
use crate::snapshot::{BootTaint, StateNode};

/// What is removed later is no matter of booting: as long as a node may take to register.
const YOUNG_MS: i64 = 15 * 60_000;
/// A node that is first seen later than this may have got its taints after it joined, as when this process has just started.
const JOINED_MS: i64 = 60_000;
/// Prefixes of taints that say something else: Kubernetes' conditions of nodes, and the autoscaler's own.
const OTHER: [&str; 5] = [
    "node.kubernetes.io/",
    "node.cloudprovider.kubernetes.io/",
    "readiness.k8s.io/",
    "karpenter.sh/",
    "mortise.sh/",
];

/// What is known of young nodes.
#[derive(Debug, Default)]
pub(super) struct BootTaintIndex {
    /// Nothing is learned.
    pub(super) is_off: bool,
    /// Taints that young nodes joined with and still have.
    watched: BTreeMap<NodeName, BTreeSet<BootTaint>>,
    /// When taints count again on nodes that still have them.
    expiries: BTreeSet<(Timestamp, NodeName)>,
}

impl BootTaintIndex {
    /// When to call [`expire`] again.
    pub(super) fn next_expiry(&self) -> Option<Timestamp> {
        self.expiries.first().map(|(until, _)| *until)
    }

    /// A Node is gone.
    pub(super) fn forget(&mut self, node: &NodeName) {
        self.watched.remove(node);
    }
}

/// A Node is about to be applied.
pub(super) fn observe(index: &mut Index, node: &k8s::Node) {
    if index.boot_taints.is_off {
        return;
    }
    let name = NodeName::from(node.metadata.name.as_deref().unwrap_or_default());
    let created = node.metadata.creation_timestamp.as_ref();
    let age = created.map_or(i64::MAX, |created| since(index.now, created.0));
    if age > YOUNG_MS || node.metadata.deletion_timestamp.is_some() {
        return index.boot_taints.forget(&name);
    }
    let has: BTreeSet<BootTaint> = boot_taints(&node.spec.taints).collect();
    let Some(watched) = index.boot_taints.watched.get_mut(&name) else {
        if age <= JOINED_MS {
            index.boot_taints.watched.insert(name, has);
        }
        return;
    };
    let lost: Vec<BootTaint> = watched.difference(&has).cloned().collect();
    watched.retain(|taint| has.contains(taint));
    let claim = index.nodes.claim(&name);
    let Some(claim) = claim.and_then(|claim| index.state.claims.get(claim)) else {
        return;
    };
    let Some(pool) = claim.pool() else { return };
    let mut is_new = false;
    for taint in lost {
        if !is_declared(claim, &taint) {
            let known = Arc::make_mut(&mut index.state.boot_taints);
            is_new |= known.learn(pool.clone(), taint, age);
        }
    }
    if is_new {
        // Others that boot at the same time have it too.
        for node in index.boot_taints.watched.keys() {
            index.nodes.mark(node);
        }
        index.changes.pools.insert(pool);
        index.stale = true;
    }
}

/// The taints that may be boot taints.
fn boot_taints(all: &[Taint]) -> impl Iterator<Item = BootTaint> {
    let is_other = |taint: &&Taint| OTHER.iter().any(|prefix| taint.key.starts_with(prefix));
    let hard = all
        .iter()
        .filter(|taint| matches!(&*taint.effect, taints::NO_SCHEDULE | taints::NO_EXECUTE));
    hard.filter(move |taint| !is_other(taint))
        .map(BootTaint::from)
}

fn is_declared(claim: &NodeClaim, taint: &BootTaint) -> bool {
    let declared = claim.spec.taints.iter().chain(&claim.spec.startup_taints);
    declared
        .flatten()
        .any(|declared| BootTaint::from(declared) == *taint)
}

/// Leaves out the boot taints that a node joined with and is still expected to lose.
pub(super) fn leave_out(index: &mut Index, merged: &mut StateNode) {
    let (Some(node), Some(claim), true) = (&merged.node, &merged.claim, merged.registered) else {
        return;
    };
    let created = node.metadata.creation_timestamp.as_ref();
    let (Some(created), Some(pool), Some(name)) = (created, claim.pool(), merged.node_name())
    else {
        return;
    };
    let Some(joined_with) = index.boot_taints.watched.get(&name) else {
        return;
    };
    let (known, now) = (&index.state.boot_taints, index.now);
    let mut next: Option<Timestamp> = None;
    merged.taints.retain(|taint| {
        let until = known.expected_until(&pool, taint, created.0);
        let until = until.filter(|until| *until > now);
        let until = until.filter(|_| joined_with.contains(&BootTaint::from(taint)));
        next = next.into_iter().chain(until).min();
        until.is_none()
    });
    if let Some(until) = next {
        index.boot_taints.expiries.insert((until, name));
    }
}

/// Taints that were not removed in time count again. Cost: the nodes that still have them.
pub(super) fn expire(index: &mut Index, now: Timestamp) {
    while let Some((until, _)) = index.boot_taints.expiries.first()
        && *until <= now
        && let Some((_, name)) = index.boot_taints.expiries.pop_first()
    {
        index.nodes.mark(&name);
        index.stale = true;
    }
}
