//! Conditions of the custom resources: what is known of each, and the one root condition that sums them up.
//!
//! # Source
//! The observable contract of the condition library behind Karpenter's kinds: every condition of a kind exists from the
//! start as `Unknown`; a change of status moves the transition time; the root follows from its dependents.

use std::fmt;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize};

use crate::schema::fields;
use crate::schema::object::null_as_default;

/// Reason of a condition that was not evaluated yet.
pub const AWAITING_RECONCILIATION: &str = "AwaitingReconciliation";
/// Message of a condition that was not evaluated yet.
pub const AWAITING_RECONCILIATION_MESSAGE: &str = "object is awaiting reconciliation";
/// Reason of a root condition with a dependent that is False.
pub const UNHEALTHY_DEPENDENTS: &str = "UnhealthyDependents";
/// Reason of a root condition with a dependent that is not known yet.
pub const RECONCILING_DEPENDENTS: &str = "ReconcilingDependents";
/// The root condition.
pub const READY: &str = "Ready";

/// Whether something holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// It is not known. Any text that is neither `True` nor `False` is read as this.
    #[default]
    Unknown,
}

impl ConditionStatus {
    /// The text in objects.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl fmt::Display for ConditionStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for ConditionStatus {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        Ok(match &*text {
            "True" => Self::True,
            "False" => Self::False,
            _ => Self::Unknown,
        })
    }
}

impl From<bool> for ConditionStatus {
    fn from(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }
}

/// Condition of the object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["lastTransitionTime", "message", "reason", "status", "type"]))]
pub struct Condition {
    /// Time of the last status change.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::date_time")]
    pub last_transition_time: Option<Time>,
    /// Human-readable details of the last status change.
    #[serde(deserialize_with = "null_as_default")]
    #[schemars(extend("maxLength" = 32768))]
    pub message: String,
    /// Generation of the object that the condition was set for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minimum" = 0))]
    pub observed_generation: Option<i64>,
    /// Reason of the last status change, in CamelCase.
    #[serde(deserialize_with = "null_as_default")]
    #[schemars(extend(
        "maxLength" = 1024,
        "minLength" = 1,
        "pattern" = "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"
    ))]
    pub reason: String,
    /// True, False or Unknown.
    #[schemars(schema_with = "status")]
    pub status: ConditionStatus,
    /// Type of the condition.
    #[serde(rename = "type")]
    #[schemars(extend(
        "maxLength" = 316,
        "pattern" = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
    ))]
    pub type_: String,
}

fn status(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": ["True", "False", "Unknown"] })
}

/// Schema of a condition list whose reason and message may be missing or empty, as NodeClaims of old releases have it.
pub(crate) fn relaxed_list(generator: &mut SchemaGenerator) -> Schema {
    let mut item = Condition::json_schema(generator);
    item.insert(
        "required".to_owned(),
        serde_json::json!(["lastTransitionTime", "status", "type"]),
    );
    if let Some(reason) = item
        .pointer_mut("/properties/reason")
        .and_then(serde_json::Value::as_object_mut)
    {
        reason.remove("minLength");
        reason.insert(
            "pattern".to_owned(),
            "^([A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?|)$".into(),
        );
    }
    json_schema!({
        "type": "array",
        "items": item,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
    })
}

/// The condition of a type, if there is one.
#[must_use]
pub fn find<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|each| each.type_ == type_)
}

/// The status of a condition; `Unknown` when there is none of that type.
#[must_use]
pub fn status_of(conditions: &[Condition], type_: &str) -> ConditionStatus {
    find(conditions, type_)
        .map(|each| each.status)
        .unwrap_or_default()
}

/// `true` when there is a condition of that type and it is True.
#[must_use]
pub fn is_true(conditions: &[Condition], type_: &str) -> bool {
    status_of(conditions, type_) == ConditionStatus::True
}

/// Which conditions a kind has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownConditions {
    /// The root, which sums the dependents up; `None` for a kind without one.
    pub root: Option<&'static str>,
    /// Conditions that exist from the start. The root depends on them.
    pub dependents: &'static [&'static str],
}

