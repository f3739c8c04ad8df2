//! Kinds around pods, as far as they are read.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde::{Deserialize, Serialize};

use crate::k8s::ObjectCondition;
use crate::k8s::pod::PodSpec;
use crate::schema::api_kind::ApiObject as _;
use crate::schema::object::{is_default, null_as_default, object};

object! {
    /// How many pods of a group may be evicted.
    pub struct PodDisruptionBudget(
        "policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", NamespaceResourceScope
    ) {
        /// What is wanted.
        pub spec as "spec": PodDisruptionBudgetSpec,
        /// What is.
        pub status as "status": PodDisruptionBudgetStatus,
    }
}

/// The group of pods, and what must stay.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodDisruptionBudgetSpec {
    /// The pods: an empty selector means all of the namespace, an absent one none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
    /// How many may be missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<IntOrString>,
    /// How many must stay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_available: Option<IntOrString>,
    /// `IfHealthyBudget` or `AlwaysAllow`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unhealthy_pod_eviction_policy: Option<String>,
}

/// How many evictions are allowed now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodDisruptionBudgetStatus {
    /// Evictions allowed now.
    pub disruptions_allowed: i32,
    /// Healthy pods now.
    pub current_healthy: i32,
    /// Healthy pods there must be.
    pub desired_healthy: i32,
    /// Pods of the group.
    pub expected_pods: i32,
    /// The generation that these numbers are about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Conditions.
    #[serde(skip_serializing_if = "is_default")]
    pub conditions: Vec<ObjectCondition>,
}

object! {
    /// A pod for every matching node.
    pub struct DaemonSet("apps", "v1", "DaemonSet", "daemonsets", NamespaceResourceScope) {
        /// What is wanted.
        pub spec as "spec": DaemonSetSpec,
    }
}

/// The pods of a DaemonSet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DaemonSetSpec {
    /// What its pods look like.
    pub template: PodTemplate,
    /// How its pods are recognised.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
}

/// What pods of a workload look like.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PodTemplate {
    /// Labels and annotations of the pods.
    #[serde(
        skip_serializing_if = "is_default",
        deserialize_with = "null_as_default"
    )]
    pub metadata: ObjectMeta,
    /// The pods themselves.
    pub spec: PodSpec,
}

object! {
    /// A namespace; pods select it by its labels.
    pub struct Namespace("", "v1", "Namespace", "namespaces", ClusterResourceScope) {
        /// What is.
        pub status as "status": NamespaceStatus,
    }
}

/// Whether the namespace is going away.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NamespaceStatus {
    /// `Active` or `Terminating`.
    #[serde(skip_serializing_if = "is_default")]
    pub phase: String,
}

/// Kinds that select pods, from which default spread constraints take their selector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SelectingKind {
    /// `v1` Service.
    Service,
    /// `v1` ReplicationController.
    ReplicationController,
    /// `apps/v1` ReplicaSet.
    ReplicaSet,
    /// `apps/v1` StatefulSet.
    StatefulSet,
}

impl SelectingKind {
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self::Service,
        Self::ReplicationController,
        Self::ReplicaSet,
        Self::StatefulSet,
    ];

    /// Kind, as owner references spell it.
    #[must_use]
    pub const fn kind(self) -> &'static str {
        match self {
            Self::Service => Service::KIND.kind,
            Self::ReplicationController => ReplicationController::KIND.kind,
            Self::ReplicaSet => ReplicaSet::KIND.kind,
            Self::StatefulSet => StatefulSet::KIND.kind,
        }
    }
}

object! {
    /// A Service: which pods it selects, and nothing else.
    pub struct Service("", "v1", "Service", "services", NamespaceResourceScope) {
        /// What is wanted.
        pub spec as "spec": SelectingSpec,
    }
}

object! {
    /// A ReplicationController: which pods it selects, and nothing else.
    pub struct ReplicationController(
        "", "v1", "ReplicationController", "replicationcontrollers", NamespaceResourceScope
    ) {
        /// What is wanted.
        pub spec as "spec": SelectingSpec,
    }
}

object! {
    /// A ReplicaSet: which pods it selects, how many there are, and what they look like.
    pub struct ReplicaSet("apps", "v1", "ReplicaSet", "replicasets", NamespaceResourceScope) {
        /// What is wanted.
        pub spec as "spec": ScalableSpec,
    }
}

object! {
    /// A StatefulSet: which pods it selects, how many there are, and what they look like.
    pub struct StatefulSet("apps", "v1", "StatefulSet", "statefulsets", NamespaceResourceScope) {
        /// What is wanted.
        pub spec as "spec": ScalableSpec,
    }
}

object! {
    /// A Deployment: how many pods it has, what they look like, and how they are replaced.
    pub struct Deployment("apps", "v1", "Deployment", "deployments", NamespaceResourceScope) {
        /// What is wanted.
        pub spec as "spec": DeploymentSpec,
        /// What is.
        pub status as "status": DeploymentStatus,
    }
}

/// The pods of a Deployment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeploymentSpec {
    /// How its pods are recognised.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
    /// How many pods there should be; the API server sets 1 if it is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// What its pods look like.
    #[serde(skip_serializing_if = "is_default")]
    pub template: PodTemplate,
    /// How pods are replaced when the template changes.
    #[serde(skip_serializing_if = "is_default")]
    pub strategy: DeploymentStrategy,
    /// A change of the template replaces no pods.
    #[serde(skip_serializing_if = "is_default")]
    pub paused: bool,
}

/// How pods are replaced.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeploymentStrategy {
    /// `Recreate` or `RollingUpdate`, which the API server sets if it is missing.
    #[serde(rename = "type", skip_serializing_if = "is_default")]
    pub type_: String,
    /// For `RollingUpdate`.
    #[serde(skip_serializing_if = "is_default")]
    pub rolling_update: RollingUpdateStrategy,
}

/// How many pods may be too many or too few meanwhile.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RollingUpdateStrategy {
    /// Too many; the API server sets 25 % if it is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_surge: Option<IntOrString>,
    /// Too few; the API server sets 25 % if it is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<IntOrString>,
}

/// How far the Deployment controller is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeploymentStatus {
    /// The generation that these numbers are about.
    pub observed_generation: i64,
    /// Pods.
    pub replicas: i32,
    /// Pods of the current template.
    pub updated_replicas: i32,
}

object! {
    /// A PodTemplate object: what pods look like, without a workload.
    pub struct StoredPodTemplate("", "v1", "PodTemplate", "podtemplates", NamespaceResourceScope) {
        /// The template.
        pub template as "template": PodTemplate,
    }
}

/// The pods of a workload with replicas.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ScalableSpec {
    /// How its pods are recognised.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<PodSelector>,
    /// How many pods there should be; the API server sets 1 if it is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// What its pods look like.
    #[serde(skip_serializing_if = "is_default")]
    pub template: PodTemplate,
}

/// The selector of a Service or controller.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SelectingSpec {
    /// Labels, or a label selector, as the kind has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<PodSelector>,
}

/// The two ways in which kinds select pods.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum PodSelector {
    /// Labels that pods must have.
    Labels(std::collections::BTreeMap<String, String>),
    /// A label selector.
    Expressions(Box<LabelSelector>),
}
