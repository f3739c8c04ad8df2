//! One node as the page and `explain` show it.

use mortise_apis::labels;
use mortise_apis::resources::Resources;
use mortise_state::snapshot::{Snapshot, StateNode};
use serde_json::{Value, json};

use super::quantities;

/// Phase of a node, in one word.
pub(super) fn phase(snapshot: &Snapshot, state_node: &StateNode) -> &'static str {
    let fenced = state_node
        .claim_name()
        .is_some_and(|claim| snapshot.ledger.fence(&claim).is_some());
    let launched = state_node
        .claim
        .as_ref()
        .is_none_or(|claim| claim.provider_id().is_some());
    if state_node.deleting {
        "draining"
    } else if !launched {
        "launching"
    } else if state_node.node.is_none() {
        "booting"
    } else if !state_node.registered {
        "registering"
    } else if !state_node.initialized {
        "initializing"
    } else if fenced {
        "fenced"
    } else if state_node.is_ready() {
        "ready"
    } else {
        "not_ready"
    }
}

/// Sum of the nominations on a node, and their number.
pub(super) fn nominated(snapshot: &Snapshot, state_node: &StateNode) -> (Resources, usize) {
    let (node, claim) = state_node.names();
    let held = snapshot.ledger.nominations_of_node(node, claim);
    held.fold((Resources::zero(), 0), |(sum, count), each| {
        (sum.add(&each.requests), count + 1)
    })
}

/// A node for the page.
pub(super) fn json(snapshot: &Snapshot, state_node: &StateNode) -> Value {
    let (nominated, nominations) = nominated(snapshot, state_node);
    let fence = state_node.claim_name().and_then(|claim| {
        snapshot
            .ledger
            .fence(&claim)
            .map(|fence| fence.reason.label())
    });
    let daemons = state_node.pods.iter().filter(|pod| pod.is_daemon()).count();
    json!({
        "key": &*state_node.key,
        "name": state_node.name(),
        "node": state_node.node_name(),
        "claim": state_node.claim_name(),
        "provider_id": state_node.provider_id(),
        "pool": state_node.pool(),
        "instance_type": state_node.instance_type(),
        "zone": state_node.zone(),
        "capacity_type": state_node.label(labels::CAPACITY_TYPE),
        "arch": state_node.label(labels::ARCH),
        "phase": phase(snapshot, state_node),
        "fence": fence,
        "do_not_disrupt": state_node.do_not_disrupt(),
        "created": state_node.created(),
        "price": state_node.price.map(mortise_apis::values::money::MicroUsd::dollars),
        "pods": state_node.pods.len(),
        "daemon_pods": daemons,
        "nominations": nominations,
        "allocatable": quantities::json(&state_node.allocatable),
        "used": quantities::json(&state_node.used),
        "nominated": quantities::json(&nominated),
    })
}
