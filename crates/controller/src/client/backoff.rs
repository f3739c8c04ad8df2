//! Backoff between attempts: exponential, bounded, and with jitter so that replicas do not synchronize.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::time::Duration;

/// Exponential backoff with jitter.
#[derive(Clone, Debug)]
pub(crate) struct Backoff {
    base: Duration,
    max: Duration,
    failures: u32,
}

impl Backoff {
    /// Takes the first and the longest wait.
    pub(crate) const fn new(base: Duration, max: Duration) -> Self {
        Self {
            base,
            max,
            failures: 0,
        }
    }

    /// Resets to the first wait after a success.
    pub(crate) const fn reset(&mut self) {
        self.failures = 0;
    }

    /// Failures in a row.
    pub(crate) const fn failures(&self) -> u32 {
        self.failures
    }

    /// The next wait: between 50 % and 100 % of `base * 2^failures`, at most `max`.
    pub(crate) fn next(&mut self) -> Duration {
        let full = self
            .base
            .saturating_mul(1_u32.checked_shl(self.failures.min(20)).unwrap_or(u32::MAX))
            .min(self.max);
        self.failures = self.failures.saturating_add(1);
        let half = full / 2;
        half + jitter(full.saturating_sub(half))
    }
}

/// A random part of a duration.
pub(crate) fn jitter(most: Duration) -> Duration {
    let millis = u64::try_from(most.as_millis()).unwrap_or(u64::MAX);
    Duration::from_millis(random() % millis.saturating_add(1))
}

/// A random number, for jitter only: decisions must be deterministic.
pub(crate) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_up_to_its_bound_and_begins_again() {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_millis(350));
        for full in [100, 200, 350, 350] {
            let wait = backoff.next().as_millis();
            assert!((full / 2..=full).contains(&wait), "{wait} for {full}");
        }
        assert_eq!(backoff.failures(), 4);
        backoff.reset();
        assert!(backoff.next() <= Duration::from_millis(100));
    }
}
