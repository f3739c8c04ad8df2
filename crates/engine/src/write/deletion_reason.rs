//! Who deletes a NodeClaim by force, and why.

use std::fmt;

use mortise_planning::reason::Reason;

use crate::decider_id::DeciderId;

/// Recorded on a NodeClaim before it is deleted by force, for the events of its pods.
#[derive(Clone, Debug, PartialEq)]
pub struct DeletionReason {
    /// The decider that deletes it.
    pub by: DeciderId,
    /// Its reason.
    pub reason: Reason,
}

impl fmt::Display for DeletionReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.by, self.reason)
    }
}
