//! Virtual time: now, what will happen when, and the random numbers that decide how long things take.
//!
//! Invariant: there is one generator and one queue. Whoever draws a number or plans an event does so in the order of the
//! history, so one seed gives one history.

mod action;

use std::collections::BTreeMap;

use jiff::Timestamp;
use mortise_apis::values::{SplitMix64, after};

pub(crate) use action::{Action, StoreEvent};

/// Time, the events to come, and chance.
pub(crate) struct Clock {
    now: Timestamp,
    /// What will happen, by time and then in the order in which it was planned.
    queue: BTreeMap<(Timestamp, u64), Action>,
    planned: u64,
    pub(crate) random: SplitMix64,
}

impl Clock {
    /// A clock that starts at a time and has nothing planned.
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

    /// Time passes. Whoever calls this takes what is due.
    pub(crate) const fn advance(&mut self, to: Timestamp) {
        self.now = to;
    }

    /// Plans something for a time.
    pub(crate) fn at(&mut self, at: Timestamp, action: Action) {
        self.planned += 1;
        self.queue.insert((at, self.planned), action);
    }

    /// Plans something, `ms` milliseconds from now.
    pub(crate) fn in_ms(&mut self, ms: i64, action: Action) {
        self.at(after(self.now, ms.max(0)), action);
    }

    /// When the next thing happens.
    pub(crate) fn next_at(&self) -> Option<Timestamp> {
        self.queue.keys().next().map(|(at, _)| *at)
    }

    /// The next thing that is due, which then is planned no more.
    pub(crate) fn take_due(&mut self) -> Option<Action> {
        let first = self.queue.first_entry()?;
        (first.key().0 <= self.now).then(|| first.remove())
    }

    /// Everything that is planned, in order.
    pub(crate) fn planned(&self) -> impl Iterator<Item = &Action> {
        self.queue.values()
    }

    /// Forgets what is planned and not kept.
    pub(crate) fn retain(&mut self, is_kept: impl Fn(&Action) -> bool) {
        self.queue.retain(|_, action| is_kept(action));
    }
}
