//! Why a pod could not be scheduled on other nodes.

use std::fmt;

use serde::Serialize;

use super::{PoolBlocker, Reason, SchedulingFailure};
use mortise_apis::names::PodKey;

/// A pod that could not be scheduled on other nodes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct UnschedulablePod {
    /// The pod.
    pub pod: PodKey,
    /// Why.
    pub why: UnschedulableCause,
}

/// Why one pod cannot be scheduled elsewhere.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum UnschedulableCause {
    /// The scheduler's message, and the blocker of the first NodePool.
    Refused {
        /// The message.
        message: String,
        /// The blocker, if NodePools are what rejects the pod.
        blocker: Option<PoolBlocker>,
    },
    /// The scheduler reports nothing.
    Unknown,
    /// Only on this node, which is not initialized.
    Uninitialized {
        /// The node.
        node: String,
    },
}

impl From<&[Reason]> for UnschedulableCause {
    fn from(reasons: &[Reason]) -> Self {
        Self::Refused {
            message: SchedulingFailure::new(reasons).to_string(),
            blocker: reasons.iter().find_map(|reason| match reason {
                Reason::PoolRefused { blocker, .. } => Some(*blocker),
                _ => None,
            }),
        }
    }
}

impl fmt::Display for UnschedulableCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused { message, .. } => f.write_str(message),
            Self::Unknown => f.write_str("no place"),
            Self::Uninitialized { node } => {
                write!(f, "would schedule against uninitialized {node}")
            }
        }
    }
}
