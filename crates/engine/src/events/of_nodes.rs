//! Events on nodes, NodeClaims, NodePools and node classes outside of disruption.

use super::{Sentence, rules};
use crate::record::{Record, Verdict};
use crate::write::render::annotation_time;
use mortise_apis::labels;
use mortise_apis::names::{ClaimName, ObjectRef};
use mortise_cloudprovider::InterruptionKind;
use mortise_planning::drain_blocker::DrainBlocker;
use mortise_planning::reason::Reason;

/// What the cloud announced, and that the node is terminated because of it.
pub(super) fn notice(record: &Record, object: &ObjectRef) -> Vec<Sentence> {
    let announced = record.reasons.iter().find_map(|reason| match reason {
        Reason::Notice { kind } => announcement(*kind),
        _ => None,
    });
    let is_interrupted = |reason: &Reason| matches!(reason, Reason::Interrupted { .. });
    let terminates = record.reasons.iter().any(is_interrupted).then(|| {
        let kind = object.kind();
        let text = format!("Interruption triggered termination for the {kind}");
        Sentence::new(rules::TERMINATING_ON_INTERRUPTION, text)
    });
    announced.into_iter().chain(terminates).collect()
}

fn announcement(kind: InterruptionKind) -> Option<Sentence> {
    let (rule, text) = match kind {
        InterruptionKind::SpotInterruption => (
            rules::SPOT_INTERRUPTED,
            "Spot interruption warning was triggered",
        ),
        InterruptionKind::RebalanceRecommendation => (
            rules::SPOT_REBALANCE_RECOMMENDATION,
            "Spot rebalance recommendation was triggered",
        ),
        InterruptionKind::ScheduledChange
        | InterruptionKind::InstanceStatus
        | InterruptionKind::SystemStatus
        | InterruptionKind::EventStatus => (
            rules::INSTANCE_UNHEALTHY,
            "An unhealthy warning was triggered for the instance",
        ),
        InterruptionKind::CapacityReservationInterruption => (
            rules::CAPACITY_RESERVATION_INSTANCE_INTERRUPTED,
            "Capacity Reservation interruption warning was triggered",
        ),
        InterruptionKind::CapacityBlockExpiration => (
            rules::CAPACITY_BLOCK_EXPIRING,
            "Capacity Block of the instance ends soon",
        ),
        InterruptionKind::Stopping => (rules::INSTANCE_STOPPING, "Instance is stopping"),
        InterruptionKind::Terminated => (rules::INSTANCE_TERMINATING, "Instance is terminating"),
        InterruptionKind::Other => return None,
    };
    Some(Sentence::new(rule, text))
}

/// Something that should happen cannot.
pub(super) fn blocked(record: &Record, object: &ObjectRef) -> Option<Sentence> {
    let first = record.reasons.first()?;
    if let Some(sentence) = eviction_failed(&record.reasons) {
        return Some(sentence);
    }
    Some(match first {
        Reason::DrainBlocked(blocker) => drain_blocked(record, blocker)?,
        Reason::TooManyUnhealthy { limit, in_pool, .. } => {
            // Karpenter's texts, its spelling included.
            let text = if *in_pool {
                format!("more than {limit} nodes are unhealthy in the nodepool")
            } else {
                format!("more then {limit} nodes are unhealthy in the cluster")
            };
            Sentence::new(rules::NODE_REPAIR_BLOCKED, text)
        }
        Reason::InvalidAnnotation { annotation, .. } => {
            let rule = if *annotation == labels::REBALANCE_RECOMMENDATION {
                rules::INVALID_INTERRUPTION_SETTING
            } else {
                rules::INVALID_REPAIR_SETTING
            };
            Sentence::new(rule, first.to_string())
        }
        Reason::LaunchesPaused { .. } => Sentence::new(rules::LAUNCHES_PAUSED, first.to_string()),
        Reason::NoInstanceTypes { .. } => {
            Sentence::new(rules::NO_COMPATIBLE_INSTANCE_TYPES, first.to_string())
        }
        _ if matches!(object, ObjectRef::Pool(_)) => static_capacity_short(&record.reasons)?,
        _ => {
            Sentence::new(rules::DISRUPTION_BLOCKED, first.karpenter_text()).keyed(first.summary())
        }
    })
}

fn eviction_failed(reasons: &[Reason]) -> Option<Sentence> {
    let pod = reasons.iter().find_map(|reason| match reason {
        Reason::Eviction { pod } => Some(pod),
        _ => None,
    })?;
    let why = match reasons.first()? {
        Reason::Pdb { .. } | Reason::EvictionRejected { .. } => {
            format!("evicting pod {pod} violates a PDB")
        }
        Reason::MultiplePdbs { .. } => {
            format!("eviction of pod {pod} does not support multiple PDBs")
        }
        Reason::Failed { error } => format!("evicting {error}"),
        _ => return None,
    };
    Some(Sentence::begun(rules::FAILED_DRAINING, why))
}

