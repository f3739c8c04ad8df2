//! Whether the cluster state can be assumed to be current.
//!
//! A silent watch may be idle or broken; only a response from the API server tells the two apart. The Lease loop (or a probe
//! without leader election) sends a request every two seconds and records each response here; each watch records whether it is
//! broken.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// State of the connection to the API server.
#[derive(Debug)]
pub(crate) struct WatchHealth {
    start: Instant,
    answered_ms: AtomicU64,
    broken: AtomicUsize,
}

impl Default for WatchHealth {
    fn default() -> Self {
        Self {
            start: Instant::now(),
            answered_ms: AtomicU64::new(0),
            broken: AtomicUsize::new(0),
        }
    }
}

impl WatchHealth {
    /// Records a response of the API server.
    pub(crate) fn record_response(&self) {
        let now = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        // Never zero again: zero means that there was no response yet.
        self.answered_ms.store(now.max(1), Ordering::Relaxed);
    }

    /// Records that a watch broke (`true`) or was established again.
    pub(crate) fn record_watch_broken(&self, broken: bool) {
        if broken {
            self.broken.fetch_add(1, Ordering::Relaxed);
        } else {
            self.broken.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Time since the last response of the API server while every watch is established; `None` while one is broken.
    pub(crate) fn time_since_confirmed(&self) -> Option<Duration> {
        let answered = Duration::from_millis(self.answered_ms.load(Ordering::Relaxed));
        (self.broken.load(Ordering::Relaxed) == 0 && !answered.is_zero())
            .then(|| self.start.elapsed().saturating_sub(answered))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn live_needs_an_answer_and_every_watch() {
        let liveness = WatchHealth::default();
        assert_eq!(liveness.time_since_confirmed(), None);
        liveness.record_response();
        assert!(liveness.time_since_confirmed().is_some());
        liveness.record_watch_broken(true);
        assert_eq!(liveness.time_since_confirmed(), None);
        liveness.record_watch_broken(false);
        assert!(liveness.time_since_confirmed().is_some());
    }
}
