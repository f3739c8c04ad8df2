//! Groups of pods that are scheduled together or not at all, of Kubernetes, coscheduling and Volcano, as far as they are read.

use serde::{Deserialize, Serialize};

use crate::schema::object::{is_default, object};

object! {
    /// A group of pods of Kubernetes. Pods name it in `spec.schedulingGroup`.
    pub struct PodGroup(
        "scheduling.k8s.io", "v1alpha2", "PodGroup", "podgroups", NamespaceResourceScope
    ) {
        /// What is wanted.
        pub spec as "spec": PodGroupSpec,
    }
}

object! {
    /// A group of pods of the scheduler plugin coscheduling. Pods name it in a label.
    pub struct CoschedulingPodGroup(
        "scheduling.x-k8s.io", "v1alpha1", "PodGroup", "podgroups", NamespaceResourceScope
    ) {
        /// What is wanted.
        pub spec as "spec": MinMembers,
    }
}

object! {
    /// A group of pods of Volcano. Pods name it in an annotation.
    pub struct VolcanoPodGroup(
        "scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups", NamespaceResourceScope
    ) {
        /// What is wanted.
        pub spec as "spec": MinMembers,
        /// What is.
        pub status as "status": PodGroupPhase,
    }
}

/// How the pods of a group are scheduled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodGroupSpec {
    /// One by one, or together.
    pub scheduling_policy: SchedulingPolicy,
    /// Where.
    #[serde(skip_serializing_if = "is_default")]
    pub scheduling_constraints: SchedulingConstraints,
}

/// Where the pods of a group run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SchedulingConstraints {
    /// All of them on nodes with one value of each of these labels.
    #[serde(skip_serializing_if = "is_default")]
    pub topology: Vec<TopologyConstraint>,
}

/// A label of which all nodes of a group have the same value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TopologyConstraint {
    /// The label.
    pub key: String,
}

/// One by one without `gang`, together with it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SchedulingPolicy {
    /// Together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gang: Option<GangPolicy>,
}

/// Pods that are scheduled together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GangPolicy {
    /// No pod is scheduled unless this number is.
    pub min_count: i64,
}

/// The size of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MinMembers {
    /// No pod is scheduled unless this number is.
    pub min_member: i64,
}

/// How far a group is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PodGroupPhase {
    /// A word such as `Pending` or `Running`; empty when not given.
    #[serde(skip_serializing_if = "is_default")]
    pub phase: String,
}
