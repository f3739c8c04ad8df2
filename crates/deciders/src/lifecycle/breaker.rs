//! States and transitions of the circuit breaker that stops launches of a NodePool whose nodes do not register.

use jiff::Timestamp;

use mortise_apis::names::PoolName;
use mortise_planning::reason::Reason;

/// Whether another instance may be launched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LaunchDecision {
    /// Launches are allowed.
    Allow,
    /// Wait until others have registered or timed out; why, and when to check again if that is known.
    Wait(String, Option<Timestamp>),
    /// The claim is deleted, so that its pods are scheduled again; why.
    Reject(Reason),
}

/// State of the breaker of one template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BreakerState {
    /// No node of the template has registered yet.
    Unproven,
    /// One has.
    Closed,
    /// Several in a row did not register; the next probe is launched at `until`. `opened` counts how often that
    /// happened.
    Open { opened: u32, until: Timestamp },
}

/// What the breaker has just done, for the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum BreakerTransition {
    /// Launches stop.
    Opened {
        pool: PoolName,
        failures: u32,
        until: Timestamp,
    },
    /// Launches are allowed again.
    Closed { pool: PoolName },
}
