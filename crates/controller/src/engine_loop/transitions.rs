//! Events for changed conditions and deleted objects.
//!
//! Deciders report `LaunchedInstance`, `Registered`, `Initialized` and `Drifted` themselves, with their cause. All others are
//! derived from the objects, as in Karpenter: those of NodePools always, those of NodeClaims and Nodes only with full
//! telemetry, because every node has a dozen in its life.

use mortise_apis::k8s::{Node, ObjectCondition};
use mortise_apis::names::ObjectRef;
use mortise_apis::{Condition, NodeClaim, NodePool};
use mortise_engine::effect::Event;
use mortise_engine::events::{FINALIZED, TRANSITION};

use crate::config::TelemetryDetail;

/// Types whose transition to True deciders report.
const REPORTED_BY_DECIDERS: [&str; 4] = ["Launched", "Registered", "Initialized", "Drifted"];
/// Conditions come from objects that others write: a type that is too long or not a word is not used as an event reason.
const MAX_TYPE_LENGTH: usize = 128;

/// Events for a changed or deleted NodeClaim.
pub(crate) fn claim_events(
    detail: TelemetryDetail,
    before: Option<&NodeClaim>,
    now: Option<&NodeClaim>,
) -> Vec<Event> {
    let before = before.filter(|_| detail == TelemetryDetail::Full);
    let target = |claim: &NodeClaim| ObjectRef::Claim(claim.name());
    object_events(before, now, target, &REPORTED_BY_DECIDERS)
}

/// Events for a changed or deleted NodePool.
pub(crate) fn pool_events(before: Option<&NodePool>, now: Option<&NodePool>) -> Vec<Event> {
    object_events(before, now, |pool| ObjectRef::Pool(pool.name()), &[])
}

/// Events for a changed or deleted Node.
pub(crate) fn node_events(
    detail: TelemetryDetail,
    before: Option<&Node>,
    now: Option<&Node>,
) -> Vec<Event> {
    let before = before.filter(|_| detail == TelemetryDetail::Full);
    let target = |node: &Node| {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        ObjectRef::Node(name.into())
    };
    object_events(before, now, target, &[])
}

/// Events for a changed or deleted object, except conditions of the types in `reported_by_deciders` that turned True. None
/// without a state `before`.
fn object_events<O: HasConditions>(
    before: Option<&O>,
    now: Option<&O>,
    target: impl Fn(&O) -> ObjectRef,
    reported_by_deciders: &[&str],
) -> Vec<Event> {
    let Some(before) = before else {
        return Vec::new();
    };
    let target = target(before);
    let Some(now) = now else {
        return vec![finalized_event(target)];
    };
    condition_changes(before.conditions(), now.conditions())
        .filter(|change| change.to != "True" || !reported_by_deciders.contains(&change.type_))
        .filter_map(|change| change.to_event(&target))
        .collect()
}

/// An object with conditions.
trait HasConditions {
    type Each: ConditionView;
    fn conditions(&self) -> &[Self::Each];
}

impl HasConditions for NodeClaim {
    type Each = Condition;
    fn conditions(&self) -> &[Condition] {
        &self.status.conditions
    }
}

impl HasConditions for NodePool {
    type Each = Condition;
    fn conditions(&self) -> &[Condition] {
        &self.status.conditions
    }
}

impl HasConditions for Node {
    type Each = ObjectCondition;
    fn conditions(&self) -> &[ObjectCondition] {
        &self.status.conditions
    }
}

fn finalized_event(target: ObjectRef) -> Event {
    let text = format!("Finalized {target}");
    Event::normal(target, FINALIZED, text)
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

/// The old and the new status of a condition.
#[derive(Debug)]
struct ConditionChange<'a> {
    type_: &'a str,
    from: &'a str,
    to: &'a str,
    reason: &'a str,
}

impl ConditionChange<'_> {
    /// `None` if the type of the condition cannot be an event reason.
    fn to_event(&self, target: &ObjectRef) -> Option<Event> {
        let is_word = |each: char| each.is_ascii_alphanumeric() || "-_./".contains(each);
        let is_reason = self.type_.len() <= MAX_TYPE_LENGTH && self.type_.chars().all(is_word);
        let text = format!(
            "{TRANSITION}{}, Status: {} -> {}, Reason: {}",
            self.type_, self.from, self.to, self.reason
        );
        is_reason.then(|| Event::normal(target.clone(), self.type_.to_owned(), text))
    }
}

fn condition_changes<'a, C: ConditionView>(
    before: &'a [C],
    now: &'a [C],
) -> impl Iterator<Item = ConditionChange<'a>> {
    now.iter().filter_map(|now| {
        let was = before.iter().find(|was| was.type_() == now.type_());
        let from = was.map_or("Unknown", ConditionView::status);
        (from != now.status()).then(|| ConditionChange {
            type_: now.type_(),
            from,
            to: now.status(),
            reason: now.reason(),
        })
    })
}

#[cfg(test)]
mod tests {
    use mortise_engine::events::fault;
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

    fn reasons_and_messages(events: &[Event]) -> Vec<(&str, &str)> {
        for event in events {
            assert_eq!(fault(event), None);
        }
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
        assert_eq!(
            reasons_and_messages(&pool_events(Some(&before), Some(&now))),
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
        assert_eq!(pool_events(None, Some(&now)), [], "seen for the first time");
        let deleted = pool_events(Some(&now), None);
        assert_eq!(
            reasons_and_messages(&deleted),
            [("Finalized", "Finalized nodepool/x")]
        );
    }

    #[test]
    fn claims_and_nodes_are_reported_in_full_detail_only() {
        let before: NodeClaim = with(&[("Launched", "Unknown"), ("Drained", "Unknown")]);
        let now: NodeClaim = with(&[("Launched", "True"), ("Drained", "True")]);
        let events_at = |detail| claim_events(detail, Some(&before), Some(&now));
        assert_eq!(events_at(TelemetryDetail::Bounded), []);
        let events = events_at(TelemetryDetail::Full);
        let reasons: Vec<&str> = reasons_and_messages(&events)
            .iter()
            .map(|(reason, _)| *reason)
            .collect();
        assert_eq!(reasons, ["Drained"], "deciders tell of Launched");
        let before: Node = with(&[("Ready", "True"), ("a word with spaces", "True")]);
        let now: Node = with(&[("Ready", "Unknown"), ("a word with spaces", "False")]);
        let events = node_events(TelemetryDetail::Full, Some(&before), Some(&now));
        assert_eq!(reasons_and_messages(&events).len(), 1);
        assert_eq!(
            node_events(TelemetryDetail::Bounded, Some(&before), None),
            []
        );
        let deleted = node_events(TelemetryDetail::Full, Some(&before), None);
        assert_eq!(
            reasons_and_messages(&deleted),
            [("Finalized", "Finalized node/x")]
        );
    }
}
