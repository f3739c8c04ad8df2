//! The launch of an instance: request, result, and offerings that are unavailable.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::Serialize;

use crate::capacity_type::CapacityType;
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::names::ProviderId;
use mortise_apis::node_class::NodeClassObject;

/// Input of [`crate::CloudProvider::launch`].
#[derive(Clone, Debug)]
pub struct LaunchRequest {
    /// The NodeClaim, as stored: its requirements, requests, taints and UID. The idempotency token derives from the UID.
    pub claim: Arc<NodeClaim>,
    /// The node class of the NodeClaim, if it exists.
    pub node_class: Option<NodeClassObject>,
}

/// An instance that a launch created, or that existed already for the same NodeClaim.
#[derive(Clone, Debug, PartialEq)]
pub struct LaunchedInstance {
    /// Its id.
    pub provider_id: ProviderId,
    /// Image of the instance, if images have IDs.
    pub image_id: Option<String>,
    /// Labels that the node will have: instance type, zone, capacity type and labels of the provider.
    pub labels: BTreeMap<String, String>,
    /// Annotations for the NodeClaim, such as the hash of the node class.
    pub annotations: BTreeMap<String, String>,
    /// `status.capacity` of the NodeClaim.
    pub capacity: BTreeMap<String, Quantity>,
    /// `status.allocatable` of the NodeClaim.
    pub allocatable: BTreeMap<String, Quantity>,
}

/// A (type, zone, capacity type) without capacity.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct UnavailableOffering {
    /// Instance type name.
    pub instance_type: Arc<str>,
    /// Zone name.
    pub zone: Arc<str>,
    /// Capacity type.
    pub capacity_type: CapacityType,
}
