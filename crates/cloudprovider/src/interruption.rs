//! Notices of a cloud about its instances.

use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;

/// What a cloud announces about machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum InterruptionKind {
    /// The machine will be taken back within minutes.
    SpotInterruption,
    /// The machine is more likely than others to be taken back.
    RebalanceRecommendation,
    /// Maintenance or retirement was announced for it.
    ScheduledChange,
    /// It is stopping or shutting down.
    Stopping,
    /// It is stopped or gone.
    Terminated,
    /// A message that asks for nothing.
    Other,
}

impl InterruptionKind {
    /// The metric label, which is upstream's `message_type` value.
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

/// One message from a cloud. It is acknowledged (deleted from the queue) only when what it asks for has been decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InterruptionNotice {
    /// The queue's handle of the message, for the acknowledgement.
    pub id: Arc<str>,
    /// What it announces.
    pub kind: InterruptionKind,
    /// The machines concerned, by the last part of their provider id (such as `i-0123`).
    pub instances: Vec<Arc<str>>,
    /// When the cloud sent it.
    pub sent: Option<Timestamp>,
}
