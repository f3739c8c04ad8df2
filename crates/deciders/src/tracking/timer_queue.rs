//! When to look at which subject again, so that a step looks only at what is due.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use crate::tracking::request_tracker::RequestTracker;

/// One time per subject.
#[derive(Clone, Debug)]
pub(crate) struct TimerQueue<K> {
    times: BTreeMap<K, Timestamp>,
    queue: BTreeSet<(Timestamp, K)>,
}

impl<K: Ord + Clone> TimerQueue<K> {
    pub(crate) const fn new() -> Self {
        Self {
            times: BTreeMap::new(),
            queue: BTreeSet::new(),
        }
    }

    /// Sets the subject's time, or removes it when there is none.
    pub(crate) fn set(&mut self, key: &K, at: Option<Timestamp>) {
        if let Some(old) = self.times.remove(key) {
            self.queue.remove(&(old, key.clone()));
        }
        if let Some(at) = at {
            self.times.insert(key.clone(), at);
            self.queue.insert((at, key.clone()));
        }
    }

    /// Moves the subject's time forward, if it has none or a later one.
    pub(crate) fn sooner(&mut self, key: &K, at: Timestamp) {
        if self.times.get(key).is_none_or(|known| *known > at) {
            self.set(key, Some(at));
        }
    }

    /// Takes out the subjects whose time has come.
    pub(crate) fn due(&mut self, now: Timestamp) -> Vec<K> {
        let mut due = Vec::new();
        while self.queue.first().is_some_and(|(at, _)| *at <= now)
            && let Some((_, key)) = self.queue.pop_first()
        {
            self.times.remove(&key);
            due.push(key);
        }
        due
    }

    /// The earliest time.
    pub(crate) fn next(&self) -> Option<Timestamp> {
        self.queue.first().map(|(at, _)| *at)
    }

    /// Whether the subject has a time.
    #[cfg(test)]
    pub(crate) fn has(&self, key: &K) -> bool {
        self.times.contains_key(key)
    }
}

/// The earlier of two times that may be missing.
pub(crate) fn earlier(a: Option<Timestamp>, b: Option<Timestamp>) -> Option<Timestamp> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (one, None) | (None, one) => one,
    }
}

/// Begins what is neither running nor waiting.
///
/// # Errors
/// It may not begin now: the time at which it may, or `None` while it runs (its outcome brings the decider back).
pub(crate) fn attempt<K: Ord + Clone>(
    flights: &mut RequestTracker<K>,
    key: &K,
    now: Timestamp,
) -> Result<(), Option<Timestamp>> {
    if flights.begin(key, now) {
        Ok(())
    } else {
        Err(flights.waits_until(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mortise_apis::values::after;

    #[test]
    fn a_subject_has_one_time() {
        let t0 = Timestamp::UNIX_EPOCH;
        let mut agenda = TimerQueue::new();
        agenda.set(&"a", Some(after(t0, 10)));
        agenda.set(&"b", Some(after(t0, 5)));
        agenda.set(&"a", Some(after(t0, 3)));
        assert_eq!(agenda.next(), Some(after(t0, 3)));
        assert!(agenda.due(after(t0, 2)).is_empty());
        assert_eq!(agenda.due(after(t0, 10)), ["a", "b"]);
        agenda.set(&"a", Some(t0));
        agenda.set(&"a", None);
        assert!(!agenda.has(&"a"));
        assert_eq!(agenda.next(), None);
    }

    #[test]
    fn an_attempt_says_when_to_come_back() {
        let t0 = Timestamp::UNIX_EPOCH;
        let mut flights = RequestTracker::new(100, 1000);
        assert_eq!(attempt(&mut flights, &1, t0), Ok(()));
        assert_eq!(attempt(&mut flights, &1, t0), Err(None));
        flights.failed(&1, t0);
        assert_eq!(attempt(&mut flights, &1, t0), Err(Some(after(t0, 100))));
    }
}
