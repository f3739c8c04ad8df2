//! Capacity buffers: what they were resolved to, and whether there is room for it.
//!
//! May: write the status of CapacityBuffers, when it changes.
//!
//! Must never: decide what a buffer asks for, or where its room is. The index resolves buffers
//! ([`BufferDemand`](mortise_state::snapshot::BufferDemand)), provisioning places their virtual pods and records the result in the ledger; both appear
//! in the status here. It never touches buffers whose strategy is of another domain: another controller serves them.
//!
//! Implements karpenter-core 1.5 (status, conditions) and 7.4. With the feature gate off it does nothing.

mod status;

use std::collections::BTreeSet;

use jiff::Timestamp;

use crate::tracking::event_throttle::EventThrottle;
use crate::tracking::timer_queue::TimerQueue;
use crate::tracking::write_tracker::WriteTracker;
use mortise_apis::names::{NamespacedName, ObjectRef};
use mortise_apis::schema::conditions;
use mortise_engine::decider::{Decider, InboxMessage, Step, StepInput};
use mortise_engine::decider_id::DeciderId;
use mortise_engine::effect::Effect;
use mortise_engine::write::ObjectWrite;
use mortise_planning::settings::Settings;
use mortise_state::index::Changes;

/// The decider. See the module's documentation.
#[derive(Debug)]
pub struct CapacityBufferDecider {
    agenda: TimerQueue<NamespacedName>,
    outbox: WriteTracker,
    told: EventThrottle,
}

impl Default for CapacityBufferDecider {
    fn default() -> Self {
        Self {
            agenda: TimerQueue::new(),
            outbox: WriteTracker::new(),
            told: EventThrottle::default(),
        }
    }
}

impl CapacityBufferDecider {
    fn look(
        &mut self,
        input: &StepInput<'_>,
        key: &NamespacedName,
        step: &mut Step,
    ) -> Option<Timestamp> {
        let buffer = input.snapshot.buffers.get(key)?;
        let demand = input.snapshot.demand.get(key)?;
        let room = input.snapshot.ledger.rooms().0.get(key);
        let status = status::new_status(buffer, demand, room, input.now)?;
        let write = ObjectWrite::buffer_status(buffer, status.clone());
        if let Err(at) = self.outbox.send(input.now, write, step) {
            return at;
        }
        let target = ObjectRef::Buffer(key.clone());
        let by = (input, DeciderId::CapacityBuffer);
        for type_ in status::TYPES {
            if let Some(condition) = conditions::find(&status.conditions, type_) {
                self.told.condition(by, &target, type_, condition, step);
            }
        }
        None
    }
}

impl Decider for CapacityBufferDecider {
    fn id(&self) -> DeciderId {
        DeciderId::CapacityBuffer
    }

    fn fresh(&self) -> Box<dyn Decider> {
        Box::new(Self::default())
    }

    fn is_needed(&self, settings: &Settings) -> bool {
        settings.gates.capacity_buffer
    }

    fn is_interested(&self, changes: &Changes) -> bool {
        // Provisioning tells of room by the ledger.
        changes.everything || changes.demand || changes.ledger
    }

    fn step(&mut self, input: &StepInput<'_>, _stop: &dyn Fn() -> bool) -> Step {
        let mut step = Step::default();
        let mut names: BTreeSet<NamespacedName> = self.agenda.due(input.now).into_iter().collect();
        for delivery in input.inbox {
            if let InboxMessage::Outcome(outcome) = delivery
                && let Effect::Write(ObjectWrite {
                    target: ObjectRef::Buffer(key),
                    ..
                }) = &*outcome.effect
            {
                self.outbox
                    .answered(input.now, &outcome.effect, &outcome.result);
                names.insert(key.clone());
            }
        }
        if self.is_interested(input.changes) {
            names.extend(input.snapshot.demand.keys().cloned());
        }
        for key in names {
            let again = self.look(input, &key, &mut step);
            self.agenda.set(&key, again);
        }
        self.told.sweep(input.now);
        self.outbox.sweep(input.now, input.snapshot);
        if let Some(at) = self.agenda.next() {
            step.wake_at(at);
        }
        step
    }
}
