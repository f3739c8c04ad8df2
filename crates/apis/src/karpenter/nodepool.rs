//! NodePool: a template for nodes, with limits and rules on how they may be disrupted.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Taint;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::labels;
use crate::names::{NodeClassKey, PoolName};
use crate::requirements::{Requirement, Requirements, requirements_of};
use crate::resources::{NODES, PoolLimits, resources_of};
use crate::schema::conditions::{self, Condition, ConditionStatus};
use crate::schema::duration_text::DurationText;
use crate::schema::fields;
use crate::schema::groups::{GROUP, NodeClassRef, V1};
use crate::schema::object::{is_default, null_as_default, object};
use crate::schema::requirement::RequirementSpec;
use crate::values::{BudgetSet, CompiledBudget, GoDuration, NillableDuration};

/// Condition of NodePools, written by mortise: True while launches are paused because nodes do not register, Unknown with
/// reason [`PROBE_LAUNCH`] while one launch is allowed. Absent otherwise.
pub const LAUNCHES_PAUSED: &str = "LaunchesPaused";

/// Reason of [`LAUNCHES_PAUSED`] while one launch is allowed.
pub const PROBE_LAUNCH: &str = "ProbeLaunch";

/// The budget of a NodePool that has none.
const DEFAULT_BUDGET: &str = "10%";

object! {
    /// Template of nodes to launch for unschedulable pods, with limits and disruption settings.
    pub struct NodePool(GROUP, V1, "NodePool", "nodepools", ClusterResourceScope) {
        /// What is wanted.
        pub spec as "spec": NodePoolSpec,
        /// What is.
        pub status as "status": NodePoolStatus,
    }
}

/// Which launches of a NodePool are paused, with the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaunchPause<'a> {
    /// All launches.
    All(&'a str),
    /// All launches except one, the probe.
    AllButOne(&'a str),
}

impl NodePool {
    /// Name of the object.
    #[must_use]
    pub fn name(&self) -> PoolName {
        self.metadata.name.as_deref().unwrap_or_default().into()
    }

    /// Its node class.
    #[must_use]
    pub fn node_class_key(&self) -> NodeClassKey {
        self.spec.template.spec.node_class_ref.key()
    }

    /// Its `consolidateAfter`, 0 s by default; `None` for `Never`, and for what cannot be read, which the API server does not admit.
    #[must_use]
    pub fn consolidate_after(&self) -> Option<SignedDuration> {
        let disruption = self.spec.disruption.as_ref();
        let text = disruption.and_then(|disruption| disruption.consolidate_after.as_ref());
        let text = text.map_or("0s", |text| text.as_str());
        let wait = NillableDuration::parse(text).ok()?.duration()?;
        Some(SignedDuration::from(wait))
    }

    /// Its limits, parsed.
    #[must_use]
    pub fn limits(&self) -> PoolLimits {
        let Some(list) = &self.spec.limits else {
            return PoolLimits::default();
        };
        // Limits are parsed one by one because a limit of zero is a limit, while an amount of zero is none.
        let amount = |name: &str, quantity: &Quantity| {
            resources_of(&BTreeMap::from([(name.to_owned(), quantity.clone())])).get(name)
        };
        PoolLimits {
            nodes: list.get(NODES).map(|quantity| amount(NODES, quantity)),
            resources: list
                .iter()
                .filter(|(name, _)| *name != NODES)
                .map(|(name, quantity)| (name.clone(), amount(name, quantity)))
                .collect(),
        }
    }

    /// What every node of the pool satisfies: requirements, template labels, and the pool's name.
    #[must_use]
    pub fn requirements(&self) -> Requirements {
        let template = &self.spec.template;
        let mut all = requirements_of(&template.spec.requirements);
        for (key, value) in template.labels().into_iter().flatten() {
            all.add(Requirement::is(key.as_str(), value.as_str()));
        }
        all.add(Requirement::is(
            labels::NODEPOOL,
            self.metadata.name.as_deref().unwrap_or_default(),
        ));
        all
    }

    /// Its disruption budgets, in their order; the default where it has none.
    #[must_use]
    pub fn budgets(&self) -> BudgetSet {
        let written = self
            .spec
            .disruption
            .as_ref()
            .and_then(|disruption| disruption.budgets.as_ref());
        let Some(written) = written else {
            let only = CompiledBudget::new(DEFAULT_BUDGET, None, None, None::<[&str; 0]>);
            return std::iter::once(only).collect();
        };
        written
            .iter()
            .map(|budget| {
                let reasons = budget
                    .reasons
                    .as_ref()
                    .map(|reasons| reasons.iter().map(String::as_str));
                let duration = budget
                    .duration
                    .as_ref()
                    .map(|text| GoDuration::parse(text.as_str()));
                match duration.transpose() {
                    Ok(duration) => CompiledBudget::new(
                        &budget.nodes,
                        budget.schedule.as_deref(),
                        duration,
                        reasons,
                    ),
                    // The CRD refuses such a text; should one be stored, nothing is allowed until it is fixed.
                    Err(_) => CompiledBudget::new("0", None, None, None::<[&str; 0]>),
                }
            })
            .collect()
    }

    /// Keeps a fixed number of nodes.
    #[must_use]
    pub const fn is_static(&self) -> bool {
        self.spec.replicas.is_some()
    }

    /// Whether launches are paused, as the condition [`LAUNCHES_PAUSED`] says.
    #[must_use]
    pub fn launch_pause(&self) -> Option<LaunchPause<'_>> {
        let condition = conditions::find(&self.status.conditions, LAUNCHES_PAUSED)?;
        match condition.status {
            ConditionStatus::True => Some(LaunchPause::All(&condition.message)),
            ConditionStatus::Unknown => Some(LaunchPause::AllButOne(&condition.message)),
            ConditionStatus::False => None,
        }
    }

    /// Root condition `Ready` is `True`.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        conditions::is_true(&self.status.conditions, "Ready")
    }
}

