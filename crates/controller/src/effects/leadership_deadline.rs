//! Until when this process may send writes.
//!
//! The election ends a term when it notices that the Lease was not renewed in time. A process that was frozen or short of CPU
//! may resume in the middle of a request, before its election has checked the clock. Therefore every writer checks this
//! deadline immediately before it sends: the check depends only on the clock, which continues while a process is frozen.

use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use tokio::time::Instant;

/// Leave to act until a moment. At first there is none.
#[derive(Debug)]
pub(crate) struct LeadershipDeadline {
    base: Instant,
    /// Milliseconds after `base`; 0 = no leave.
    until: AtomicU64,
}

impl LeadershipDeadline {
    /// No leave.
    pub(crate) fn new() -> Self {
        Self {
            base: Instant::now(),
            until: AtomicU64::new(0),
        }
    }

    /// This process may act until then.
    pub(crate) fn extend(&self, until: Instant) {
        let after = until.saturating_duration_since(self.base);
        let after = u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
        self.until.store(after, Ordering::Release);
    }

    /// Without leader election, this process may write indefinitely.
    pub(crate) fn extend_indefinitely(&self) {
        self.until.store(u64::MAX, Ordering::Release);
    }

    /// This process may not act any more.
    pub(crate) fn end(&self) {
        self.until.store(0, Ordering::Release);
    }

    /// Goes on with something while this process may act: asked each time before it goes on. `None`: it was cut off.
    pub(crate) async fn while_valid<F: Future>(&self, what: F) -> Option<F::Output> {
        let mut what = std::pin::pin!(what);
        std::future::poll_fn(|context| {
            if self.is_valid() {
                what.as_mut().poll(context).map(Some)
            } else {
                Poll::Ready(None)
            }
        })
        .await
    }

    /// Whether this process may act now.
    pub(crate) fn is_valid(&self) -> bool {
        self.base.elapsed() < Duration::from_millis(self.until.load(Ordering::Acquire))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process that was frozen between two steps does not take the second one.
    #[tokio::test(start_paused = true)]
    async fn what_has_several_steps_is_cut_off_between_them() {
        let license = LeadershipDeadline::new();
        let steps = AtomicU64::new(0);
        let work = async {
            for _ in 0..3 {
                steps.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_secs(4)).await;
            }
        };
        license.extend(Instant::now() + Duration::from_secs(6));
        assert_eq!(license.while_valid(work).await, None);
        assert_eq!(steps.load(Ordering::Relaxed), 2);
        license.extend_indefinitely();
        assert_eq!(license.while_valid(async { 7 }).await, Some(7));
    }

    #[tokio::test(start_paused = true)]
    async fn it_ends_by_the_clock_alone() {
        let license = LeadershipDeadline::new();
        assert!(!license.is_valid(), "not extended yet");
        license.extend(Instant::now() + Duration::from_secs(10));
        assert!(license.is_valid());
        tokio::time::advance(Duration::from_secs(10)).await;
        assert!(!license.is_valid(), "not renewed");
        license.extend_indefinitely();
        tokio::time::advance(Duration::from_hours(1000)).await;
        assert!(license.is_valid());
        license.end();
        assert!(!license.is_valid());
    }
}
