//! Records of changed conditions and deleted objects, for events.
//!
//! Deciders record `Launched`, `Registered`, `Initialized` and `Drifted` themselves, with their cause. All others are
//! derived from the objects, as in Karpenter: those of NodePools and CapacityBuffers always, those of NodeClaims and Nodes only with full
//! telemetry, because every node has a dozen in its life. They are no decisions: events are all that becomes of them.

use jiff::Timestamp;

use crate::decider_id::DeciderId;
use crate::record::{Record, Verdict, Visibility};
use mortise_apis::k8s::{Node, ObjectCondition};
use mortise_apis::names::ObjectRef;
use mortise_apis::{CapacityBuffer, Condition, NodeClaim, NodePool};
use mortise_planning::reason::Reason;
use mortise_state::index::{Diff, ObjectChange};

/// Types whose transition to True deciders record.
const RECORDED_BY_DECIDERS: [&str; 4] = ["Launched", "Registered", "Initialized", "Drifted"];

/// The records of a change: conditions with another status, or that the object is gone. None of an object that was not
/// there before, and of NodeClaims and Nodes only if `with_nodes`.
#[must_use]
pub fn transitions_of(change: &ObjectChange, with_nodes: bool, now: Timestamp) -> Vec<Record> {
    match change {
        ObjectChange::Pool(Diff { before, after }) => {
            of_object(before.as_deref(), after.as_deref(), now)
        }
        ObjectChange::Buffer(change) if !is_foreign(change) => {
            of_object(change.before.as_deref(), change.after.as_deref(), now)
        }
        ObjectChange::Claim(Diff { before, after }) if with_nodes => {
            of_object(before.as_deref(), after.as_deref(), now)
        }
        ObjectChange::Node(Diff { before, after }) if with_nodes => {
            of_object(before.as_deref(), after.as_deref(), now)
        }
        ObjectChange::Claim(_)
        | ObjectChange::Node(_)
        | ObjectChange::Buffer(_)
        | ObjectChange::Pod(_)
        | ObjectChange::Other(_) => Vec::new(),
    }
}

/// Whether another controller serves the buffer.
fn is_foreign(change: &Diff<CapacityBuffer>) -> bool {
    let now = change.after.as_ref().or(change.before.as_ref());
    now.is_some_and(|buffer| buffer.is_foreign())
}

fn of_object<O: HasConditions>(
    before: Option<&O>,
    after: Option<&O>,
    now: Timestamp,
) -> Vec<Record> {
    let Some(before) = before else {
        return Vec::new();
    };
    let record = |reason| Record {
        at: now,
        decider: DeciderId::Index,
        subject: before.object_ref(),
        verdict: Verdict::Condition,
        reasons: vec![reason],
        visibility: Visibility::Event,
        related: Vec::new(),
        generation: 0,
    };
    let Some(after) = after else {
        return vec![record(Reason::Finalized)];
    };
    let is_recorded =
        |type_: &str, to: &str| to == "True" && O::RECORDED_BY_DECIDERS.contains(&type_);
    let changes = after.conditions().iter().filter_map(|condition| {
        let (type_, to) = (condition.type_(), condition.status());
        let was = before.conditions().iter().find(|was| was.type_() == type_);
        let from = was.map_or("Unknown", ConditionView::status);
        (from != to && !is_recorded(type_, to)).then(|| Reason::Transition {
            condition: type_.to_owned(),
            from: from.to_owned(),
            to: to.to_owned(),
            why: condition.reason().to_owned(),
        })
    });
    changes.map(record).collect()
}

/// An object with conditions.
trait HasConditions {
    type Each: ConditionView;
    const RECORDED_BY_DECIDERS: &'static [&'static str] = &[];
    fn object_ref(&self) -> ObjectRef;
    fn conditions(&self) -> &[Self::Each];
}

impl HasConditions for NodeClaim {
    type Each = Condition;
    const RECORDED_BY_DECIDERS: &'static [&'static str] = &RECORDED_BY_DECIDERS;
    fn object_ref(&self) -> ObjectRef {
        ObjectRef::Claim(self.name())
    }
    fn conditions(&self) -> &[Condition] {
        &self.status.conditions
    }
}

impl HasConditions for NodePool {
    type Each = Condition;
    fn object_ref(&self) -> ObjectRef {
        ObjectRef::Pool(self.name())
    }
    fn conditions(&self) -> &[Condition] {
        &self.status.conditions
    }
}

impl HasConditions for CapacityBuffer {
    type Each = Condition;
    fn object_ref(&self) -> ObjectRef {
        ObjectRef::Buffer(self.key())
    }
    fn conditions(&self) -> &[Condition] {
        &self.status.conditions
    }
}

