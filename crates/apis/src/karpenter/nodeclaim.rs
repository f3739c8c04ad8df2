//! NodeClaim: the request for one node, from its creation to the end of its instance.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Taint;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::labels;
use crate::names::{ClaimName, NodeClassKey, PoolName, Uid};
use crate::requirements::{Operator, Requirements, requirements_of};
use crate::resources::Resources;
use crate::schema::conditions::{self, Condition};
use crate::schema::duration_text::DurationText;
use crate::schema::fields;
use crate::schema::groups::{GROUP, NodeClassRef, V1};
use crate::schema::object::{is_default, null_as_default, object};
use crate::schema::requirement::RequirementSpec;
use crate::values::NillableDuration;

/// Condition of NodeClaims: the reason of their disruption. While it is True, the node gets no new pods.
pub const DISRUPTION_REASON: &str = "DisruptionReason";

/// Reason of the condition `Launched` while the NodeClaim waits until nodes of its NodePool are known to register.
pub const LAUNCH_PAUSED: &str = "LaunchPaused";

object! {
    /// Request for one node, and its observed state.
    pub struct NodeClaim(GROUP, V1, "NodeClaim", "nodeclaims", ClusterResourceScope) {
        /// What is wanted. It never changes.
        pub spec as "spec": NodeClaimSpec,
        /// What is.
        pub status as "status": NodeClaimStatus,
    }
}

impl NodeClaim {
    /// When the claim's pods are deleted without eviction. A time that cannot be read is no deadline.
    #[must_use]
    pub fn termination_deadline(&self) -> Option<jiff::Timestamp> {
        self.annotation(labels::TERMINATION_TIMESTAMP)?.parse().ok()
    }

    /// Name of the object.
    #[must_use]
    pub fn name(&self) -> ClaimName {
        self.metadata.name.as_deref().unwrap_or_default().into()
    }

    /// UID of the object.
    #[must_use]
    pub fn uid(&self) -> Option<Uid> {
        self.metadata.uid.as_deref().map(Uid::from)
    }

    /// The cloud's ID of its instance, once launched.
    #[must_use]
    pub fn provider_id(&self) -> Option<&str> {
        self.status
            .provider_id
            .as_deref()
            .filter(|id| !id.is_empty())
    }

    /// Maximum capacity of its node, as planned; `None` if the annotation is missing or invalid.
    #[must_use]
    pub fn planned_capacity(&self) -> Option<Resources> {
        let text = self.annotation(labels::PLANNED_CAPACITY)?;
        let list: BTreeMap<String, Quantity> = serde_json::from_str(text).ok()?;
        let planned = Resources::from_api(&list).ok()?;
        (!planned.is_zero() && !planned.any_negative()).then_some(planned)
    }

    /// Both come from the same decision: one is what became of the other.
    #[must_use]
    pub fn is_same_intent(&self, other: &Self) -> bool {
        let own = self.annotation(labels::INTENT);
        own.is_some() && own == other.annotation(labels::INTENT) && self.pool() == other.pool()
    }

    /// The capacity of its node is known: the status has the instance and its capacity, or the Node has registered.
    #[must_use]
    pub fn is_measured(&self) -> bool {
        let sized = self.status.capacity.as_ref();
        self.provider_id().is_some()
            && (sized.is_some_and(|sized| !sized.is_empty()) || self.is_true("Registered"))
    }

    /// Pool it belongs to; `None` for a claim that a user made.
    #[must_use]
    pub fn pool(&self) -> Option<PoolName> {
        self.metadata
            .labels
            .as_ref()?
            .get(labels::NODEPOOL)
            .map(|name| name.as_str().into())
    }

    /// Its node class.
    #[must_use]
    pub fn node_class_key(&self) -> NodeClassKey {
        self.spec.node_class_ref.key()
    }

    /// A label's value.
    #[must_use]
    pub fn label(&self, key: &str) -> Option<&str> {
        self.metadata.labels.as_ref()?.get(key).map(String::as_str)
    }

    /// ID of its instance: from the status, or from the annotation that is written before the status.
    #[must_use]
    pub fn instance_id(&self) -> Option<&str> {
        self.provider_id()
            .or_else(|| self.annotation(labels::PROVIDER_ID))
    }

    /// An annotation's value.
    #[must_use]
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata
            .annotations
            .as_ref()?
            .get(key)
            .map(String::as_str)
    }

    /// A condition is `True`.
    #[must_use]
    pub fn is_true(&self, condition: &str) -> bool {
        conditions::is_true(&self.status.conditions, condition)
    }

    /// When it expires; `None` for never, or when its `expireAfter` cannot be read.
    #[must_use]
    pub fn expires_at(&self) -> Option<jiff::Timestamp> {
        let text = self.spec.expire_after.as_ref()?;
        let span = NillableDuration::parse(text.as_str()).ok()?.duration()?;
        let created = self.metadata.creation_timestamp.as_ref()?.0;
        Some(
            created
                .checked_add(jiff::SignedDuration::from(span))
                .unwrap_or(jiff::Timestamp::MAX),
        )
    }

    /// Its instance is terminating.
    #[must_use]
    pub fn is_instance_terminating(&self) -> bool {
        self.is_true("InstanceTerminating")
    }

    /// What its node must satisfy.
    #[must_use]
    pub fn requirements(&self) -> Requirements {
        requirements_of(&self.spec.requirements)
    }

    /// Labels that its node will have, to the extent that they are known: its own, and each requirement with a single value.
    #[must_use]
    pub fn node_labels(&self) -> BTreeMap<String, String> {
        let mut all = BTreeMap::new();
        for spec in &self.spec.requirements {
            if spec.operator == Operator::In.as_str()
                && let [only] = spec.values()
            {
                all.insert(spec.key.clone(), only.clone());
            }
        }
        all.extend(self.metadata.labels.clone().unwrap_or_default());
        all
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
