//! Virtual time: the current time, the planned events, and the random numbers for durations.
//!
//! Invariant: there is one generator and one queue. Numbers are drawn and events are planned in the order of the history, so
//! one seed gives one history.

mod action;

use std::collections::BTreeMap;

use jiff::Timestamp;
use mortise_apis::values::{SplitMix64, after};

pub(crate) use action::{Action, StoreEvent};

/// Time, planned events and the random number generator.
pub(crate) struct Clock {
    now: Timestamp,
    /// Planned events by time, then in the order of planning.
    queue: BTreeMap<(Timestamp, u64), Action>,
    planned: u64,
    pub(crate) random: SplitMix64,
}

impl Clock {
    /// A clock without planned events.
    pub(crate) const fn new(start: Timestamp, seed: u64) -> Self {
        Self {
            now: start,
            queue: BTreeMap::new(),
            planned: 0,
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
        self.planned += 1;
        self.queue.insert((at, self.planned), action);
    }

    /// Plans an event in `ms` milliseconds.
    pub(crate) fn in_ms(&mut self, ms: i64, action: Action) {
        self.at(after(self.now, ms.max(0)), action);
    }

    /// Time of the next planned event.
    pub(crate) fn next_at(&self) -> Option<Timestamp> {
        self.queue.keys().next().map(|(at, _)| *at)
    }

    /// Removes and returns the next due event.
    pub(crate) fn take_due(&mut self) -> Option<Action> {
        let first = self.queue.first_entry()?;
        (first.key().0 <= self.now).then(|| first.remove())
    }

    /// All planned events, in order.
    pub(crate) fn planned(&self) -> impl Iterator<Item = &Action> {
        self.queue.values()
    }

    /// Removes the planned events that do not match.
    pub(crate) fn retain(&mut self, is_kept: impl Fn(&Action) -> bool) {
        self.queue.retain(|_, action| is_kept(action));
    }
}
