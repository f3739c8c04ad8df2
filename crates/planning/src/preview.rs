//! Previews an edit: which nodes would drift, and what their replacements would cost.
//!
//! The same drift check and the same solver as in production, on a copy of the snapshot with the edit applied. The copy
//! shares everything else with the snapshot.
//!
//! Invariant: nothing is nominated, written or stored.

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

/// Nodes that an edit concerns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AffectedNodes {
    /// Nodes of the NodePool, or of the node class, that are not being deleted.
    pub all: BTreeSet<NodeKey>,
    /// Those that drift because of the edit.
    pub drifting: BTreeSet<NodeKey>,
}

/// Cost of replacing the drifted nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplacementCost {
    /// Price of all concerned nodes now; `None` when one is unknown.
    pub before: Option<MicroUsd>,
    /// Their price once the drifted ones are replaced; `None` when one is unknown.
    pub after: Option<MicroUsd>,
    /// Pods that would be unschedulable.
    pub homeless: usize,
}

/// The snapshot with an edited NodePool, and the nodes that the edit concerns.
///
/// # Cost
/// One pass over the nodes, some microseconds for each node of the NodePool.
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

/// The nodes that an edit of a node class concerns: when its hash changes, all that were launched from its present state,
/// according to the hash annotations of class and NodeClaims (`<group>/<kind>-hash`, with `-version`).
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
        .and_then(|class| class.metadata.annotations.as_ref());
    let of_class = |key: &str| annotations?.get(key).map(String::as_str);
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

/// Replaces the drifted nodes in the edited snapshot. `None` when `stop` interrupts it.
///
/// # Cost
/// One solve over the pods of the drifted nodes and the pending pods.
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
        // Devices are unknown while device claims are ignored.
        ignore_devices: view.devices.classes.is_empty(),
        ..SolveOptions::default()
    };
    let (mut plan, report) = solve(now, view, &options, stop);
    if report.stopped {
        return None;
    }
    // NodeClaims for pods that are pending anyway are not due to the edit.
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

/// The NodeClaim of a launched node that is not being deleted.
fn standing(node: &StateNode) -> Option<&NodeClaim> {
    node.claim
        .as_deref()
        .filter(|claim| !node.deleting && claim.is_true("Launched"))
}

fn is_drifted(claim: &NodeClaim) -> bool {
    claim.is_true("Drifted")
}
