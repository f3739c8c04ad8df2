//! Why a new node is not proven.

use std::fmt;

use jiff::Timestamp;
use serde::Serialize;

use mortise_apis::names::{ClaimName, PodKey};

/// A new node that is not proven: it, or a pod on it, has not been ready for long enough.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct UnprovenNode {
    /// Its NodeClaim.
    pub claim: ClaimName,
    /// What is missing.
    pub why: UnprovenCause,
}

/// What a new node lacks to be proven.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum UnprovenCause {
    /// It is not initialized: not launched, not registered, or a start-up taint or a resource is missing.
    NotInitialized,
    /// The condition `Ready` of its Node is not `True`.
    NotReady,
    /// This pod on it is not ready. Pods of Jobs do not count: they complete.
    PodNotReady(PodKey),
    /// Everything is ready, and has been for long enough at this time.
    Until(Timestamp),
}

impl UnprovenCause {
    /// Lower: rather needs a person. Nodes become ready by themselves; pods that are not ready on nodes that are may never be.
    #[must_use]
    pub fn urgency(&self) -> u8 {
        match self {
            Self::PodNotReady(_) => 0,
            Self::NotReady => 1,
            Self::NotInitialized => 2,
            Self::Until(_) => 3,
        }
    }

    /// The cause without names and times.
    #[must_use]
    pub fn summary(&self) -> &'static str {
        match self {
            Self::PodNotReady(_) => "pods on new nodes are not ready",
            Self::NotReady => "new nodes are not ready",
            Self::NotInitialized => "new nodes are not initialized",
            Self::Until(_) => "new nodes are not ready for long enough",
        }
    }
}

impl fmt::Display for UnprovenNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodeClaim {}: ", self.claim)?;
        match &self.why {
            UnprovenCause::NotInitialized => f.write_str("not initialized"),
            UnprovenCause::NotReady => f.write_str("its Node is not ready"),
            UnprovenCause::PodNotReady(pod) => write!(f, "pod {pod} is not ready"),
            UnprovenCause::Until(at) => write!(f, "ready, proven at {at}"),
        }
    }
}
