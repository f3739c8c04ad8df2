//! Node, as far as it is read.

use k8s_openapi::api::core::v1::Taint;
use serde::{Deserialize, Serialize};

use crate::k8s::{ObjectCondition, ResourceList};
use crate::schema::object::{is_default, object};

object! {
    /// A node.
    pub struct Node("", "v1", "Node", "nodes", ClusterResourceScope) {
        /// What is wanted.
        pub spec as "spec": NodeSpec,
        /// What is.
        pub status as "status": NodeStatus,
    }
}

/// Identity and taints of a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSpec {
    /// Provider ID of the instance.
    #[serde(rename = "providerID", skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
    /// Taints.
    #[serde(skip_serializing_if = "is_default")]
    pub taints: Vec<Taint>,
    /// Whether it is cordoned.
    #[serde(skip_serializing_if = "is_default")]
    pub unschedulable: bool,
}

/// Resources and health of a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeStatus {
    /// All resources.
    #[serde(skip_serializing_if = "is_default")]
    pub capacity: ResourceList,
    /// The part that pods can have.
    #[serde(skip_serializing_if = "is_default")]
    pub allocatable: ResourceList,
    /// Conditions.
    #[serde(skip_serializing_if = "is_default")]
    pub conditions: Vec<ObjectCondition>,
    /// `Pending`, `ContainerStates` or `TerminationStatus`; rarely set.
    #[serde(skip_serializing_if = "is_default")]
    pub phase: String,
}
