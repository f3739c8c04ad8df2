//! Events, from records. [`events_of`] is the only place that makes them: deciders record what they decided and why, and the
//! verdict with its reasons determines type, reason and text of what users see.
//!
//! - `rules`: the table of reasons, types, objects and periods.
//! - `of_pods`, `of_disruption`, `of_nodes`: which row and which text a record has.

mod of_disruption;
mod of_nodes;
mod of_pods;
mod rules;

use std::borrow::Cow;

use crate::effect::Event;
use crate::record::{Record, Verdict, Visibility};
use mortise_apis::names::ObjectRef;
use mortise_planning::reason::Reason;
pub use rules::{EventRule, RULES, fault};

/// Conditions come from objects that others write: a type that is too long or not a word is not used as an event reason.
const MAX_TYPE_LENGTH: usize = 128;

/// What one event says.
struct Sentence {
    rule: EventRule,
    /// Instead of the reason of the rule.
    condition: Option<String>,
    text: String,
    /// What makes it another event, if that is not its text.
    key: Option<String>,
}

impl Sentence {
    fn new(rule: EventRule, text: impl Into<String>) -> Self {
        Self {
            rule,
            condition: None,
            text: text.into(),
            key: None,
        }
    }

    /// A text that begins as the rule says.
    fn begun(rule: EventRule, rest: impl std::fmt::Display) -> Self {
        Self::new(rule, format!("{}{rest}", rule.begins))
    }

    /// Events with the same key are the same event, whatever their texts.
    fn keyed(self, key: impl Into<String>) -> Self {
        Self {
            key: Some(key.into()),
            ..self
        }
    }

    /// A condition that became what it is. `None` if its type cannot be an event reason.
    fn of_transition(type_: &str, (from, to): (&str, &str), why: &str) -> Option<Self> {
        let is_word = |each: char| each.is_ascii_alphanumeric() || "-_./".contains(each);
        let is_reason = type_.len() <= MAX_TYPE_LENGTH && type_.chars().all(is_word);
        let rest = format!("{type_}, Status: {from} -> {to}, Reason: {why}");
        is_reason.then(|| Self {
            condition: Some(type_.to_owned()),
            ..Self::begun(rules::CONDITION, rest)
        })
    }

    fn into_event(self, target: &ObjectRef) -> Event {
        let Self {
            rule,
            condition,
            text,
            key,
        } = self;
        Event {
            target: target.clone(),
            warning: rule.warning,
            reason: condition.map_or(Cow::Borrowed(rule.reason), Cow::Owned),
            message: text,
            dedupe_key: key,
            dedupe_ms: rule.every_s * 1_000,
        }
    }
}

/// The events of a record: for each thing that it says, one on the subject and one on each related object. None for a
/// record that only the decision log or metrics show.
#[must_use]
pub fn events_of(record: &Record) -> Vec<Event> {
    if record.visibility != Visibility::Event {
        return Vec::new();
    }
    let objects = || std::iter::once(&record.subject).chain(&record.related);
    let mut of_objects: Vec<_> = objects()
        .map(|object| (object, sentences(record, object).into_iter()))
        .collect();
    let mut events = Vec::new();
    loop {
        let before = events.len();
        for (object, sentences) in &mut of_objects {
            events.extend(sentences.next().map(|each| each.into_event(object)));
        }
        if events.len() == before {
            return events;
        }
    }
}

/// What a record says to users of an object.
fn sentences(record: &Record, object: &ObjectRef) -> Vec<Sentence> {
    let one = |sentence: Option<Sentence>| sentence.into_iter().collect();
    match record.verdict {
        Verdict::Nominated
        | Verdict::Unschedulable
        | Verdict::Ignored
        | Verdict::Stalled
        | Verdict::Evicted => one(of_pods::sentence(record)),
        Verdict::NodePlanned
        | Verdict::Disrupted
        | Verdict::Refused
        | Verdict::Abandoned
        | Verdict::Considered
        | Verdict::Approved => one(of_disruption::sentence(record, object)),
        Verdict::Notified => of_nodes::notice(record, object),
        Verdict::Launched => one(became_true("Launched")),
        Verdict::Registered => one(became_true("Registered")),
        Verdict::Initialized => one(became_true("Initialized")),
        Verdict::Condition => one(transition(record, object)),
        Verdict::Blocked => one(of_nodes::blocked(record, object)),
        Verdict::Waiting | Verdict::Terminating => one(of_nodes::terminating(record, object)),
        Verdict::LaunchFailed | Verdict::Observed => one(of_nodes::observed(record)),
        Verdict::LeftToScheduler | Verdict::Withdrawn | Verdict::Removed => Vec::new(),
    }
}

fn became_true(type_: &'static str) -> Option<Sentence> {
    Sentence::of_transition(type_, ("Unknown", "True"), type_)
}

fn transition(record: &Record, object: &ObjectRef) -> Option<Sentence> {
    match record.reasons.first()? {
        Reason::Transition {
            condition,
            from,
            to,
            why,
        } => Sentence::of_transition(condition, (from, to), why),
        Reason::Drifted { why } => Sentence::of_transition("Drifted", ("Unknown", "True"), why),
        Reason::Finalized => Some(Sentence::begun(rules::FINALIZED, object)),
        reason @ Reason::LaunchesResumed => {
            Some(Sentence::new(rules::LAUNCHES_RESUMED, reason.to_string()))
        }
        _ => None,
    }
}
