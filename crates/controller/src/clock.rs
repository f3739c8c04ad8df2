//! Time is a port in the shell too.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;

/// Tells the time. The simulator drives the same service in virtual time.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// Now.
    fn now(&self) -> Timestamp;
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// How long until `then`; zero when it is over.
#[must_use]
pub(crate) fn until(now: Timestamp, then: Timestamp) -> Duration {
    Duration::try_from(then.duration_since(now)).unwrap_or(Duration::ZERO)
}
