//! The launch of an instance: request, result, and offerings that are unavailable.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::Serialize;

use crate::capacity_type::CapacityType;
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::names::ProviderId;
use mortise_apis::node_class::NodeClassObject;

/// What is asked of [`crate::CloudProvider::launch`].
#[derive(Clone, Debug)]
pub struct LaunchRequest {
    /// The claim, as stored: its requirements, requests, taints and UID. The idempotency token derives from the UID.
    pub claim: Arc<NodeClaim>,
    /// The claim's node class, when it exists.
    pub node_class: Option<NodeClassObject>,
}

/// A machine that a launch made, or that was already there for the same claim.
#[derive(Clone, Debug, PartialEq)]
pub struct LaunchedInstance {
    /// Its id.
    pub provider_id: ProviderId,
    /// Image it runs, when images have ids.
    pub image_id: Option<String>,
    /// Labels that the node will have: instance type, zone, capacity type and the provider's own.
    pub labels: BTreeMap<String, String>,
    /// Annotations for the claim, such as the node class hash.
    pub annotations: BTreeMap<String, String>,
    /// `status.capacity` of the claim.
    pub capacity: BTreeMap<String, Quantity>,
    /// `status.allocatable` of the claim.
    pub allocatable: BTreeMap<String, Quantity>,
}

/// A (type, zone, capacity type) that the cloud could not give just now.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct UnavailableOffering {
    /// Instance type name.
    pub instance_type: Arc<str>,
    /// Zone name.
    pub zone: Arc<str>,
    /// Capacity type.
    pub capacity_type: CapacityType,
}