/// Template, limits and disruption settings of the NodePool.
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
    /// Template of the NodeClaims of this NodePool. A NodeClaim can have additional requirements.
    pub template: NodeClaimTemplate,
    /// Settings of voluntary disruption.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-default" = serde_json::json!({ "consolidateAfter": "0s" })))]
    pub disruption: Option<Disruption>,
    /// Maximum total resources of the nodes of this NodePool. The key `nodes` limits their number; no other key is allowed
    /// when replicas is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::resource_list")]
    pub limits: Option<BTreeMap<String, Quantity>>,
    /// NodePools with a higher weight are preferred; default is 0. Not allowed when replicas is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minimum" = 1, "maximum" = 100))]
    pub weight: Option<i32>,
    /// Fixed number of nodes, regardless of pending pods (alpha). Weight, consolidation settings and limits other than nodes
    /// do not apply.
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
    /// Spec of the NodeClaims.
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
    /// Annotations of the NodeClaim and its node.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-map-type" = "granular"))]
    pub annotations: Option<BTreeMap<String, String>>,
    /// Labels of the NodeClaim and its node, which pods can select.
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
    /// Taints that a node registers with and that another component removes. Pods do not need to tolerate them; the node is
    /// initialized when they are removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::taints")]
    pub startup_taints: Option<Vec<Taint>>,
    /// Requirements on the labels of every node, in addition to the labels of the template.
    #[serde(deserialize_with = "null_as_default")]
    #[schemars(extend(
        "maxItems" = 100,
        "x-kubernetes-list-type" = "atomic",
        "x-kubernetes-validations" = fields::requirement_rules()
    ))]
    pub requirements: Vec<RequirementSpec>,
    /// Node class with the settings of the cloud provider. Group and kind are immutable.
    #[serde(deserialize_with = "null_as_default")]
    #[schemars(extend("x-kubernetes-validations" = [
        fields::rule("self.group == oldSelf.group", "nodeClassRef.group is immutable"),
        fields::rule("self.kind == oldSelf.kind", "nodeClassRef.kind is immutable"),
    ]))]
    pub node_class_ref: NodeClassRef,
    /// Maximum drain duration of a node, counted from the deletion timestamp. Pods are deleted early enough to get their own
    /// grace period, regardless of PodDisruptionBudgets and do-not-disrupt annotations. Without it the drain has no time
    /// limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = fields::DURATION))]
    pub termination_grace_period: Option<DurationText>,
    /// Age at which a node expires, or Never.
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

/// Settings of voluntary disruption.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Disruption {
    /// Time without a pod added to or removed from the node before it may be consolidated, or Never.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-default" = "0s", "pattern" = fields::DURATION_OR_NEVER))]
    pub consolidate_after: Option<DurationText>,
    /// Which nodes may be consolidated: WhenEmpty, WhenEmptyOrUnderutilized, or Balanced, which compares savings with
    /// disruption cost.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend(
        "x-default" = "WhenEmptyOrUnderutilized",
        "enum" = ["WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced"]
    ))]
    pub consolidation_policy: Option<String>,
    /// Maximum number of nodes that may be disrupted at once. The strictest active budget applies.
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

/// Maximum number of nodes that may be disrupted at once, optionally by reason and schedule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["nodes"]))]
pub struct Budget {
    /// Reasons that the budget applies to. Default is all.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "budget_reasons")]
    pub reasons: Option<Vec<String>>,
    /// Number of nodes, or percentage of the nodes of the NodePool.
    #[schemars(extend("x-default" = "10%", "pattern" = "^((100|[0-9]{1,2})%|[0-9]+)$"))]
    pub nodes: String,
    /// Start of the budget, a cron expression in UTC. Without it the budget is always active.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = fields::CRON))]
    pub schedule: Option<String>,
    /// How long the budget is active after each start, in hours and minutes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = fields::HOURS_AND_MINUTES))]
    pub duration: Option<DurationText>,
}

fn budget_reasons(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "array",
        "maxItems": 50,
        "x-kubernetes-list-type": "set",
        "items": {
            "type": "string",
            "description": "Reason of a disruption.",
            "enum": ["Underutilized", "Empty", "Drifted"],
        },
    })
}

/// Observed state of the NodePool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodePoolStatus {
    /// Total resources of the nodes of the NodePool.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::resource_list")]
    pub resources: Option<BTreeMap<String, Quantity>>,
    /// Number of nodes of the NodePool.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-default" = 0))]
    pub nodes: Option<i64>,
    /// Generation of the node class that the last registration result applies to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_class_observed_generation: Option<i64>,
    /// Conditions of the NodePool.
    #[serde(skip_serializing_if = "is_default")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}
