//! Interruption notices of a cloud: what it announces about instances, and where the announcements come from.
//!
//! # Invariant
//! A notice may come twice, late, or about an instance of another cluster. What must not be lost is acknowledged only when what it
//! asks for is stored; what is polled comes again by itself.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::boxed::BoxFuture;
use crate::error::CloudError;

/// Type of an interruption notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
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
    /// The owner of a capacity reservation takes the instance's capacity back.
    CapacityReservationInterruption,
    /// The capacity block that the instance runs in ends soon.
    CapacityBlockExpiration,
    /// The status check of the instance itself has been failing for a while.
    InstanceStatus,
    /// The status check of the host below the instance has been failing for a while.
    SystemStatus,
    /// A status report of the instance names a scheduled event.
    EventStatus,
    /// A message that requires no action.
    Other,
}

impl InterruptionKind {
    pub(crate) const ALL: [Self; 11] = [
        Self::SpotInterruption,
        Self::RebalanceRecommendation,
        Self::ScheduledChange,
        Self::Stopping,
        Self::Terminated,
        Self::CapacityReservationInterruption,
        Self::CapacityBlockExpiration,
        Self::InstanceStatus,
        Self::SystemStatus,
        Self::EventStatus,
        Self::Other,
    ];

    /// Value in metrics: Karpenter's `message_type`, and its reason of a disruption.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::SpotInterruption => "spot_interrupted",
            Self::RebalanceRecommendation => "rebalance_recommendation",
            Self::ScheduledChange => "scheduled_change",
            Self::Stopping => "instance_stopped",
            Self::Terminated => "instance_terminated",
            Self::CapacityReservationInterruption => "capacity_reservation_interrupted",
            Self::CapacityBlockExpiration => "capacity_block_expiration",
            Self::InstanceStatus => "instance_status",
            Self::SystemStatus => "system_status",
            Self::EventStatus => "event_status",
            Self::Other => "no_op",
        }
    }

    /// Parses a label.
    #[must_use]
    pub fn parse(label: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.label() == label)
    }

    /// Category in Karpenter's metric of unhealthy instances; `None` for what is no status of an instance.
    #[must_use]
    pub const fn status_category(self) -> Option<&'static str> {
        match self {
            Self::InstanceStatus => Some("InstanceStatus"),
            Self::SystemStatus => Some("SystemStatus"),
            Self::EventStatus => Some("EventStatus"),
            _ => None,
        }
    }

    /// Whether nothing on the instance can be expected to answer any more, so that pods and volumes are not waited for.
    #[must_use]
    pub const fn is_forceful(self) -> bool {
        matches!(self, Self::InstanceStatus | Self::SystemStatus)
    }
}

/// One announcement. A message of a queue is acknowledged only when its consequences are stored.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct InterruptionNotice {
    /// Handle of the message in its queue, for the acknowledgement; `None` for what was polled, which is not acknowledged.
    pub id: Option<Arc<str>>,
    /// Type of the notice.
    pub kind: InterruptionKind,
    /// Affected instances, by the last part of their provider ID (such as `i-0123`).
    pub instances: Vec<Arc<str>>,
    /// When the cloud sent it.
    pub sent: Option<Timestamp>,
    /// When what it announces begins; `None`: at once, or at a time that the cloud does not say.
    pub starts: Option<Timestamp>,
}

/// An interruption as it is stored on a NodeClaim: its kind, and when it begins if that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PlannedInterruption {
    /// Type of the notice.
    pub kind: InterruptionKind,
    /// When it begins.
    pub starts: Option<Timestamp>,
}

impl PlannedInterruption {
    /// Parses what [`fmt::Display`] writes; `None` for anything else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (kind, starts) = match text.split_once(' ') {
            Some((kind, starts)) => (kind, Some(starts.parse().ok()?)),
            None => (text, None),
        };
        let kind = InterruptionKind::parse(kind)?;
        Some(Self { kind, starts })
    }
}

impl fmt::Display for PlannedInterruption {
    /// The kind's label and, after a space, the start in whole seconds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.label())?;
        match self.starts {
            Some(starts) => write!(f, " {}", starts.strftime("%Y-%m-%dT%H:%M:%SZ")),
            None => Ok(()),
        }
    }
}

/// Where notices come from: a queue, or a status that is polled.
pub trait NoticeSource: Send + Sync {
    /// What it is, for logs and metrics: lower case, with dashes.
    fn name(&self) -> &'static str;

    /// Waits for the next notices; none after a while without any. Paces itself.
    fn next(&self) -> BoxFuture<'_, Result<Vec<InterruptionNotice>, CloudError>>;

    /// What is conspicuous about the source itself; `None`: nothing. Asked after each answer, and reported when it changes.
    fn fault(&self) -> Option<String> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_is_read_again() {
        for kind in InterruptionKind::ALL {
            for starts in [None, "2026-01-02T03:04:05Z".parse().ok()] {
                let plan = PlannedInterruption { kind, starts };
                assert_eq!(PlannedInterruption::parse(&plan.to_string()), Some(plan));
            }
        }
        for text in ["", "spot", "scheduled_change tomorrow", "scheduled_change "] {
            assert_eq!(PlannedInterruption::parse(text), None, "{text:?}");
        }
    }
}
