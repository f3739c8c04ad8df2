//! Merges a Node with its NodeClaim and its pods into one [`StateNode`].

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::ledger::FenceReason;
use crate::snapshot::{NodeDisruptionState, NodeKey, Pod, Snapshot, StateNode};
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::resources::{Resources, resources_of};
use mortise_apis::values::money::MicroUsd;
use mortise_apis::{k8s, labels};
use mortise_cloudprovider::CapacityType;

/// Merges the objects of a node; prices come from the catalogs of `state`, and who pays them from its commitments.
pub(super) fn merge(
    state: &Snapshot,
    key: NodeKey,
    node: Option<Arc<k8s::Node>>,
    claim: Option<Arc<NodeClaim>>,
    pods: Vec<Arc<Pod>>,
    respect_cluster_autoscaler: bool,
) -> StateNode {
    let is_set = |label: &str| {
        let node = node.as_ref();
        node.is_some_and(|node| node.label(label) == Some("true"))
    };
    let registered = claim.is_none() || is_set(labels::REGISTERED);
    let initialized = claim.is_none() || (registered && is_set(labels::INITIALIZED));
    let status = claim.as_ref().map(|claim| &claim.status);
    let node_status = node.as_ref().map(|node| &node.status);
    let capacity = filled(
        node_status.map(|s| &s.capacity),
        status.and_then(|s| s.capacity.as_ref()),
        initialized,
    );
    let allocatable = filled(
        node_status.map(|s| &s.allocatable),
        status.and_then(|s| s.allocatable.as_ref()),
        initialized,
    );
    let mut used = Resources::default();
    let mut daemon_used = Resources::default();
    for pod in &pods {
        used.add_assign(&pod.class.requests);
        if pod.is_daemon() {
            daemon_used.add_assign(&pod.class.requests);
        }
    }
    let annotations = node
        .as_ref()
        .and_then(|node| node.metadata.annotations.as_ref());
    let disabled = annotations.and_then(|all| all.get(labels::SCALE_DOWN_DISABLED));
    let is_disabled = disabled.is_some_and(|value| value == "true");
    let has_anti_affinity_pods = pods
        .iter()
        .any(|pod| !pod.class.anti_affinity.required.is_empty());
    let mut merged = StateNode {
        key,
        labels: Arc::new(merged_labels(node.as_deref(), claim.as_deref(), registered)),
        taints: StateNode::scheduling_taints(
            node.as_deref(),
            claim.as_deref(),
            registered,
            initialized,
        ),
        deleting: is_deleting(node.as_deref(), claim.as_deref()),
        node,
        claim,
        capacity,
        allocatable,
        pods,
        used,
        daemon_used,
        has_anti_affinity_pods,
        registered,
        initialized,
        duplicate_nodes: Vec::new(),
        is_scale_down_disabled: respect_cluster_autoscaler && is_disabled,
        price: None,
        paid_by: Arc::default(),
        disruption_state: NodeDisruptionState::default(),
    };
    merged.price = price(state, &merged);
    merged.paid_by = state.paid.paying_for(&merged);
    merged.disruption_state = NodeDisruptionState::new(&merged);
    merged
}

/// Labels of the NodeClaim until the node is registered, of the Node afterwards.
fn merged_labels(
    node: Option<&k8s::Node>,
    claim: Option<&NodeClaim>,
    registered: bool,
) -> BTreeMap<String, String> {
    let of_claim = || claim.map(NodeClaim::node_labels);
    let of_node = || node.map(|node| node.metadata.labels.clone().unwrap_or_default());
    if registered {
        of_node().or_else(of_claim)
    } else {
        of_claim().or_else(of_node)
    }
    .unwrap_or_default()
}

/// Whether the Node or the NodeClaim is being deleted, the instance is terminating, or the node is fenced because the cloud takes
/// the instance: then its pods are planned elsewhere before they are evicted.
fn is_deleting(node: Option<&k8s::Node>, claim: Option<&NodeClaim>) -> bool {
    claim.is_some_and(|claim| {
        claim.metadata.deletion_timestamp.is_some()
            || claim.is_instance_terminating()
            || (claim.annotation(labels::FENCE) == Some(FenceReason::Interruption.label())
                && claim.annotation(labels::INTERRUPTION).is_some())
    }) || node.is_some_and(|node| node.metadata.deletion_timestamp.is_some())
}

fn price(state: &Snapshot, node: &StateNode) -> Option<MicroUsd> {
    let class = node.claim.as_ref()?.node_class_key();
    let pool = node.label(labels::NODEPOOL).unwrap_or_default();
    let overlaid = state.overlaid_catalogs.get(pool);
    let catalog = overlaid.or_else(|| state.catalogs.get(&class))?;
    let capacity_type = CapacityType::parse(node.label(labels::CAPACITY_TYPE)?)?;
    catalog.price(node.instance_type()?, node.zone()?, capacity_type)
}

/// Resources of the Node. Before it is initialized, resources that it lacks are filled from the NodeClaim.
fn filled(
    of_node: Option<&BTreeMap<String, Quantity>>,
    of_claim: Option<&BTreeMap<String, Quantity>>,
    initialized: bool,
) -> Resources {
    let mut filled = of_node.map(resources_of).unwrap_or_default();
    let Some(of_claim) = of_claim.map(resources_of).filter(|_| !initialized) else {
        return filled;
    };
    for (name, amount) in of_claim.iter() {
        if filled.get(name) == 0 {
            filled.set(name, amount);
        }
    }
    filled
}
