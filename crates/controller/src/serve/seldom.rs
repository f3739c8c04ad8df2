//! Rate limit of log lines that any caller can cause: one per minute.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Time between two lines.
const QUIET: Duration = Duration::from_secs(60);

/// Time of the last line, and the number of occurrences since.
#[derive(Debug, Default)]
pub(super) struct Seldom {
    inner: Mutex<(Option<Instant>, u64)>,
}

impl Seldom {
    /// Number of occurrences since the last line, this one included, when another line is due.
    pub(super) fn count_when_due(&self) -> Option<u64> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let (said, since) = &mut *inner;
        *since += 1;
        if said.is_some_and(|at| at.elapsed() < QUIET) {
            return None;
        }
        *said = Some(Instant::now());
        Some(std::mem::take(since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_line_a_minute_carries_the_count() {
        let seldom = Seldom::default();
        assert_eq!(seldom.count_when_due(), Some(1));
        assert_eq!(
            (seldom.count_when_due(), seldom.count_when_due()),
            (None, None)
        );
        tokio::time::advance(QUIET).await;
        assert_eq!(seldom.count_when_due(), Some(3));
        assert_eq!(seldom.count_when_due(), None);
    }
}
