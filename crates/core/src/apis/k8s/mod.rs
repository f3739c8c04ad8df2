//! Slim views of built-in kinds: only the fields that scheduling, disruption, draining and the extender read.
//!
//! A watch of 100,000 pods must fit in memory, so environment variables, commands, mounts and everything else that
//! decides nothing is dropped while reading. Values of environment variables and Secrets can therefore never leave
//! through a debug page either.

pub mod node;
pub mod pod;
pub mod storage;
pub mod workload;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};

use crate::apis::object::is_default;

pub use node::{Node, NodeSpec, NodeStatus};
pub use pod::{Pod, PodSpec, PodStatus};
pub use storage::{
    CsiNode, PersistentVolume, PersistentVolumeClaim, StorageClass, VolumeAttachment,
};
pub use workload::{DaemonSet, Namespace, PodDisruptionBudget};

/// Resource name to amount, as objects write it.
pub type ResourceList =
    std::collections::BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>;

/// A condition of a Pod, Node or PodDisruptionBudget, without its message.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectCondition {
    /// Type, such as `Ready`.
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Why, in one word; empty when not given.
    #[serde(skip_serializing_if = "is_default")]
    pub reason: String,
    /// When the status last changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
}

/// The condition of a type, if there is one.
#[must_use]
pub fn find_condition<'a>(
    conditions: &'a [ObjectCondition],
    type_: &str,
) -> Option<&'a ObjectCondition> {
    conditions.iter().find(|each| each.type_ == type_)
}
