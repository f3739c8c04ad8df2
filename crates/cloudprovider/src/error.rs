//! Errors of a cloud, classified once by its provider.

use serde::Serialize;

use crate::launch::UnavailableOffering;

/// Why a launch gave no machine.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum LaunchError {
    /// No offering had capacity. The claim is given up and its pods are planned again.
    #[error("insufficient capacity: {message}")]
    InsufficientCapacity {
        /// What the cloud said.
        message: String,
        /// The offerings that were found empty.
        unavailable: Vec<UnavailableOffering>,
    },
    /// The node class is missing or not ready. The claim is given up.
    #[error("node class is not ready: {message}")]
    NodeClassNotReady {
        /// Why.
        message: String,
    },
    /// The cloud refused for a reason that has a name; the claim is kept and tried again.
    #[error("{reason}: {message}")]
    Create {
        /// Condition reason, CamelCase.
        reason: String,
        /// What the cloud said.
        message: String,
    },
    /// Anything else; tried again with back-off.
    #[error("{0}")]
    Other(CloudError),
}

/// What to do about a failed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Retry {
    /// Call again, with back-off.
    Again,
    /// The same call will fail the same way.
    Never,
}

/// A failed call to a cloud, classified once by its provider.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct CloudError {
    /// A word from a closed list of the provider, for metrics: `throttled`, `unauthorized`, `unreachable` ...
    pub label: &'static str,
    /// What the cloud said.
    pub message: String,
    /// Whether to call again.
    pub retry: Retry,
}
