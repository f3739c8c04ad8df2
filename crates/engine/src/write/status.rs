//! Edits of the status subresource, by kind of object.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use mortise_apis::Condition;
use mortise_apis::karpenter::capacitybuffer::CapacityBufferStatus;
use mortise_apis::names::ProviderId;
use mortise_apis::node_pool_policy::NodePoolPolicyStatus;
use mortise_cloudprovider::LaunchedInstance;
use serde_json::Value;

/// What changes in the status. Conditions are replaced as a whole list.
#[derive(Clone, Debug, PartialEq)]
pub enum StatusEdit {
    /// Of a NodeClaim.
    NodeClaim(NodeClaimStatusEdit),
    /// Of a NodePool.
    NodePool(NodePoolStatusEdit),
    /// Of a node class: the merge patch that its provider computed, opaque here.
    NodeClass(Value),
    /// Of a NodeOverlay: its conditions.
    NodeOverlay(Vec<Condition>),
    /// Of a NodePoolPolicy: all of it.
    NodePoolPolicy(NodePoolPolicyStatus),
    /// Of a CapacityBuffer: all of it.
    CapacityBuffer(CapacityBufferStatus),
    /// Of a ProvisioningRequest: its conditions.
    ProvisioningRequest(Vec<Condition>),
}

/// What changes in the status of a NodeClaim; `None` stays as it is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeClaimStatusEdit {
    /// The instance of the NodeClaim.
    pub instance: Option<InstanceStatus>,
    /// Name of its Node.
    pub node_name: Option<String>,
    /// When a pod was last bound to its Node or left it.
    pub last_pod_event: Option<Timestamp>,
    /// All its conditions.
    pub conditions: Option<Vec<Condition>>,
}

/// What the status of a NodeClaim contains of its instance.
#[derive(Clone, Debug, PartialEq)]
pub struct InstanceStatus {
    /// Its ID.
    pub provider_id: ProviderId,
    /// Its image, if images have IDs.
    pub image_id: Option<String>,
    /// Expected resources of the Node; not written if empty.
    pub capacity: BTreeMap<String, Quantity>,
    /// Expected resources of the Node that pods can use; not written if empty.
    pub allocatable: BTreeMap<String, Quantity>,
}

impl From<&LaunchedInstance> for InstanceStatus {
    fn from(launched: &LaunchedInstance) -> Self {
        Self {
            provider_id: launched.provider_id.clone(),
            image_id: launched.image_id.clone(),
            capacity: launched.capacity.clone(),
            allocatable: launched.allocatable.clone(),
        }
    }
}

/// What changes in the status of a NodePool; `None` stays as it is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodePoolStatusEdit {
    /// Total of its nodes.
    pub usage: Option<NodePoolUsage>,
    /// Generation of its node class that the registration results are from.
    pub node_class_generation: Option<i64>,
    /// All its conditions.
    pub conditions: Option<Vec<Condition>>,
}

/// The resources and the number of the nodes of a NodePool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodePoolUsage {
    /// Amounts by resource; `None` removes a resource that no node has any more.
    pub resources: BTreeMap<String, Option<String>>,
    /// Number of nodes.
    pub nodes: i64,
}
