//! CapacityBuffer: room that is kept free in advance.

mod learning;
mod replica_peaks;
mod schedule;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::names::NamespacedName;
use crate::schema::conditions::Condition;
use crate::schema::fields;
use crate::schema::groups::{AUTOSCALING_GROUP, V1BETA1};
use crate::schema::object::{is_default, object};

object! {
    /// Reserves capacity for a number of identical pods, so that pods start without waiting for a node.
    pub struct CapacityBuffer(
        AUTOSCALING_GROUP, V1BETA1, "CapacityBuffer", "capacitybuffers", NamespaceResourceScope
    ) {
        /// What is wanted.
        pub spec as "spec": CapacityBufferSpec,
        /// What is.
        pub status as "status": CapacityBufferStatus,
    }
}

pub use learning::{BufferLearning, BufferLearningError, LearningMode, buffer_learning};
pub use replica_peaks::{
    ExpectedReplicas, Hindsight, ParseReplicaPeaksError, ReplicaPeaks, next_hour,
};
pub use schedule::{BufferScheduleError, buffer_window};

/// The strategy that is served: nodes are launched in advance. It is the default.
pub const ACTIVE_CAPACITY: &str = "buffer.x-k8s.io/active-capacity";

/// Whether a provisioning strategy belongs to another controller: it is of another domain than the API's own.
#[must_use]
pub fn is_foreign_strategy(strategy: &str) -> bool {
    match (strategy.split_once('/'), ACTIVE_CAPACITY.split_once('/')) {
        (Some((theirs, _)), Some((own, _))) => theirs != own,
        _ => false,
    }
}

impl CapacityBuffer {
    /// Namespace and name.
    #[must_use]
    pub fn key(&self) -> NamespacedName {
        NamespacedName::from(&self.metadata)
    }

    /// The value of an annotation.
    #[must_use]
    pub fn annotation(&self, key: &str) -> Option<&str> {
        let all = self.metadata.annotations.as_ref()?;
        all.get(key).map(String::as_str)
    }

    /// The provisioning strategy, or the default.
    #[must_use]
    pub fn strategy(&self) -> &str {
        let strategy = self.spec.provisioning_strategy.as_deref();
        strategy
            .filter(|text| !text.is_empty())
            .unwrap_or(ACTIVE_CAPACITY)
    }

    /// Whether another controller serves it: its strategy is of another domain than the API's own.
    #[must_use]
    pub fn is_foreign(&self) -> bool {
        is_foreign_strategy(self.strategy())
    }
}

/// Template and number of the pods to reserve capacity for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = [
    fields::rule(
        "!has(self.podTemplateRef) || has(self.replicas) || has(self.limits)",
        "If podTemplateRef is set, replicas or limits must also be set",
    ),
    fields::rule(
        "!(has(self.podTemplateRef) && has(self.scalableRef))",
        "You must define either PodTemplateRef or ScalableRef, but not both",
    ),
]))]
pub struct CapacityBufferSpec {
    /// How capacity is reserved. By default nodes are launched in advance.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-default" = "buffer.x-k8s.io/active-capacity"))]
    pub provisioning_strategy: Option<String>,
    /// PodTemplate in the same namespace that specifies one pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_template_ref: Option<LocalObjectRef>,
    /// Workload in the same namespace whose pod template is used instead of podTemplateRef.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scalable_ref: Option<ScalableRef>,
    /// Number of pods to reserve capacity for. If percentage is set too, the larger number applies.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minimum" = 0))]
    pub replicas: Option<i32>,
    /// Number of pods to reserve capacity for, as a percentage of the replicas of scalableRef, rounded up, at least one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minimum" = 0))]
    pub percentage: Option<i32>,
    /// Maximum total resources of the buffer. If it is the only size, the buffer has as many pods as fit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::resource_list")]
    pub limits: Option<BTreeMap<String, Quantity>>,
}

/// An object of the same namespace, by name.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(default)]
#[schemars(extend("required" = ["name"]))]
pub struct LocalObjectRef {
    /// Name of the object.
    #[schemars(extend("minLength" = 1))]
    pub name: String,
}

/// A workload of the same namespace.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["kind", "name"]))]
pub struct ScalableRef {
    /// API group of the workload; empty for the core group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_group: Option<String>,
    /// Kind of the workload.
    #[schemars(extend("minLength" = 1))]
    pub kind: String,
    /// Name of the workload.
    #[schemars(extend("minLength" = 1))]
    pub name: String,
}

/// Observed state of the CapacityBuffer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CapacityBufferStatus {
    /// Conditions of the CapacityBuffer.
    #[serde(skip_serializing_if = "is_default")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// PodTemplate that is in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_template_ref: Option<LocalObjectRef>,
    /// Number of pods that capacity is reserved for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Observed generation of the PodTemplate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_template_generation: Option<i64>,
    /// Provisioning strategy that is in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provisioning_strategy: Option<String>,
}
