//! Whether the picture of the cluster can be trusted to be current.
//!
//! A watch that is silent may be quiet or broken; only an answer from the API server tells them apart. The Lease loop (or
//! a probe where there is none) talks to it every two seconds and notes that here; each watch notes whether it stands.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// What is known about the connection to the API server.
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
    /// The API server answered.
    pub(crate) fn answered(&self) {
        let now = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        // Never zero again: zero means that it has not answered at all.
        self.answered_ms.store(now.max(1), Ordering::Relaxed);
    }

    /// A watch broke (`true`), or stands again.
    pub(crate) fn watch_broke(&self, broke: bool) {
        if broke {
            self.broken.fetch_add(1, Ordering::Relaxed);
        } else {
            self.broken.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// How long ago the API server last answered while every watch stood; `None` while one is broken.
    pub(crate) fn proof(&self) -> Option<Duration> {
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
        assert_eq!(liveness.proof(), None);
        liveness.answered();
        assert!(liveness.proof().is_some());
        liveness.watch_broke(true);
        assert_eq!(liveness.proof(), None);
        liveness.watch_broke(false);
        assert!(liveness.proof().is_some());
    }
}
