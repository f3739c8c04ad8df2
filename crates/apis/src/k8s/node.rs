//! Node, as far as it is read.

use k8s_openapi::api::core::v1::Taint;
use serde::{Deserialize, Serialize};

use crate::k8s::{ObjectCondition, ResourceList, find_condition};
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

impl Node {
    /// The cloud's ID of the instance.
    #[must_use]
    pub fn provider_id(&self) -> Option<&str> {
        self.spec.provider_id.as_deref().filter(|id| !id.is_empty())
    }

    /// A condition by type.
    #[must_use]
    pub fn condition(&self, type_: &str) -> Option<&ObjectCondition> {
        find_condition(&self.status.conditions, type_)
    }

    /// It carries a taint with this key and effect.
    #[must_use]
    pub fn has_taint(&self, key: &str, effect: &str) -> bool {
        self.spec
            .taints
            .iter()
            .any(|taint| taint.key == key && taint.effect == effect)
    }

    /// A label's value.
    #[must_use]
    pub fn label(&self, key: &str) -> Option<&str> {
        self.metadata.labels.as_ref()?.get(key).map(String::as_str)
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
    /// `Pending`, `Running` or `Terminated`; rarely set.
    #[serde(skip_serializing_if = "is_default")]
    pub phase: String,
}
