//! What is planned for later times.

use std::collections::BTreeMap;

use jiff::Timestamp;

/// Planned events: by time, those of one time in the order of planning.
#[derive(Debug)]
pub(crate) struct EventQueue<T> {
    events: BTreeMap<(Timestamp, u64), T>,
    planned: u64,
}

impl<T> EventQueue<T> {
    pub(crate) const fn new() -> Self {
        Self {
            events: BTreeMap::new(),
            planned: 0,
        }
    }

    /// Plans an event for a time.
    pub(crate) fn plan(&mut self, at: Timestamp, event: T) {
        self.planned += 1;
        self.events.insert((at, self.planned), event);
    }

    /// Time of the next event.
    pub(crate) fn next_at(&self) -> Option<Timestamp> {
        self.events.keys().next().map(|(at, _)| *at)
    }

    /// Removes and returns the next event if it is due.
    pub(crate) fn take_due(&mut self, now: Timestamp) -> Option<T> {
        let first = self.events.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }

    /// All events, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.events.values()
    }

    /// Removes the events that do not match.
    pub(crate) fn retain(&mut self, is_kept: impl Fn(&T) -> bool) {
        self.events.retain(|_, event| is_kept(event));
    }
}

impl<T> Default for EventQueue<T> {
    fn default() -> Self {
        Self::new()
    }
}
