//! What was said already, so that something that stays true is said once and not at every look.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, Hash};

use foldhash::fast::FixedState;
use jiff::Timestamp;

use mortise_apis::Condition;
use mortise_apis::names::ObjectRef;
use mortise_apis::values::since;
use mortise_engine::decider::{Step, StepInput};
use mortise_engine::decider_id::DeciderId;
use mortise_engine::record::Verdict;
use mortise_planning::pause::Pause;
use mortise_planning::reason::Reason;
use mortise_state::watch_age::OldWatch;

/// How long something said is remembered at most. Longer than every period with which things are said again.
const REMEMBERED_MS: i64 = 60 * 60_000;

/// A kind of facts, as a number.
type Kind = u64;

/// What was said per subject, topic and kind of facts.
///
/// Cost: one entry per subject, topic and kind that was ever worth a word in the last hour.
#[derive(Clone, Debug, Default)]
pub(crate) struct EventThrottle {
    said: BTreeMap<(ObjectRef, &'static str, Kind), LastReport>,
    swept: Option<Timestamp>,
}

#[derive(Clone, Debug)]
struct LastReport {
    /// Stands for the facts.
    facts: u64,
    at: Timestamp,
}

impl EventThrottle {
    /// Whether this is worth saying: other facts than last time, or the same after `every_ms`. If so it counts as said.
    pub(crate) fn is_news(
        &mut self,
        subject: &ObjectRef,
        topic: &'static str,
        facts: &(impl Hash + ?Sized),
        now: Timestamp,
        every_ms: i64,
    ) -> bool {
        self.is_news_of(subject, topic, (&(), facts), now, (0, every_ms))
    }

    /// Whether facts of some kind are worth saying: a kind that was not said yet at once, other facts of a kind after
    /// the first period, the same facts after the second. If so they count as said. Kinds that take turns are each said
    /// once per period.
    pub(crate) fn is_news_of(
        &mut self,
        subject: &ObjectRef,
        topic: &'static str,
        (kind, facts): (&impl Hash, &(impl Hash + ?Sized)),
        now: Timestamp,
        (facts_every_ms, same_every_ms): (i64, i64),
    ) -> bool {
        let hash = FixedState::with_seed(5);
        let (kind, facts) = (hash.hash_one(kind), hash.hash_one(facts));
        let key = (subject.clone(), topic, kind);
        if let Some(said) = self.said.get(&key) {
            let every_ms = if said.facts == facts {
                same_every_ms
            } else {
                facts_every_ms
            };
            if since(now, said.at) < every_ms {
                return false;
            }
        }
        self.said.insert(key, LastReport { facts, at: now });
        true
    }

    /// Counts facts of a kind as said now, for whoever says them for another cause than their being news.
    pub(crate) fn count_as_said(
        &mut self,
        subject: &ObjectRef,
        topic: &'static str,
        (kind, facts): (&impl Hash, &(impl Hash + ?Sized)),
        now: Timestamp,
    ) {
        self.is_news_of(subject, topic, (kind, facts), now, (0, 0));
    }

    /// Records a condition, once for each reason and message in a row.
    pub(crate) fn condition(
        &mut self,
        (input, by): (&StepInput<'_>, DeciderId),
        subject: &ObjectRef,
        type_: &'static str,
        condition: &Condition,
        step: &mut Step,
    ) {
        let facts = (&condition.reason, &condition.message);
        if self.is_news(subject, type_, &facts, input.now, i64::MAX) {
            let why = format!("{}: {}", condition.reason, condition.message);
            let reason = Reason::ConditionIs {
                condition: type_.to_owned(),
                status: condition.status.to_string(),
                why,
            };
            let reasons = vec![reason];
            step.record(input, by, subject.clone(), Verdict::Condition, reasons);
        }
    }

    /// Says that nothing is done about a subject as long as a watch is old, once a minute.
    pub(crate) fn outdated(
        &mut self,
        (input, by): (&StepInput<'_>, DeciderId),
        subject: &ObjectRef,
        old: OldWatch,
        step: &mut Step,
    ) {
        if self.is_news(subject, "outdated", &old.kind, input.now, 60_000) {
            let reasons = vec![Reason::Outdated(old)];
            step.record(input, by, subject.clone(), Verdict::Blocked, reasons);
        }
    }

    /// Says that a pause protects a subject, and again after this time.
    pub(crate) fn paused(
        &mut self,
        (input, by): (&StepInput<'_>, DeciderId),
        subject: ObjectRef,
        (pause, every_ms): (Pause, i64),
        step: &mut Step,
    ) {
        if self.is_news(&subject, "paused", &pause, input.now, every_ms) {
            let reasons = vec![Reason::Paused(pause)];
            step.announce(input, by, [subject], Verdict::Blocked, reasons);
        }
    }

    /// Forgets a topic of a subject: it is over, and if it comes back it is news.
    pub(crate) fn forget(&mut self, subject: &ObjectRef, topic: &'static str) {
        let of = |kind| (subject.clone(), topic, kind);
        let known = self.said.range(of(Kind::MIN)..=of(Kind::MAX));
        let keys: Vec<_> = known.map(|(key, _)| key.clone()).collect();
        for key in keys {
            self.said.remove(&key);
        }
    }

    /// Drops what is older than is remembered. Cheap to call at every step: it works once a minute.
    pub(crate) fn sweep(&mut self, now: Timestamp) {
        if self.swept.is_some_and(|at| since(now, at) < 60_000) {
            return;
        }
        self.swept = Some(now);
        self.said
            .retain(|_, said| since(now, said.at) < REMEMBERED_MS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mortise_apis::values::after;

    #[test]
    fn other_facts_of_a_kind_wait_and_another_kind_does_not() {
        let t0 = Timestamp::UNIX_EPOCH;
        let node = ObjectRef::Node("n".into());
        let mut told = EventThrottle::default();
        let mut says = |kind: u8, text: &str, ms| {
            told.is_news_of(&node, "a", (&kind, text), after(t0, ms), (500, 1_000))
        };
        assert!(says(1, "x", 0));
        assert!(!says(1, "y", 499), "other facts, too soon");
        assert!(says(2, "y", 499), "another kind");
        assert!(!says(1, "x", 999), "and back, too soon");
        assert!(says(1, "y", 999), "other facts, later");
        assert!(!says(2, "y", 1_498), "the other kind, too soon");
        assert!(says(2, "y", 1_499), "the other kind, later");
        assert!(says(1, "y", 1_999), "the same, later");
    }

    #[test]
    fn says_again_when_the_text_changes_or_time_has_passed() {
        let t0 = Timestamp::UNIX_EPOCH;
        let node = ObjectRef::Node("n".into());
        let mut told = EventThrottle::default();
        assert!(told.is_news(&node, "a", "x", t0, 1_000));
        assert!(!told.is_news(&node, "a", "x", after(t0, 999), 1_000));
        assert!(told.is_news(&node, "a", "y", after(t0, 999), 1_000));
        assert!(told.is_news(&node, "b", "y", after(t0, 999), 1_000));
        assert!(told.is_news(&node, "a", "y", after(t0, 1_999), 1_000));
        told.forget(&node, "a");
        assert!(told.is_news(&node, "a", "y", after(t0, 2_000), 1_000));
        told.sweep(after(t0, 2 * REMEMBERED_MS));
        assert!(told.said.is_empty());
    }
}