fn drain_blocked(record: &Record, blocker: &DrainBlocker) -> Option<Sentence> {
    let reason = blocker.kind.event();
    let of_blockers = [
        rules::FAILED_DRAINING,
        rules::VOLUME_DETACHMENT_BLOCKED,
        rules::FAILED_TERMINATION,
    ];
    let rule = of_blockers.into_iter().find(|rule| rule.reason == reason)?;
    let key = format!("{} {}", blocker.kind.label(), blocker.what);
    Some(Sentence::begun(rule, blocker.text(record.at)).keyed(key))
}

/// A static NodePool has fewer nodes than replicas.
fn static_capacity_short(reasons: &[Reason]) -> Option<Sentence> {
    let nodes = |wanted: &i64, there: &i64| format!("{there} of {wanted} nodes");
    let text = match reasons {
        [Reason::StaticCapacityOff] => reasons.first()?.to_string(),
        [
            Reason::NoStaticPlan { why },
            Reason::Replicas { wanted, there, .. },
        ] => format!("{}: {why}", nodes(wanted, there)),
        [
            Reason::Limit { message, .. },
            Reason::Replicas { wanted, there, .. },
        ] => format!("{}: {message}", nodes(wanted, there)),
        [reason] => format!("no claim was made: {reason}"),
        _ => return None,
    };
    Some(Sentence::new(rules::STATIC_CAPACITY_SHORT, text))
}

/// A node, NodeClaim or node class is deleted, or something waits for that.
pub(super) fn terminating(record: &Record, object: &ObjectRef) -> Option<Sentence> {
    Some(match record.reasons.first()? {
        Reason::ForDisruption { disruption } if record.verdict == Verdict::Terminating => {
            let text = format!("Disrupting {}: {disruption}", object.kind());
            Sentence::new(rules::DISRUPTION_TERMINATING, text)
        }
        Reason::ReplacementNotReady => Sentence::begun(rules::DISRUPTION_WAITING_READINESS, ""),
        Reason::TerminationDeadline { deadline } => {
            let deadline = annotation_time(*deadline);
            Sentence::begun(rules::TERMINATION_GRACE_PERIOD_EXPIRING, deadline)
        }
        reason @ Reason::PodsWaiting { .. } => {
            Sentence::begun(rules::FAILED_DRAINING, reason).keyed(name_of(object))
        }
        Reason::VolumesAttached { volumes } => {
            let names = format!("({})", volumes.join(", "));
            Sentence::begun(rules::AWAITING_VOLUME_DETACHMENT, names).keyed(name_of(object))
        }
        Reason::UsedBy { claims } => {
            let names: Vec<&str> = claims.iter().map(ClaimName::as_str).collect();
            Sentence::begun(rules::WAITING_ON_NODE_CLAIM_TERMINATION, names.join(", "))
        }
        _ => return None,
    })
}

/// A fact about an object.
pub(super) fn observed(record: &Record) -> Option<Sentence> {
    let first = record.reasons.first()?;
    Some(match first {
        Reason::LaunchTimedOut { .. } => {
            let ObjectRef::Claim(name) = &record.subject else {
                return None;
            };
            let Some(Reason::Failed { error }) = record.reasons.get(1) else {
                return None;
            };
            let text = format!("NodeClaim {name} event: {error}");
            Sentence::new(rules::INSUFFICIENT_CAPACITY_ERROR, text)
        }
        Reason::UnregisteredTaintMissing { .. } => {
            Sentence::new(rules::UNREGISTERED_TAINT_MISSING, first.to_string())
        }
        Reason::PrerequisiteMissing { .. } => {
            Sentence::new(rules::PREREQUISITE_MISSING, first.to_string())
        }
        Reason::BootTaint { .. } => {
            Sentence::new(rules::UNDECLARED_STARTUP_TAINT, first.to_string())
        }
        Reason::ZoneShifted { .. } => Sentence::new(rules::ZONAL_SHIFT_ACTIVE, first.to_string()),
        Reason::ZoneShiftEnded { .. } => {
            Sentence::new(rules::ZONAL_SHIFT_CLEARED, first.to_string())
        }
        Reason::Inconsistent { problem } => {
            Sentence::new(rules::FAILED_CONSISTENCY_CHECK, problem.as_str())
        }
        Reason::InvalidProtection { .. } => {
            Sentence::new(rules::INVALID_DO_NOT_DISRUPT_ANNOTATION, first.to_string())
        }
        Reason::ProtectedUntil { .. } => {
            Sentence::new(rules::DO_NOT_DISRUPT_UNTIL, format!("Pod is {first}"))
        }
        Reason::ProtectionElapsed { .. } => Sentence::new(
            rules::DO_NOT_DISRUPT_GRACE_PERIOD_ELAPSED,
            format!("Pod {first}"),
        ),
        _ => return None,
    })
}

fn name_of(object: &ObjectRef) -> String {
    match object {
        ObjectRef::Node(name) => name.to_string(),
        other => other.to_string(),
    }
}
