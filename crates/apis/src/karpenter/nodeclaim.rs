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
    /// A request for one node, and what became of it.
    pub struct NodeClaim(GROUP, V1, "NodeClaim", "nodeclaims", ClusterResourceScope) {
        /// What is wanted. It never changes.
        pub spec as "spec": NodeClaimSpec,
        /// What is.
        pub status as "status": NodeClaimStatus,
    }
}

/// The node that is wanted.
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
    /// Taints that the new node starts with and that something else removes soon. Pods need not tolerate them; the node
    /// counts as initialized once they are gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::taints")]
    pub startup_taints: Option<Vec<Taint>>,
    /// What must hold for the labels of the node.
    #[serde(deserialize_with = "null_as_default")]
    #[schemars(extend(
        "maxItems" = 100,
        "x-kubernetes-list-type" = "atomic",
        "x-kubernetes-validations" = fields::requirement_rules()
    ))]
    pub requirements: Vec<RequirementSpec>,
    /// What the node must have room for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<ClaimResources>,
    /// The object with the provider's settings.
    #[serde(deserialize_with = "null_as_default")]
    pub node_class_ref: NodeClassRef,
    /// The longest time the node may take to drain, counted from its deletion. Pods are deleted early enough to get their
    /// own grace period, without regard to budgets of pods and protecting annotations. Without it a drain may wait for
    /// ever.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = fields::DURATION))]
    pub termination_grace_period: Option<DurationText>,
    /// The age at which the node is replaced, or Never.
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
    /// The least that the node must have to give.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::resource_list")]
    pub requests: Option<BTreeMap<String, Quantity>>,
}

/// What became of the request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeClaimStatus {
    /// Name of the Node object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// The cloud's id of the machine.
    #[serde(rename = "providerID", skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
    /// The image that the machine runs.
    #[serde(rename = "imageID", skip_serializing_if = "Option::is_none")]
    pub image_id: Option<String>,
    /// The resources of the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::resource_list")]
    pub capacity: Option<BTreeMap<String, Quantity>>,
    /// The part of the resources that pods can have.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::resource_list")]
    pub allocatable: Option<BTreeMap<String, Quantity>>,
    /// How the request is doing.
    #[serde(skip_serializing_if = "is_default")]
    #[schemars(schema_with = "crate::schema::conditions::relaxed_list")]
    pub conditions: Vec<Condition>,
    /// When a pod last came to the node or left it; a pod that ends or is being deleted has left.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::date_time")]
    pub last_pod_event_time: Option<Time>,
}
