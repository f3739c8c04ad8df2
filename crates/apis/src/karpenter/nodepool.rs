//! NodePool: a template for nodes, with limits and rules on how they may be disrupted.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Taint;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema::conditions::Condition;
use crate::schema::duration_text::DurationText;
use crate::schema::fields;
use crate::schema::groups::{GROUP, NodeClassRef, V1};
use crate::schema::object::{is_default, null_as_default, object};
use crate::schema::requirement::RequirementSpec;

object! {
    /// Describes nodes that may be launched for pods that have no place, and when they may be taken away again.
    pub struct NodePool(GROUP, V1, "NodePool", "nodepools", ClusterResourceScope) {
        /// What is wanted.
        pub spec as "spec": NodePoolSpec,
        /// What is.
        pub status as "status": NodePoolStatus,
    }
}

/// What a pool may launch, how much of it, and how its nodes may be disrupted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend(
    "required" = ["template"],
    "x-kubernetes-validations" = [
        fields::rule(
            "has(self.replicas) == has(oldSelf.replicas)",
            "Cannot transition NodePool between static (replicas set) and dynamic (replicas unset) provisioning modes",
        ),
        fields::rule(
            "!has(self.replicas) || (!has(self.limits) || size(self.limits) == 0 || (size(self.limits) == 1 && 'nodes' in self.limits))",
            "only 'limits.nodes' is supported on static NodePools",
        ),
        fields::rule("!has(self.replicas) || !has(self.weight)", "'weight' is not supported on static NodePools"),
    ]
))]
pub struct NodePoolSpec {
    /// The NodeClaims that this pool makes start from this template; a launch may narrow it further.
    pub template: NodeClaimTemplate,
    /// When and how many nodes may be disrupted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-default" = serde_json::json!({ "consolidateAfter": "0s" })))]
    pub disruption: Option<Disruption>,
    /// The most of each resource that the nodes of this pool may have together. The name `nodes` limits their number;
    /// it is the only one allowed when replicas is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::resource_list")]
    pub limits: Option<BTreeMap<String, Quantity>>,
    /// Pools with a higher weight are tried first; none counts as 0. Not allowed when replicas is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minimum" = 1, "maximum" = 100))]
    pub weight: Option<i32>,
    /// Keeps exactly this many nodes, whatever the pods ask for (alpha). Weight, consolidation settings and limits other
    /// than nodes do not apply to such a pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minimum" = 0))]
    pub replicas: Option<i64>,
}

/// What every NodeClaim of a pool starts from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["spec"]))]
pub struct NodeClaimTemplate {
    /// Labels and annotations of the NodeClaims and their nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<TemplateMetadata>,
    /// The nodes themselves.
    pub spec: NodeClaimTemplateSpec,
}

impl NodeClaimTemplate {
    /// The template's labels, if any are given.
    #[must_use]
    pub fn labels(&self) -> Option<&BTreeMap<String, String>> {
        self.metadata.as_ref()?.labels.as_ref()
    }

    /// The template's annotations, if any are given.
    #[must_use]
    pub fn annotations(&self) -> Option<&BTreeMap<String, String>> {
        self.metadata.as_ref()?.annotations.as_ref()
    }
}

/// Labels and annotations that a template puts on what it makes. `Some` of an empty map differs from `None`: the drift
/// hash tells them apart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TemplateMetadata {
    /// Annotations that are copied to the NodeClaim and to its node.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-map-type" = "granular"))]
    pub annotations: Option<BTreeMap<String, String>>,
    /// Labels that are copied to the NodeClaim and to its node, and that pods may select.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "template_labels")]
    pub labels: Option<BTreeMap<String, String>>,
}

fn template_labels(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "object",
        "additionalProperties": { "type": "string", "maxLength": 63, "pattern": fields::LABEL_VALUE },
        "maxProperties": 100,
        "x-kubernetes-map-type": "atomic",
    })
}

