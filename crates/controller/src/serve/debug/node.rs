//! One machine as the page and `explain` show it.

use mortise_apis::labels;
use mortise_apis::resources::Resources;
use mortise_state::snapshot::{Snapshot, StateNode};
use serde_json::{Value, json};

use super::quantities;

/// Where a machine is in its life, in one word.
pub(super) fn phase(snapshot: &Snapshot, machine: &StateNode) -> &'static str {
    let fenced = machine
        .claim_name()
        .is_some_and(|claim| snapshot.ledger.fence(&claim).is_some());
    let launched = machine
        .claim
        .as_ref()
        .is_none_or(|claim| claim.provider_id().is_some());
    if machine.deleting {
        "draining"
    } else if !launched {
        "launching"
    } else if machine.node.is_none() {
        "booting"
    } else if !machine.registered {
        "registering"
    } else if !machine.initialized {
        "initializing"
    } else if fenced {
        "fenced"
    } else if machine.is_ready() {
        "ready"
    } else {
        "not_ready"
    }
}

/// Sum of the nominations on a node, and their number.
pub(super) fn nominated(snapshot: &Snapshot, machine: &StateNode) -> (Resources, usize) {
    let (node, claim) = machine.names();
    let held = snapshot.ledger.nominations_of_node(node, claim);
    held.fold((Resources::zero(), 0), |(sum, count), each| {
        (sum.add(&each.requests), count + 1)
    })
}

/// A machine for the page.
pub(super) fn json(snapshot: &Snapshot, machine: &StateNode) -> Value {
    let (nominated, nominations) = nominated(snapshot, machine);
    let fence = machine.claim_name().and_then(|claim| {
        snapshot
            .ledger
            .fence(&claim)
            .map(|fence| fence.reason.label())
    });
    let daemons = machine.pods.iter().filter(|pod| pod.is_daemon()).count();
    json!({
        "key": &*machine.key,
        "name": machine.name(),
        "node": machine.node_name(),
        "claim": machine.claim_name(),
        "provider_id": machine.provider_id(),
        "pool": machine.pool(),
        "instance_type": machine.instance_type(),
        "zone": machine.zone(),
        "capacity_type": machine.label(labels::CAPACITY_TYPE),
        "arch": machine.label(labels::ARCH),
        "phase": phase(snapshot, machine),
        "fence": fence,
        "do_not_disrupt": machine.do_not_disrupt(),
        "created": machine.created(),
        "price": machine.price.map(mortise_apis::values::money::MicroUsd::dollars),
        "pods": machine.pods.len(),
        "daemon_pods": daemons,
        "nominations": nominations,
        "allocatable": quantities::json(&machine.allocatable),
        "used": quantities::json(&machine.used),
        "nominated": quantities::json(&nominated),
    })
}
