//! CapacityBuffer: room that is kept free in advance.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema::conditions::Condition;
use crate::schema::fields;
use crate::schema::groups::{AUTOSCALING_GROUP, V1BETA1};
use crate::schema::object::{is_default, object};

object! {
    /// Keeps room for a number of pods of one shape, so that real pods start without waiting for a node.
    pub struct CapacityBuffer(
        AUTOSCALING_GROUP, V1BETA1, "CapacityBuffer", "capacitybuffers", NamespaceResourceScope
    ) {
        /// What is wanted.
        pub spec as "spec": CapacityBufferSpec,
        /// What is.
        pub status as "status": CapacityBufferStatus,
    }
}

/// The shape of the pods that room is kept for, and their number.
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
    /// How the room is kept. The default launches nodes for it ahead of time.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-default" = "buffer.x-k8s.io/active-capacity"))]
    pub provisioning_strategy: Option<String>,
    /// A PodTemplate of the same namespace that gives the shape of one pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_template_ref: Option<LocalObjectRef>,
    /// A workload of the same namespace whose pods give the shape, instead of podTemplateRef.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scalable_ref: Option<ScalableRef>,
    /// The number of pods to keep room for. With percentage, the smaller of the two numbers counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minimum" = 0))]
    pub replicas: Option<i32>,
    /// The number of pods to keep room for, in percent of the replicas of scalableRef, rounded up and at least one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minimum" = 0))]
    pub percentage: Option<i32>,
    /// The most resources that the buffer may ask for. Alone, it is filled with as many pods as fit.
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

/// What the buffer resolved to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CapacityBufferStatus {
    /// How the buffer is doing.
    #[serde(skip_serializing_if = "is_default")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// The PodTemplate that gave the shape.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_template_ref: Option<LocalObjectRef>,
    /// The number of pods that room is kept for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// The generation of the PodTemplate that was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_template_generation: Option<i64>,
    /// The strategy that is in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provisioning_strategy: Option<String>,
}
