//! NodeClaim: one machine that was asked for, from the request to its end.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Taint;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema::conditions::Condition;
use crate::schema::duration_text::DurationText;
use crate::schema::fields;
use crate::schema::groups::{GROUP, NodeClassRef, V1};
use crate::schema::object::{is_default, null_as_default, object};
use crate::schema::requirement::RequirementSpec;

object! {
    /// Request for one node, and its observed state.
    pub struct NodeClaim(GROUP, V1, "NodeClaim", "nodeclaims", ClusterResourceScope) {
        /// What is wanted. It never changes.
        pub spec as "spec": NodeClaimSpec,
        /// What is.
        pub status as "status": NodeClaimStatus,
    }
}

/// Desired state of the node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend(
    "required" = ["nodeClassRef", "requirements"],
    "x-kubernetes-validations" = [fields::rule("self == oldSelf", "spec is immutable")]
))]
pub struct NodeClaimSpec {
    /// Taints of the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::taints")]
    pub taints: Option<Vec<Taint>>,
    /// Taints that the node registers with and that another component removes. Pods do not need to tolerate them; the node
    /// is initialized when they are removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::taints")]
    pub startup_taints: Option<Vec<Taint>>,
    /// Requirements on the labels of the node.
    #[serde(deserialize_with = "null_as_default")]
    #[schemars(extend(
        "maxItems" = 100,
        "x-kubernetes-list-type" = "atomic",
        "x-kubernetes-validations" = fields::requirement_rules()
    ))]
    pub requirements: Vec<RequirementSpec>,
    /// Resources that the node must provide.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<ClaimResources>,
    /// Node class with the settings of the cloud provider.
    #[serde(deserialize_with = "null_as_default")]
    pub node_class_ref: NodeClassRef,
    /// Maximum drain duration, counted from the deletion timestamp. Pods are deleted early enough to get their own grace
    /// period, regardless of PodDisruptionBudgets and do-not-disrupt annotations. Without it the drain has no time limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = fields::DURATION))]
    pub termination_grace_period: Option<DurationText>,
    /// Age at which the node expires, or Never.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-default" = "720h", "pattern" = fields::DURATION_OR_NEVER))]
    pub expire_after: Option<DurationText>,
}

impl NodeClaimSpec {
    /// The taints, empty when the list is absent.
    #[must_use]
    pub fn taints(&self) -> &[Taint] {
        self.taints.as_deref().unwrap_or_default()
    }

    /// The startup taints, empty when the list is absent.
    #[must_use]
    pub fn startup_taints(&self) -> &[Taint] {
        self.startup_taints.as_deref().unwrap_or_default()
    }

    /// The requested resources, if any are given.
    #[must_use]
    pub fn requests(&self) -> Option<&BTreeMap<String, Quantity>> {
        self.resources.as_ref()?.requests.as_ref()
    }
}

/// What a node must have room for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimResources {
    /// Minimum allocatable resources of the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::resource_list")]
    pub requests: Option<BTreeMap<String, Quantity>>,
}

/// Observed state of the NodeClaim.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeClaimStatus {
    /// Name of the Node object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// Provider ID of the instance.
    #[serde(rename = "providerID", skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
    /// Image of the instance.
    #[serde(rename = "imageID", skip_serializing_if = "Option::is_none")]
    pub image_id: Option<String>,
    /// The resources of the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::resource_list")]
    pub capacity: Option<BTreeMap<String, Quantity>>,
    /// Resources that are allocatable to pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::resource_list")]
    pub allocatable: Option<BTreeMap<String, Quantity>>,
    /// Conditions of the NodeClaim.
    #[serde(skip_serializing_if = "is_default")]
    #[schemars(schema_with = "crate::schema::conditions::relaxed_list")]
    pub conditions: Vec<Condition>,
    /// Time when a pod was last bound to the node or left it. Completed and terminating pods have left.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::date_time")]
    pub last_pod_event_time: Option<Time>,
}
