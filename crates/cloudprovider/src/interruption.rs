//! Interruption notices of a cloud.

use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;

/// Type of an interruption notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum InterruptionKind {
    /// The instance will be interrupted within minutes.
    SpotInterruption,
    /// The instance has an elevated risk of interruption.
    RebalanceRecommendation,
    /// Maintenance or retirement of the instance is scheduled.
    ScheduledChange,
    /// The instance is stopping or shutting down.
    Stopping,
    /// The instance is stopped or terminated.
    Terminated,
    /// A message that requires no action.
    Other,
}

impl InterruptionKind {
    /// Value in metrics: Karpenter's `message_type`.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::SpotInterruption => "spot_interrupted",
            Self::RebalanceRecommendation => "rebalance_recommendation",
            Self::ScheduledChange => "scheduled_change",
            Self::Stopping => "instance_stopped",
            Self::Terminated => "instance_terminated",
            Self::Other => "no_op",
        }
    }
}

/// One message of a cloud. It is acknowledged (deleted from the queue) only when its consequences are decided.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct InterruptionNotice {
    /// Handle of the message in the queue, for the acknowledgement.
    pub id: Arc<str>,
    /// Type of the notice.
    pub kind: InterruptionKind,
    /// Affected instances, by the last part of their provider ID (such as `i-0123`).
    pub instances: Vec<Arc<str>>,
    /// When the cloud sent it.
    pub sent: Option<Timestamp>,
}
