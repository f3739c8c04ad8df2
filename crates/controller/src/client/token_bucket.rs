//! Token bucket with a rate and a burst.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The bucket. Callers wait in order of arrival, within the precision of the runtime's timers.
#[derive(Debug)]
pub(crate) struct TokenBucket {
    per_second: f64,
    burst: f64,
    state: Mutex<BucketState>,
}

#[derive(Debug)]
struct BucketState {
    /// May be negative: waiting callers have already taken their token.
    tokens: f64,
    at: Instant,
}

impl TokenBucket {
    pub(crate) fn new(per_second: f64, burst: u32) -> Self {
        let burst = f64::from(burst.max(1));
        Self {
            per_second: per_second.max(0.001),
            burst,
            state: Mutex::new(BucketState {
                tokens: burst,
                at: Instant::now(),
            }),
        }
    }

    /// Takes a token, and waits until it is available.
    pub(crate) async fn acquire(&self) {
        let wait = self.acquire_above(f64::NEG_INFINITY);
        if let Some(wait) = wait.filter(|wait| !wait.is_zero()) {
            tokio::time::sleep(wait).await;
        }
    }

    /// Takes a token in advance: later callers wait longer.
    pub(crate) fn overdraw(&self) {
        self.acquire_above(f64::NEG_INFINITY);
    }

    /// Takes a token if one is available.
    pub(crate) fn try_acquire(&self) -> bool {
        self.acquire_above(0.0).is_some()
    }

    /// Takes a token unless fewer than `floor` would remain. Returns the wait until it is available.
    fn acquire_above(&self, floor: f64) -> Option<Duration> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let gained = now.duration_since(state.at).as_secs_f64() * self.per_second;
        let tokens = (state.tokens + gained).min(self.burst);
        state.at = now;
        if tokens - 1.0 < floor {
            state.tokens = tokens;
            return None;
        }
        state.tokens = tokens - 1.0;
        Some(Duration::from_secs_f64(
            (-state.tokens).max(0.0) / self.per_second,
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_passes_and_the_rest_waits() {
        let limiter = TokenBucket::new(10.0, 5);
        let start = Instant::now();
        for _ in 0..5 {
            limiter.acquire().await;
        }
        assert_eq!(start.elapsed(), Duration::ZERO);
        assert!(!limiter.try_acquire());
        limiter.overdraw();
        assert_eq!(start.elapsed(), Duration::ZERO, "it does not wait");
        for _ in 0..9 {
            limiter.acquire().await;
        }
        let took = start.elapsed().as_millis();
        assert!(
            (990..=1010).contains(&took),
            "{took} ms for 10 calls at 10 per second"
        );
    }
}
