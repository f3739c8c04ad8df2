//! Events of conditions that became something else, and of objects that came to their end.
//!
//! Deciders tell of `LaunchedInstance`, `Registered`, `Initialized` and `Drifted` themselves, with what led there. The others are
//! read off the objects, as the library behind Karpenter's kinds does: those of pools always, those of claims and Nodes only
//! where everything is to be told, because there are a dozen in every node's life.

use mortise_apis::k8s::{Node, ObjectCondition};
use mortise_apis::names::ObjectRef;
use mortise_apis::{Condition, NodeClaim, NodePool};
use mortise_engine::effect::Event;
use mortise_engine::events::{FINALIZED, TRANSITION};

use crate::config::TelemetryDetail;

/// Types that deciders tell of when they turn True.
const TOLD_BY_DECIDERS: [&str; 4] = ["Launched", "Registered", "Initialized", "Drifted"];
/// Conditions are read from objects that others write: what is no word makes no reason of an event.
const MOST_TYPE: usize = 128;

/// A claim became another, or went.
pub(crate) fn of_claim(
    detail: TelemetryDetail,
    before: Option<&NodeClaim>,
    now: Option<&NodeClaim>,
) -> Vec<Event> {
    let before = before.filter(|_| detail == TelemetryDetail::Full);
    let target = |claim: &NodeClaim| ObjectRef::Claim(claim.name());
    of_object(before, now, target, &TOLD_BY_DECIDERS)
}

/// A pool became another, or went.
pub(crate) fn of_pool(before: Option<&NodePool>, now: Option<&NodePool>) -> Vec<Event> {
    of_object(before, now, |pool| ObjectRef::Pool(pool.name()), &[])
}

/// A Node became another, or went.
pub(crate) fn of_node(
    detail: TelemetryDetail,
    before: Option<&Node>,
    now: Option<&Node>,
) -> Vec<Event> {
    let before = before.filter(|_| detail == TelemetryDetail::Full);
    let target = |node: &Node| {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        ObjectRef::Node(name.into())
    };
    of_object(before, now, target, &[])
}

/// What became of an object, but for conditions of types `left_to_deciders` that turned True. Nothing of one that was not
/// there `before`.
fn of_object<O: HasConditions>(
    before: Option<&O>,
    now: Option<&O>,
    target: impl Fn(&O) -> ObjectRef,
    left_to_deciders: &[&str],
) -> Vec<Event> {
    let Some(before) = before else {
        return Vec::new();
    };
    let target = target(before);
    let Some(now) = now else {
        return vec![finalized(target)];
    };
    changes(before.conditions(), now.conditions())
        .filter(|change| change.to != "True" || !left_to_deciders.contains(&change.type_))
        .filter_map(|change| change.event(&target))
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

fn finalized(target: ObjectRef) -> Event {
    let text = format!("Finalized {target}");
    Event::normal(target, FINALIZED, text)
}

/// A condition as one object or the other has it.
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

/// What a condition was and is.
#[derive(Debug)]
struct ConditionChange<'a> {
    type_: &'a str,
    from: &'a str,
    to: &'a str,
    reason: &'a str,
}

impl ConditionChange<'_> {
    /// `None` when the condition's type is no word that an event may have for its reason.
    fn event(&self, target: &ObjectRef) -> Option<Event> {
        let is_word = |each: char| each.is_ascii_alphanumeric() || "-_./".contains(each);
        let is_reason = self.type_.len() <= MOST_TYPE && self.type_.chars().all(is_word);
        let text = format!(
            "{TRANSITION}{}, Status: {} -> {}, Reason: {}",
            self.type_, self.from, self.to, self.reason
        );
        is_reason.then(|| Event::normal(target.clone(), self.type_.to_owned(), text))
    }
}

fn changes<'a, C: ConditionView>(
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

    fn told(events: &[Event]) -> Vec<(&str, &str)> {
        for event in events {
            assert_eq!(fault(event), None);
        }
        let words = events.iter();
        words
            .map(|event| (&*event.reason, event.message.as_str()))
            .collect()
    }

    #[test]
    fn every_change_of_a_status_is_told_and_what_stays_is_not() {
        let before: NodePool = with(&[("Ready", "False"), ("NodeClassReady", "True")]);
        let now: NodePool = with(&[
            ("Ready", "True"),
            ("NodeClassReady", "True"),
            ("ValidationSucceeded", "False"),
        ]);
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
        let gone = of_pool(Some(&now), None);
        assert_eq!(told(&gone), [("Finalized", "Finalized nodepool/x")]);
    }

    #[test]
    fn claims_and_nodes_are_told_of_where_everything_is() {
        let before: NodeClaim = with(&[("Launched", "Unknown"), ("Drained", "Unknown")]);
        let now: NodeClaim = with(&[("Launched", "True"), ("Drained", "True")]);
        let of = |detail| of_claim(detail, Some(&before), Some(&now));
        assert_eq!(of(TelemetryDetail::Bounded), []);
        let events = of(TelemetryDetail::Full);
        let reasons: Vec<&str> = told(&events).iter().map(|(reason, _)| *reason).collect();
        assert_eq!(reasons, ["Drained"], "deciders tell of Launched");
        let before: Node = with(&[("Ready", "True"), ("a word with spaces", "True")]);
        let now: Node = with(&[("Ready", "Unknown"), ("a word with spaces", "False")]);
        let events = of_node(TelemetryDetail::Full, Some(&before), Some(&now));
        assert_eq!(told(&events).len(), 1);
        assert_eq!(of_node(TelemetryDetail::Bounded, Some(&before), None), []);
        let gone = of_node(TelemetryDetail::Full, Some(&before), None);
        assert_eq!(told(&gone), [("Finalized", "Finalized node/x")]);
    }
}