/// Conditions of a NodePool. The root does not depend on `NodeRegistrationHealthy`.
pub const NODE_POOL: KnownConditions = KnownConditions {
    root: Some(READY),
    dependents: &["ValidationSucceeded", "NodeClassReady"],
};
/// Conditions of a NodeClaim. The root does not depend on any other.
pub const NODE_CLAIM: KnownConditions = KnownConditions {
    root: Some(READY),
    dependents: &["Launched", "Registered", "Initialized"],
};
/// Conditions of a NodeOverlay.
pub const NODE_OVERLAY: KnownConditions = KnownConditions {
    root: Some(READY),
    dependents: &["ValidationSucceeded"],
};
/// Conditions of a NodePoolPolicy.
pub const NODE_POOL_POLICY: KnownConditions = KnownConditions {
    root: Some(READY),
    dependents: &["ValidationSucceeded"],
};
/// Conditions of a CapacityBuffer. There is no root.
pub const CAPACITY_BUFFER: KnownConditions = KnownConditions {
    root: None,
    dependents: &["ReadyForProvisioning", "Provisioning"],
};
/// Conditions of a ProvisioningRequest. Each exists once something is known of it.
pub const PROVISIONING_REQUEST: KnownConditions = KnownConditions {
    root: None,
    dependents: &[],
};
/// The conditions of one object, mutable. Every change updates the root and keeps the order of the list: oldest transition
/// first, the root last.
#[derive(Debug)]
pub struct Conditions<'a> {
    known: KnownConditions,
    list: &'a mut Vec<Condition>,
    generation: i64,
    created: Option<Timestamp>,
    now: Timestamp,
    changed: bool,
}

impl<'a> Conditions<'a> {
    /// Wraps the conditions of an object and adds missing ones as `Unknown`. Times are in whole seconds, as stored in objects.
    pub fn new(
        known: KnownConditions,
        metadata: &ObjectMeta,
        list: &'a mut Vec<Condition>,
        now: Timestamp,
    ) -> Self {
        let mut this = Self {
            known,
            list,
            generation: metadata.generation.unwrap_or_default(),
            created: metadata
                .creation_timestamp
                .as_ref()
                .map(|time| whole_seconds(time.0)),
            now: whole_seconds(now),
            changed: false,
        };
        for type_ in known.dependents.iter().chain(&known.root) {
            if find(this.list, type_).is_none() {
                this.set_unknown(
                    type_,
                    AWAITING_RECONCILIATION,
                    AWAITING_RECONCILIATION_MESSAGE,
                );
            }
        }
        this
    }

    /// The conditions as they are now.
    #[must_use]
    pub fn list(&self) -> &[Condition] {
        self.list
    }

    /// The condition of a type, if there is one.
    #[must_use]
    pub fn get(&self, type_: &str) -> Option<&Condition> {
        find(self.list, type_)
    }

    /// `true` when the condition is True, whichever generation it is about.
    #[must_use]
    pub fn is_true(&self, type_: &str) -> bool {
        is_true(self.list, type_)
    }

    /// `true` when anything was changed since [`Conditions::of`], the added conditions included.
    #[must_use]
    pub const fn changed(&self) -> bool {
        self.changed
    }

    /// Sets a condition to True, with its own type as reason and no message. Returns whether anything changed.
    pub fn set_true(&mut self, type_: &str) -> bool {
        self.set(type_, ConditionStatus::True, type_, "")
    }

    /// Sets a condition to True, with a reason. Returns whether anything changed.
    pub fn set_true_with_reason(&mut self, type_: &str, reason: &str, message: &str) -> bool {
        self.set(type_, ConditionStatus::True, reason, message)
    }

    /// Sets a condition to False. Returns whether anything changed.
    pub fn set_false(&mut self, type_: &str, reason: &str, message: &str) -> bool {
        self.set(type_, ConditionStatus::False, reason, message)
    }

    /// Sets a condition to Unknown. Returns whether anything changed.
    pub fn set_unknown(&mut self, type_: &str, reason: &str, message: &str) -> bool {
        self.set(type_, ConditionStatus::Unknown, reason, message)
    }

    /// Removes a condition that the root does not depend on. The root and its dependents stay. Returns whether anything
    /// changed.
    pub fn clear(&mut self, type_: &str) -> bool {
        if Some(type_) == self.known.root || self.known.dependents.contains(&type_) {
            return false;
        }
        let before = self.list.len();
        self.list.retain(|each| each.type_ != type_);
        let removed = self.list.len() != before;
        self.changed |= removed;
        removed
    }

