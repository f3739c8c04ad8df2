//! Lines of the log about what anybody can cause, a minute apart.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Between two lines.
const QUIET: Duration = Duration::from_secs(60);

/// When the last line was written, and how often it was due since.
#[derive(Debug, Default)]
pub(super) struct Seldom {
    inner: Mutex<(Option<Instant>, u64)>,
}

impl Seldom {
    /// How often it happened since the last line, this time included, when another line is due.
    pub(super) fn due(&self) -> Option<u64> {
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
    async fn a_line_a_minute_says_how_often() {
        let seldom = Seldom::default();
        assert_eq!(seldom.due(), Some(1));
        assert_eq!((seldom.due(), seldom.due()), (None, None));
        tokio::time::advance(QUIET).await;
        assert_eq!(seldom.due(), Some(3));
        assert_eq!(seldom.due(), None);
    }
}
