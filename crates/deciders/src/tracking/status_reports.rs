//! Statuses of objects that are judged, and not acted on.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::event_throttle::EventThrottle;
use super::timer_queue::TimerQueue;
use super::write_tracker::WriteTracker;
use mortise_apis::names::ObjectRef;
use mortise_apis::schema::conditions::{self, Condition};
use mortise_engine::decider::{InboxMessage, Step, StepInput};
use mortise_engine::decider_id::DeciderId;
use mortise_engine::effect::Effect;
use mortise_engine::write::ObjectWrite;

/// The objects of one kind, each judged again when it is due, written, or changed.
#[derive(Debug)]
pub(crate) struct StatusReports<K> {
    agenda: TimerQueue<K>,
    writer: StatusWriter,
}

/// Writes statuses, and records the conditions in them.
#[derive(Debug)]
pub(crate) struct StatusWriter {
    by: DeciderId,
    outbox: WriteTracker,
    told: EventThrottle,
}

impl<K: Ord + Clone> StatusReports<K> {
    /// Nothing is known yet.
    pub(crate) fn new(by: DeciderId) -> Self {
        Self {
            agenda: TimerQueue::new(),
            writer: StatusWriter {
                by,
                outbox: WriteTracker::new(),
                told: EventThrottle::default(),
            },
        }
    }

    /// Judges the changed objects, those that are due, and those of which a write was answered: `key_of` says which of the targets
    /// are of the kind. `judge` returns when the object is due again.
    pub(crate) fn step(
        &mut self,
        input: &StepInput<'_>,
        key_of: impl Fn(&ObjectRef) -> Option<K>,
        changed: impl Iterator<Item = K>,
        mut judge: impl FnMut(&mut StatusWriter, &StepInput<'_>, &K, &mut Step) -> Option<Timestamp>,
    ) -> Step {
        let mut step = Step::default();
        let mut keys: BTreeSet<K> = self.agenda.due(input.now).into_iter().collect();
        for delivery in input.inbox {
            if let InboxMessage::Outcome(outcome) = delivery
                && let Effect::Write(write) = &*outcome.effect
                && let Some(key) = key_of(&write.target)
            {
                let outbox = &mut self.writer.outbox;
                outbox.answered(input.now, &outcome.effect, &outcome.result);
                keys.insert(key);
            }
        }
        keys.extend(changed);
        for key in keys {
            let again = judge(&mut self.writer, input, &key, &mut step);
            self.agenda.set(&key, again);
        }
        self.writer.told.sweep(input.now);
        self.writer.outbox.sweep(input.now, input.snapshot);
        if let Some(at) = self.agenda.next() {
            step.wake_at(at);
        }
        step
    }
}

impl StatusWriter {
    /// Sends a write of something else than the status of an object of this kind.
    ///
    /// # Errors
    /// It was not sent: when to come back, or `None` while an earlier one is under way (its outcome comes).
    pub(crate) fn send(
        &mut self,
        now: Timestamp,
        write: ObjectWrite,
        step: &mut Step,
    ) -> Result<(), Option<Timestamp>> {
        self.outbox.send(now, write, step)
    }

    /// Writes a status, and records these of its conditions. Returns when to try again, if it cannot be written now.
    pub(crate) fn write(
        &mut self,
        input: &StepInput<'_>,
        write: ObjectWrite,
        (list, types): (&[Condition], &[&'static str]),
        step: &mut Step,
    ) -> Option<Timestamp> {
        let target = write.target.clone();
        if let Err(at) = self.outbox.send(input.now, write, step) {
            return at;
        }
        for type_ in types {
            if let Some(condition) = conditions::find(list, type_) {
                let by = (input, self.by);
                self.told.condition(by, &target, type_, condition, step);
            }
        }
        None
    }
}