    fn set(&mut self, type_: &str, status: ConditionStatus, reason: &str, message: &str) -> bool {
        let previous = find(self.list, type_);
        let unchanged_since = previous
            .filter(|previous| previous.status == status)
            .and_then(|previous| previous.last_transition_time.clone());
        let last_transition = unchanged_since.unwrap_or_else(|| {
            // A dependent that was never set has been what it is since the object exists; timers start there.
            let first = previous.is_none() && self.known.dependents.contains(&type_);
            Time(self.created.filter(|_| first).unwrap_or(self.now))
        });
        let condition = Condition {
            last_transition_time: Some(last_transition),
            message: message.to_owned(),
            observed_generation: (self.generation != 0).then_some(self.generation),
            reason: reason.to_owned(),
            status,
            type_: type_.to_owned(),
        };
        if previous == Some(&condition) {
            return false;
        }
        self.list.retain(|each| each.type_ != type_);
        self.list.push(condition);
        let root = self.known.root;
        self.list.sort_by_key(|each| {
            (
                Some(&*each.type_) == root,
                each.last_transition_time.clone(),
            )
        });
        self.changed = true;
        if let Some(root) = root.filter(|root| *root != type_) {
            self.sum_up(root);
        }
        true
    }

    /// Sets the root from the dependents that are not True at the current generation, newest transition first.
    fn sum_up(&mut self, root: &str) {
        let observed = (self.generation != 0).then_some(self.generation);
        let mut unhealthy: Vec<&Condition> = self
            .list
            .iter()
            .filter(|each| self.known.dependents.contains(&each.type_.as_str()))
            .filter(|each| {
                each.status != ConditionStatus::True || each.observed_generation != observed
            })
            .collect();
        unhealthy.sort_by(|a, b| b.last_transition_time.cmp(&a.last_transition_time));
        let message = unhealthy
            .iter()
            .map(|each| format!("{}={}", each.type_, each.status))
            .collect::<Vec<_>>()
            .join(", ");
        if unhealthy.is_empty() {
            self.set_true(root);
        } else if unhealthy.iter().any(|each| {
            each.status == ConditionStatus::False && each.observed_generation == observed
        }) {
            self.set_false(root, UNHEALTHY_DEPENDENTS, &message);
        } else {
            self.set_unknown(root, RECONCILING_DEPENDENTS, &message);
        }
    }
}

fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).unwrap()
    }

    fn object(generation: i64) -> ObjectMeta {
        ObjectMeta {
            generation: Some(generation),
            creation_timestamp: Some(Time(at(0))),
            ..ObjectMeta::default()
        }
    }

    /// `Type=Status/Reason@second` per condition, in the order of the list.
    fn story(list: &[Condition]) -> String {
        let since = |each: &Condition| {
            each.last_transition_time
                .as_ref()
                .map(|time| time.0.as_second() - at(0).as_second())
        };
        let line = |each: &Condition| {
            format!(
                "{}={}/{}@{}",
                each.type_,
                each.status,
                each.reason,
                since(each).unwrap_or(-1)
            )
        };
        list.iter().map(line).collect::<Vec<_>>().join(" ")
    }

    fn root_message(list: &[Condition]) -> &str {
        find(list, READY).map_or("", |root| root.message.as_str())
    }

    #[test]
    fn known_conditions_start_unknown_since_creation() {
        let mut list = Vec::new();
        let conditions = Conditions::new(NODE_CLAIM, &object(1), &mut list, at(9));
        assert!(conditions.changed());
        assert_eq!(
            story(&list),
            "Launched=Unknown/AwaitingReconciliation@0 Registered=Unknown/AwaitingReconciliation@0 \
             Initialized=Unknown/AwaitingReconciliation@0 Ready=Unknown/ReconcilingDependents@9"
        );
        assert_eq!(
            root_message(&list),
            "Launched=Unknown, Registered=Unknown, Initialized=Unknown"
        );
        assert_eq!(list[0].message, AWAITING_RECONCILIATION_MESSAGE);
        assert!(
            !Conditions::new(NODE_CLAIM, &object(1), &mut list, at(10)).changed(),
            "a second look changes nothing"
        );
    }

    #[test]
    fn root_follows_its_dependents() {
        let mut list = Vec::new();
        let mut conditions = Conditions::new(NODE_CLAIM, &object(1), &mut list, at(1));
        assert!(conditions.set_true("Launched"));
        conditions.now = at(2);
        assert!(conditions.set_false("Registered", "NodeNotFound", "no node"));
        assert_eq!(
            root_message(conditions.list()),
            "Registered=False, Initialized=Unknown",
            "newest first"
        );
        assert_eq!(status_of(conditions.list(), READY), ConditionStatus::False);
        conditions.now = at(3);
        conditions.set_true("Registered");
        assert_eq!(
            conditions.get(READY).map(|root| root.reason.as_str()),
            Some(RECONCILING_DEPENDENTS)
        );
        conditions.set_true_with_reason("Initialized", "AllThere", "everything is there");
        assert!(conditions.is_true(READY));
        assert_eq!(
            story(&list),
            "Launched=True/Launched@1 Registered=True/Registered@3 Initialized=True/AllThere@3 Ready=True/Ready@3"
        );
        assert_eq!(root_message(&list), "");
    }

    #[test]
    fn transition_time_moves_with_the_status_only() {
        let mut list = Vec::new();
        let mut conditions = Conditions::new(NODE_POOL, &object(1), &mut list, at(1));
        conditions.set_false(
            "NodeClassReady",
            "NodeClassNotFound",
            "NodeClass not found on cluster",
        );
        conditions.now = at(2);
        assert!(conditions.set_false(
            "NodeClassReady",
            "NodeClassTerminating",
            "NodeClass is Terminating"
        ));
        assert!(!conditions.set_false(
            "NodeClassReady",
            "NodeClassTerminating",
            "NodeClass is Terminating"
        ));
        assert!(
            story(&list).contains("NodeClassReady=False/NodeClassTerminating@1"),
            "{}",
            story(&list)
        );
    }

    #[test]
    fn old_generations_do_not_make_ready() {
        let mut list = Vec::new();
        let mut conditions = Conditions::new(NODE_POOL, &object(1), &mut list, at(1));
        conditions.set_true("ValidationSucceeded");
        conditions.set_true("NodeClassReady");
        assert!(is_true(&list, READY));
        let mut conditions = Conditions::new(NODE_POOL, &object(2), &mut list, at(5));
        assert!(
            !conditions.changed(),
            "a new generation alone changes nothing"
        );
        assert!(
            conditions.set_true("ValidationSucceeded"),
            "the observed generation moves"
        );
        assert_eq!(
            root_message(conditions.list()),
            "NodeClassReady=True",
            "still about the old generation"
        );
        assert_eq!(
            status_of(conditions.list(), READY),
            ConditionStatus::Unknown
        );
        conditions.set_false("ValidationSucceeded", "NodePoolValidationFailed", "bad");
        assert_eq!(
            conditions.get(READY).map(|root| root.reason.as_str()),
            Some(UNHEALTHY_DEPENDENTS)
        );
        conditions.set_true("ValidationSucceeded");
        conditions.set_true("NodeClassReady");
        assert!(is_true(&list, READY));
        assert!(list.iter().all(|each| each.observed_generation == Some(2)));
    }

    #[test]
    fn only_conditions_that_stand_apart_can_be_cleared() {
        let mut list = Vec::new();
        let mut conditions = Conditions::new(NODE_CLAIM, &object(1), &mut list, at(1));
        conditions.set_true("Drifted");
        assert!(!conditions.clear("Launched"));
        assert!(!conditions.clear(READY));
        assert!(conditions.clear("Drifted"));
        assert!(!conditions.clear("Drifted"));
        assert!(find(&list, "Drifted").is_none());
        assert_eq!(
            list.last().map(|last| last.type_.as_str()),
            Some(READY),
            "the root stays last"
        );
    }

    #[test]
    fn a_kind_without_dependents_is_ready() {
        let alone = KnownConditions {
            root: Some(READY),
            dependents: &[],
        };
        let mut list = Vec::new();
        let mut conditions = Conditions::new(alone, &object(1), &mut list, at(1));
        conditions.set_true(READY);
        assert_eq!(story(&list), "Ready=True/Ready@1");
    }

    #[test]
    fn odd_conditions_of_old_objects_can_be_read() {
        let old: Condition = serde_json::from_str(
            r#"{"type":"Ready","status":"Perhaps","reason":null,"lastTransitionTime":null}"#,
        )
        .unwrap();
        assert_eq!(
            (old.status, old.reason.as_str(), &old.last_transition_time),
            (ConditionStatus::Unknown, "", &None)
        );
        let mut list = vec![Condition {
            type_: "Launched".into(),
            status: ConditionStatus::True,
            ..Condition::default()
        }];
        Conditions::new(NODE_CLAIM, &object(1), &mut list, at(4)).set_true("Launched");
        assert!(
            list.iter().all(|each| each.last_transition_time.is_some()),
            "what is written has a time"
        );
    }
}
