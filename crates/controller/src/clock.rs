//! Time is injected in the controller too.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;

/// Source of the current time. The simulator runs the same service in virtual time.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// The current time.
    fn now(&self) -> Timestamp;
}

/// The system clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// Time until `then`; zero if it has passed.
#[must_use]
pub(crate) fn until(now: Timestamp, then: Timestamp) -> Duration {
    Duration::try_from(then.duration_since(now)).unwrap_or(Duration::ZERO)
}
