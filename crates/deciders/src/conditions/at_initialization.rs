//! Conditions that hold from the moment at which a node is initialized: one write tells both.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use mortise_apis::k8s::Node;
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::karpenter::nodepool::NodePool;
use mortise_apis::schema::conditions::Conditions;
use mortise_planning::consistency;

/// Says that a node has what its claim expected, and that it may be consolidated where nodes do not rest before. What
/// is not so is left to this decider, which tells of it.
pub(crate) fn at_initialization(
    conditions: &mut Conditions<'_>,
    claim: &NodeClaim,
    expected: Option<&BTreeMap<String, Quantity>>,
    node: &Node,
    pool: Option<&NodePool>,
) {
    if consistency::faults(claim, expected, node).is_empty() {
        conditions.set_true("ConsistentStateFound");
    }
    let rests = pool
        .filter(|pool| pool.metadata.deletion_timestamp.is_none() && !pool.is_static())
        .and_then(NodePool::consolidate_after);
    if rests.is_some_and(|span| span.is_zero()) {
        conditions.set_true("Consolidatable");
    }
}
