//! What an edit would do before it is done: which machines would drift, and what their replacements would cost.
//!
//! The same drift check and the same solver answer as in production, on a picture in which the edit is already made. The
//! picture shares everything else with the snapshot.
//!
//! Invariant: nothing is promised, written or remembered.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;

use crate::drift;
use crate::scheduling::{SolveOptions, solve};
use mortise_apis::hash::NODE_POOL_HASH_VERSION;
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::karpenter::nodepool::NodePool;
use mortise_apis::labels;
use mortise_apis::names::{NodeClassKey, Uid};
use mortise_apis::values::money::MicroUsd;
use mortise_state::snapshot::{NodeKey, Snapshot, StateNode};

/// Machines that an edit concerns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AffectedNodes {
    /// Machines of the pool, or of the class, that are not going already.
    pub all: BTreeSet<NodeKey>,
    /// Those that drift because of the edit.
    pub drifting: BTreeSet<NodeKey>,
}

/// What it costs to replace the drifting machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplacementCost {
    /// Price of all concerned machines now; `None` when one is not known.
    pub before: Option<MicroUsd>,
    /// Their price once the drifting ones are replaced; `None` when one is not known.
    pub after: Option<MicroUsd>,
    /// Pods that would find no place.
    pub homeless: usize,
}

/// The picture in which a pool is edited, and the machines that the edit concerns.
///
/// # Cost
/// One pass over the machines, some microseconds for each of the pool's.
#[must_use]
pub fn edited_pool(
    now: Timestamp,
    snapshot: &Snapshot,
    edited: &NodePool,
) -> (Snapshot, AffectedNodes) {
    let mut edited = edited.clone();
    let hash = edited.hash().to_string();
    let annotations = edited.metadata.annotations.get_or_insert_default();
    annotations.insert(labels::NODEPOOL_HASH.to_owned(), hash);
    annotations.insert(
        labels::NODEPOOL_HASH_VERSION.to_owned(),
        NODE_POOL_HASH_VERSION.to_owned(),
    );
    let name = edited.name();
    let present = snapshot.pools.get(&name).cloned();
    if let Some(present) = &present {
        edited.status = present.status.clone();
    }
    let mut concerned = AffectedNodes::default();
    for node in snapshot.nodes_of_pool(name.as_str()) {
        let Some(claim) = standing(node) else {
            continue;
        };
        concerned.all.insert(node.key.clone());
        let would = !is_drifted(claim) && drift::reason(snapshot, claim, &edited, now).is_some();
        let does = || {
            present
                .as_ref()
                .is_some_and(|pool| drift::reason(snapshot, claim, pool, now).is_some())
        };
        if would && !does() {
            concerned.drifting.insert(node.key.clone());
        }
    }
    let mut view = snapshot.clone();
    Arc::make_mut(&mut view.pools).insert(name, Arc::new(edited));
    (view, concerned)
}

/// The machines that an edit of a node class concerns: when its hash changes, all that were made from its present state,
/// as the hash annotations of class and claims tell (`<group>/<kind>-hash`, with `-version`).
#[must_use]
pub fn edited_class(
    snapshot: &Snapshot,
    class: &NodeClassKey,
    hash_changes: bool,
) -> AffectedNodes {
    let hash = format!("{}-hash", labels::node_class_key(&class.group, &class.kind));
    let version = format!("{hash}-version");
    let annotations = snapshot
        .node_classes
        .get(class)
        .and_then(|class| class.object.pointer("/metadata/annotations"));
    let of_class = |key: &str| annotations?.get(key)?.as_str();
    let is_current = |claim: &NodeClaim| {
        [&hash, &version]
            .into_iter()
            .all(|key| of_class(key).is_some() && claim.annotation(key) == of_class(key))
    };
    let mut concerned = AffectedNodes::default();
    for node in snapshot.nodes.values() {
        let Some(claim) = standing(node).filter(|claim| claim.node_class_key() == *class) else {
            continue;
        };
        concerned.all.insert(node.key.clone());
        if hash_changes && !is_drifted(claim) && is_current(claim) {
            concerned.drifting.insert(node.key.clone());
        }
    }
    concerned
}

/// Replaces the drifting machines in the picture. `None` when `stop` ended it before it was done.
///
/// # Cost
/// One solve over the pods of the drifting machines and those that are pending.
#[must_use]
pub fn replacement(
    now: Timestamp,
    view: &Snapshot,
    concerned: &AffectedNodes,
    stop: &dyn Fn() -> bool,
) -> Option<ReplacementCost> {
    let price = |keys: &mut dyn Iterator<Item = &NodeKey>| -> Option<MicroUsd> {
        keys.map(|key| view.nodes.get(&**key)?.price).sum()
    };
    let before = price(&mut concerned.all.iter());
    let staying = price(&mut concerned.all.difference(&concerned.drifting));
    let moved: BTreeSet<&Uid> = concerned
        .drifting
        .iter()
        .filter_map(|key| view.nodes.get(&**key))
        .flat_map(|node| node.reschedulable())
        .map(|pod| &pod.uid)
        .collect();
    let options = SolveOptions {
        without: concerned.drifting.clone(),
        closed: view
            .ledger
            .fences()
            .keys()
            .filter_map(|claim| Some(view.node_of_claim(claim)?.key.clone()))
            .collect(),
        pending: true,
        // Nothing is known of devices while claims for them are ignored.
        ignore_devices: view.devices.classes.is_empty(),
        ..SolveOptions::default()
    };
    let (mut plan, report) = solve(now, view, &options, stop);
    if report.stopped {
        return None;
    }
    // Claims for pods that wait anyway are not due to the edit.
    plan.claims
        .retain(|claim| claim.pods.iter().any(|pod| moved.contains(&pod.uid)));
    let homeless = report
        .unplaced
        .iter()
        .flat_map(|unplaced| &unplaced.pods)
        .filter(|(_, uid)| moved.contains(uid))
        .count();
    Some(ReplacementCost {
        before,
        after: staying
            .zip(plan.price())
            .map(|(staying, new)| staying + new),
        homeless,
    })
}

/// The claim of a launched machine that is not going.
fn standing(node: &StateNode) -> Option<&NodeClaim> {
    node.claim
        .as_deref()
        .filter(|claim| !node.deleting && claim.is_true("Launched"))
}

fn is_drifted(claim: &NodeClaim) -> bool {
    claim.is_true("Drifted")
}
