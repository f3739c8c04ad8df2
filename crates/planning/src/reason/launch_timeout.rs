//! Why a NodeClaim is deleted before it is a node.

use serde::Serialize;

/// Why a NodeClaim is deleted: its launch found nothing, or a step took too long. Karpenter's labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LaunchTimeout {
    /// No capacity of what the NodeClaim allows.
    InsufficientCapacity,
    /// The node class is not ready.
    #[serde(rename = "nodeclass_not_ready")]
    NodeClassNotReady,
    /// The instance was not launched in time.
    LaunchTimeout,
    /// The node did not register in time.
    RegistrationTimeout,
    /// The node was not initialized in time.
    InitializationTimeout,
}

impl LaunchTimeout {
    /// Value of labels, and of `why` in records.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::InsufficientCapacity => "insufficient_capacity",
            Self::NodeClassNotReady => "nodeclass_not_ready",
            Self::LaunchTimeout => "launch_timeout",
            Self::RegistrationTimeout => "registration_timeout",
            Self::InitializationTimeout => "initialization_timeout",
        }
    }
}