/// What a node of the pool is like.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["nodeClassRef", "requirements"]))]
pub struct NodeClaimTemplateSpec {
    /// Taints of the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::taints")]
    pub taints: Option<Vec<Taint>>,
    /// Taints that a new node starts with and that something else removes soon. Pods need not tolerate them; the node
    /// counts as initialized once they are gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::taints")]
    pub startup_taints: Option<Vec<Taint>>,
    /// What must hold for the labels of every node, beside the template's own labels.
    #[serde(deserialize_with = "null_as_default")]
    #[schemars(extend(
        "maxItems" = 100,
        "x-kubernetes-list-type" = "atomic",
        "x-kubernetes-validations" = fields::requirement_rules()
    ))]
    pub requirements: Vec<RequirementSpec>,
    /// The object with the provider's settings. Its name may change, its group and kind may not.
    #[serde(deserialize_with = "null_as_default")]
    #[schemars(extend("x-kubernetes-validations" = [
        fields::rule("self.group == oldSelf.group", "nodeClassRef.group is immutable"),
        fields::rule("self.kind == oldSelf.kind", "nodeClassRef.kind is immutable"),
    ]))]
    pub node_class_ref: NodeClassRef,
    /// The longest time a node may take to drain, counted from its deletion. Pods are deleted early enough to get their
    /// own grace period, without regard to budgets of pods and protecting annotations. Without it a drain may wait for
    /// ever.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = fields::DURATION))]
    pub termination_grace_period: Option<DurationText>,
    /// The age at which a node is replaced, or Never.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-default" = "720h", "pattern" = fields::DURATION_OR_NEVER))]
    pub expire_after: Option<DurationText>,
}

impl NodeClaimTemplateSpec {
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
}

/// When and how many nodes may be disrupted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Disruption {
    /// How long a node must have been without a pod starting or ending before it may be consolidated, or Never.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-default" = "0s", "pattern" = fields::DURATION_OR_NEVER))]
    pub consolidate_after: Option<DurationText>,
    /// Which nodes may be consolidated: WhenEmpty, WhenEmptyOrUnderutilized, or Balanced, which weighs the savings
    /// against the disruption.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend(
        "x-default" = "WhenEmptyOrUnderutilized",
        "enum" = ["WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced"]
    ))]
    pub consolidation_policy: Option<String>,
    /// How many nodes may be disrupted at once. The strictest of the budgets in force counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend(
        "x-default" = serde_json::json!([{ "nodes": "10%" }]),
        "maxItems" = 50,
        "x-kubernetes-list-type" = "atomic",
        "x-kubernetes-validations" = [
            fields::rule("self.all(x, has(x.schedule) == has(x.duration))", "'schedule' must be set with 'duration'"),
        ]
    ))]
    pub budgets: Option<Vec<Budget>>,
}

/// How many nodes of the pool may be disrupted at once, for which reasons, and at which times.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["nodes"]))]
pub struct Budget {
    /// The reasons that the budget is about; all of them when none is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "budget_reasons")]
    pub reasons: Option<Vec<String>>,
    /// A number of nodes, or a percentage of the pool's nodes.
    #[schemars(extend("x-default" = "10%", "pattern" = "^((100|[0-9]{1,2})%|[0-9]+)$"))]
    pub nodes: String,
    /// When the budget begins to be in force: a cron expression in UTC. Without it the budget is always in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend(
        "pattern" = r"^(@(annually|yearly|monthly|weekly|daily|midnight|hourly))|((.+)\s(.+)\s(.+)\s(.+)\s(.+))$"
    ))]
    pub schedule: Option<String>,
    /// How long the budget stays in force after each start, in hours and minutes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = "^((([0-9]+(h|m))|([0-9]+h[0-9]+m))(0s)?)$"))]
    pub duration: Option<DurationText>,
}

fn budget_reasons(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "array",
        "maxItems": 50,
        "x-kubernetes-list-type": "set",
        "items": {
            "type": "string",
            "description": "A reason to disrupt a node.",
            "enum": ["Underutilized", "Empty", "Drifted"],
        },
    })
}

/// What a pool has and how it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodePoolStatus {
    /// The resources of the pool's nodes together.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::resource_list")]
    pub resources: Option<BTreeMap<String, Quantity>>,
    /// The number of the pool's nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-default" = 0))]
    pub nodes: Option<i64>,
    /// The generation of the node class for which nodes were last seen to register well or badly.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_class_observed_generation: Option<i64>,
    /// How the pool is doing.
    #[serde(skip_serializing_if = "is_default")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}
