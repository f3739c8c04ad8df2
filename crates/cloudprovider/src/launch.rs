//! The launch of an instance: request, result, and offerings that are unavailable.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::{Deserialize, Serialize};

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
    /// The launches that this one is part of; `None`: it is made alone.
    pub batch: Option<Arc<LaunchBatch>>,
}

/// Launches that are made by one call, if the cloud can do that. Each of them is asked for by itself, with the same batch.
///
/// Invariant: the NodeClaims have the token in an annotation before the first of them is asked for, so that a process that was
/// killed in between is followed by one that asks with the same token.
#[derive(Clone, Debug)]
pub struct LaunchBatch {
    /// Names the batch: the idempotency token of the call, and a tag of the instances, which belong to no NodeClaim yet.
    pub token: Arc<str>,
    /// NodeClaims of the batch without an instance, this one included, in order of UID. They differ in nothing that a launch depends on.
    pub claims: Vec<Arc<NodeClaim>>,
    /// Instances of the batch that other NodeClaims have already.
    pub taken: Vec<ProviderId>,
}

/// How long launches wait for others that can be made by the same call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchWindow {
    /// A single one waits this long, in milliseconds; of a series, this long and half of what it has lasted after its last one.
    pub quiet_ms: i64,
    /// Wait of the first one at most, in milliseconds.
    pub longest_ms: i64,
    /// Launches that one call can make.
    pub most: usize,
}

/// An instance that a launch created, or that existed already for the same NodeClaim.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct UnavailableOffering {
    /// Instance type name.
    pub instance_type: Arc<str>,
    /// Zone name.
    pub zone: Arc<str>,
    /// Capacity type.
    pub capacity_type: CapacityType,
}
