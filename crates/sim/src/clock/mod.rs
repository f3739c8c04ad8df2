//! Virtual time: the current time, the planned events, and the random numbers for durations.
//!
//! Invariant: there is one generator and one queue. Numbers are drawn and events are planned in the order of the history, so
//! one seed gives one history.

mod action;
mod event_queue;

use jiff::Timestamp;
use mortise_apis::values::{SplitMix64, after};

pub(crate) use action::{Action, StoreEvent};
pub(crate) use event_queue::EventQueue;

/// Time, planned events and the random number generator.
pub(crate) struct Clock {
    now: Timestamp,
    queue: EventQueue<Action>,
    pub(crate) random: SplitMix64,
}

impl Clock {
    /// A clock without planned events.
    pub(crate) const fn new(start: Timestamp, seed: u64) -> Self {
        Self {
            now: start,
            queue: EventQueue::new(),
            random: SplitMix64::new(seed),
        }
    }

    /// Virtual time.
    pub(crate) const fn now(&self) -> Timestamp {
        self.now
    }

    /// Advances the time. The caller then takes the due events.
    pub(crate) const fn advance(&mut self, to: Timestamp) {
        self.now = to;
    }

    /// Plans an event for a time.
    pub(crate) fn at(&mut self, at: Timestamp, action: Action) {
        self.queue.plan(at, action);
    }

    /// Plans an event in `ms` milliseconds.
    pub(crate) fn in_ms(&mut self, ms: i64, action: Action) {
        self.at(after(self.now, ms.max(0)), action);
    }

    /// Time of the next planned event.
    pub(crate) fn next_at(&self) -> Option<Timestamp> {
        self.queue.next_at()
    }

    /// Removes and returns the next due event.
    pub(crate) fn take_due(&mut self) -> Option<Action> {
        self.queue.take_due(self.now)
    }

    /// All planned events, in order.
    pub(crate) fn planned(&self) -> impl Iterator<Item = &Action> {
        self.queue.iter()
    }

    /// Removes the planned events that do not match.
    pub(crate) fn retain(&mut self, is_kept: impl Fn(&Action) -> bool) {
        self.queue.retain(is_kept);
    }
}
