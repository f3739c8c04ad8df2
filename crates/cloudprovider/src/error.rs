//! Errors of a cloud, classified once by its provider.

use mortise_apis::values::StaticText;
use serde::{Deserialize, Deserializer, Serialize};

use crate::launch::UnavailableOffering;

/// Why a launch created no instance.
#[derive(Clone, Debug, PartialEq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LaunchError {
    /// No offering had capacity. The NodeClaim is deleted and its pods are scheduled again.
    #[error("insufficient capacity: {message}")]
    InsufficientCapacity {
        /// Message of the cloud.
        message: String,
        /// Offerings without capacity.
        unavailable: Vec<UnavailableOffering>,
        /// When the first of what lacks capacity is asked for again, in milliseconds; `None`: at any time.
        again_ms: Option<i64>,
        /// What the account has to have before any of it can be launched; `None`: nothing that is known.
        missing: Option<Prerequisite>,
    },
    /// The node class is missing or not ready. The NodeClaim is deleted.
    #[error("node class is not ready: {message}")]
    NodeClassNotReady {
        /// Reason.
        message: String,
    },
    /// The cloud rejected the launch for a known reason; the NodeClaim is kept and retried.
    #[error("{reason}: {message}")]
    Create {
        /// Condition reason, CamelCase.
        reason: String,
        /// Message of the cloud.
        message: String,
    },
    /// Any other error; retried with backoff.
    #[error("{0}")]
    Other(CloudError),
}

/// Something that the account must have before the cloud launches instances of a kind. A person has to make it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Prerequisite {
    /// What cannot be launched, and what is missing: a sentence without a full stop.
    pub what: &'static str,
    /// What a person does about it, once.
    pub remedy: &'static str,
}

impl std::fmt::Display for Prerequisite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.what, self.remedy)
    }
}

/// Whether to retry a failed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Retry {
    /// Retry with backoff.
    Again,
    /// The same call will fail in the same way.
    Never,
}

/// A failed call to a cloud, classified once by its provider.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize)]
#[error("{message}")]
pub struct CloudError {
    /// A value of a closed list of the provider, for metrics: `throttled`, `unauthorized`, `unreachable` ...
    pub label: &'static str,
    /// Message of the cloud.
    pub message: String,
    /// Whether to retry.
    pub retry: Retry,
}

impl<'de> Deserialize<'de> for Prerequisite {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Stored {
            what: StaticText,
            remedy: StaticText,
        }
        let stored = Stored::deserialize(deserializer)?;
        Ok(Self {
            what: stored.what.0,
            remedy: stored.remedy.0,
        })
    }
}

impl<'de> Deserialize<'de> for CloudError {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Stored {
            label: StaticText,
            message: String,
            retry: Retry,
        }
        let stored = Stored::deserialize(deserializer)?;
        Ok(Self {
            label: stored.label.0,
            message: stored.message,
            retry: stored.retry,
        })
    }
}