impl HasConditions for Node {
    type Each = ObjectCondition;
    fn object_ref(&self) -> ObjectRef {
        let name = self.metadata.name.as_deref().unwrap_or_default();
        ObjectRef::Node(name.into())
    }
    fn conditions(&self) -> &[ObjectCondition] {
        &self.status.conditions
    }
}

/// A condition of either object type.
trait ConditionView {
    fn type_(&self) -> &str;
    fn status(&self) -> &str;
    fn reason(&self) -> &str;
}

impl ConditionView for Condition {
    fn type_(&self) -> &str {
        &self.type_
    }
    fn status(&self) -> &str {
        self.status.as_str()
    }
    fn reason(&self) -> &str {
        &self.reason
    }
}

impl ConditionView for ObjectCondition {
    fn type_(&self) -> &str {
        &self.type_
    }
    fn status(&self) -> &str {
        &self.status
    }
    fn reason(&self) -> &str {
        &self.reason
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::effect::Event;
    use crate::events::{events_of, fault};
    use serde_json::{Value, json};

    use super::*;

    fn with<T: serde::de::DeserializeOwned>(conditions: &[(&str, &str)]) -> T {
        let list: Vec<Value> = conditions
            .iter()
            .map(|(type_, status)| json!({ "type": type_, "status": status, "reason": "Why" }))
            .collect();
        serde_json::from_value(
            json!({ "metadata": { "name": "x" }, "status": { "conditions": list } }),
        )
        .unwrap()
    }

    fn events(change: &ObjectChange, with_nodes: bool) -> Vec<Event> {
        let records = transitions_of(change, with_nodes, Timestamp::UNIX_EPOCH);
        let events: Vec<Event> = records.iter().flat_map(events_of).collect();
        for event in &events {
            assert_eq!(fault(event), None);
        }
        events
    }

    fn diff<T: Clone>(before: Option<&T>, after: Option<&T>) -> Diff<T> {
        let shared = |object: Option<&T>| object.cloned().map(Arc::new);
        Diff {
            before: shared(before),
            after: shared(after),
        }
    }

    fn told(events: &[Event]) -> Vec<(&str, &str)> {
        let events = events.iter();
        events
            .map(|event| (&*event.reason, event.message.as_str()))
            .collect()
    }

    #[test]
    fn changes_of_a_status_are_reported_once() {
        let before: NodePool = with(&[("Ready", "False"), ("NodeClassReady", "True")]);
        let now: NodePool = with(&[
            ("Ready", "True"),
            ("NodeClassReady", "True"),
            ("ValidationSucceeded", "False"),
        ]);
        let of_pool = |before: Option<&NodePool>, after: Option<&NodePool>| {
            let change = ObjectChange::Pool(diff(before, after));
            events(&change, false)
        };
        assert_eq!(
            told(&of_pool(Some(&before), Some(&now))),
            [
                (
                    "Ready",
                    "Status condition transitioned, Type: Ready, Status: False -> True, Reason: Why"
                ),
                (
                    "ValidationSucceeded",
                    "Status condition transitioned, Type: ValidationSucceeded, Status: Unknown -> False, Reason: Why"
                ),
            ]
        );
        assert_eq!(of_pool(None, Some(&now)), [], "seen for the first time");
        let deleted = of_pool(Some(&now), None);
        assert_eq!(told(&deleted), [("Finalized", "Finalized nodepool/x")]);
    }

    #[test]
    fn claims_and_nodes_are_reported_in_full_detail_only() {
        let claim: NodeClaim = with(&[("Launched", "Unknown"), ("Drained", "Unknown")]);
        let after: NodeClaim = with(&[("Launched", "True"), ("Drained", "True")]);
        let (before, after) = (Some(&claim), Some(&after));
        let of_claim = ObjectChange::Claim(diff(before, after));
        assert_eq!(events(&of_claim, false), []);
        let drained = events(&of_claim, true);
        let reasons: Vec<&str> = told(&drained).iter().map(|(reason, _)| *reason).collect();
        assert_eq!(reasons, ["Drained"], "deciders tell of Launched");
        let before: Node = with(&[("Ready", "True"), ("a word with spaces", "True")]);
        let now: Node = with(&[("Ready", "Unknown"), ("a word with spaces", "False")]);
        let before = Some(&before);
        let after = Some(&now);
        let changed = ObjectChange::Node(diff(before, after));
        assert_eq!(events(&changed, true).len(), 1);
        let gone = ObjectChange::Node(diff(before, None));
        assert_eq!(events(&gone, false), []);
        let deleted = events(&gone, true);
        assert_eq!(told(&deleted), [("Finalized", "Finalized node/x")]);
    }
}
