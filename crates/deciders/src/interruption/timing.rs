//! When an announced interruption is acted on: replacing begins a day ahead, and the drain leaves its pods the time that they may
//! take.

use jiff::Timestamp;
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::values::{GoDuration, after};
use mortise_cloudprovider::{InterruptionKind, PlannedInterruption};

/// Replacing begins this long before the interruption. Until then the node may go for another reason, which saves a replacement.
const AHEAD_MS: i64 = 24 * 3_600_000;
/// A drain without a termination grace period is given this long.
const DRAIN_MS: i64 = 5 * 60_000;
/// The instance is terminated this long before the interruption at the latest.
const MARGIN_MS: i64 = 60_000;

/// The kinds that leave time for a replacement.
pub(super) const fn can_wait(kind: InterruptionKind) -> bool {
    matches!(
        kind,
        InterruptionKind::ScheduledChange
            | InterruptionKind::EventStatus
            | InterruptionKind::CapacityBlockExpiration
            | InterruptionKind::RebalanceRecommendation
    )
}

/// The times of a planned interruption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Schedule {
    /// When replacing begins.
    pub(super) begin: Timestamp,
    /// When the node is drained at the latest; `None` without a deadline.
    pub(super) drain_by: Option<Timestamp>,
}

impl Schedule {
    /// The times of this interruption of this NodeClaim's instance; `None` when it leaves no time.
    pub(super) fn new(plan: PlannedInterruption, claim: &NodeClaim) -> Option<Self> {
        let PlannedInterruption { kind, starts } = plan;
        if !can_wait(kind) {
            return None;
        }
        let Some(starts) = starts else {
            // A recommendation has no time; of the others, one without a time may begin at any moment.
            let is_advice = kind == InterruptionKind::RebalanceRecommendation;
            return is_advice.then_some(Self {
                begin: Timestamp::MIN,
                drain_by: None,
            });
        };
        let drain_by = after(starts, -(drain_ms(claim).saturating_add(MARGIN_MS)));
        Some(Self {
            begin: after(starts, -AHEAD_MS).min(drain_by),
            drain_by: Some(drain_by),
        })
    }
}

/// The longest that its pods may take to go.
fn drain_ms(claim: &NodeClaim) -> i64 {
    let period = claim.spec.termination_grace_period.as_ref();
    let period = period.and_then(|text| GoDuration::parse(text.as_str()).ok());
    period.map_or(DRAIN_MS, |period| period.as_nanos() / 1_000_000)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schedule(
        kind: InterruptionKind,
        starts: Option<&str>,
        period: Option<&str>,
    ) -> Option<Schedule> {
        let claim =
            json!({ "metadata": { "name": "c" }, "spec": { "terminationGracePeriod": period } });
        let claim: NodeClaim = serde_json::from_value(claim).unwrap();
        let starts = starts.map(|text| text.parse().unwrap());
        Schedule::new(PlannedInterruption { kind, starts }, &claim)
    }

    #[test]
    fn drains_end_before_the_interruption() {
        let starts = Some("2026-01-10T12:00:00Z");
        let event = |period| schedule(InterruptionKind::ScheduledChange, starts, period).unwrap();
        assert_eq!(event(None).begin.to_string(), "2026-01-09T12:00:00Z");
        let drain_by = |period| event(period).drain_by.unwrap().to_string();
        assert_eq!(drain_by(None), "2026-01-10T11:54:00Z");
        assert_eq!(drain_by(Some("1h")), "2026-01-10T10:59:00Z");
        let long = event(Some("48h"));
        assert_eq!(Some(long.begin), long.drain_by);
    }

    #[test]
    fn what_cannot_wait_has_no_schedule() {
        let starts = Some("2026-01-10T12:00:00Z");
        for kind in [
            InterruptionKind::SpotInterruption,
            InterruptionKind::SystemStatus,
        ] {
            assert_eq!(schedule(kind, starts, None), None);
        }
        assert_eq!(schedule(InterruptionKind::EventStatus, None, None), None);
        let advice = schedule(InterruptionKind::RebalanceRecommendation, None, None).unwrap();
        assert_eq!(advice.drain_by, None);
    }
}
