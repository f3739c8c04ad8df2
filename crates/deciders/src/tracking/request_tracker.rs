//! What was asked for and is not answered yet, so that it is not asked for twice; with back-off after failures.

use std::collections::BTreeMap;

use jiff::Timestamp;

use mortise_apis::values::{after, doubled};

/// Per subject: in flight, or failed and waiting.
#[derive(Clone, Debug)]
pub struct RequestTracker<K> {
    entries: BTreeMap<K, Entry>,
    base_ms: i64,
    max_ms: i64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    running: bool,
    failures: u32,
    not_before: Timestamp,
}

impl<K: Ord + Clone> RequestTracker<K> {
    /// Back-off after the first failure and the most it grows to, doubling.
    #[must_use]
    pub const fn new(base_ms: i64, max_ms: i64) -> Self {
        Self {
            entries: BTreeMap::new(),
            base_ms,
            max_ms,
        }
    }

    /// Begins, unless it is running already or must still wait. `true` = go.
    pub fn begin(&mut self, key: &K, now: Timestamp) -> bool {
        match self.entries.get_mut(key) {
            Some(entry) if entry.running || entry.not_before > now => false,
            Some(entry) => {
                entry.running = true;
                true
            }
            None => {
                self.entries.insert(
                    key.clone(),
                    Entry {
                        running: true,
                        failures: 0,
                        not_before: now,
                    },
                );
                true
            }
        }
    }

    /// Another term begins: failures of the last one say nothing, most of them having been its end. What runs goes on.
    pub fn forgive(&mut self) {
        self.entries.retain(|_, entry| entry.running);
        for entry in self.entries.values_mut() {
            entry.failures = 0;
        }
    }

    /// It was answered well: forget it.
    pub fn succeeded(&mut self, key: &K) {
        self.entries.remove(key);
    }

    /// It failed: it may begin again after the back-off. Returns when.
    pub fn failed(&mut self, key: &K, now: Timestamp) -> Timestamp {
        let (base, max) = (self.base_ms, self.max_ms);
        let entry = self.entries.entry(key.clone()).or_insert(Entry {
            running: false,
            failures: 0,
            not_before: now,
        });
        entry.running = false;
        let wait = doubled(base, entry.failures, max);
        entry.failures = entry.failures.saturating_add(1);
        entry.not_before = after(now, wait);
        entry.not_before
    }

    /// When a waiting subject may begin; `None` when it is not waiting.
    #[must_use]
    pub fn waits_until(&self, key: &K) -> Option<Timestamp> {
        self.entries
            .get(key)
            .filter(|entry| !entry.running)
            .map(|entry| entry.not_before)
    }

    /// It is running.
    #[must_use]
    pub fn is_running(&self, key: &K) -> bool {
        self.entries.get(key).is_some_and(|entry| entry.running)
    }

    /// Failures in a row.
    #[must_use]
    pub fn failures(&self, key: &K) -> u32 {
        self.entries.get(key).map_or(0, |entry| entry.failures)
    }

    /// Forgets subjects that are not running and not in the set any more.
    pub fn retain(&mut self, keep: impl Fn(&K) -> bool) {
        self.entries.retain(|key, entry| entry.running || keep(key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn begins_once_and_backs_off_doubling() {
        let t0 = Timestamp::UNIX_EPOCH;
        let mut flights = RequestTracker::new(100, 350);
        assert!(flights.begin(&"a", t0));
        assert!(!flights.begin(&"a", t0));
        assert_eq!(flights.failed(&"a", t0), after(t0, 100));
        assert!(!flights.begin(&"a", after(t0, 99)));
        assert!(flights.begin(&"a", after(t0, 100)));
        assert_eq!(flights.failed(&"a", t0), after(t0, 200));
        assert_eq!(flights.failed(&"a", t0), after(t0, 350));
        flights.succeeded(&"a");
        assert!(flights.begin(&"a", t0));
    }

    #[test]
    fn another_term_waits_for_nothing_but_what_runs() {
        let t0 = Timestamp::UNIX_EPOCH;
        let mut flights = RequestTracker::new(100, 350);
        for key in ["failed", "runs"] {
            assert!(flights.begin(&key, t0));
        }
        flights.failed(&"failed", t0);
        flights.forgive();
        assert!(flights.begin(&"failed", t0));
        assert_eq!(flights.failed(&"failed", t0), after(t0, 100));
        assert!(!flights.begin(&"runs", t0));
    }
}
