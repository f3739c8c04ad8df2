//! The status of a CapacityBuffer, from what it was resolved to and from the room that was found for it.

use jiff::Timestamp;

use mortise_apis::karpenter::capacitybuffer::{
    CapacityBuffer, CapacityBufferStatus, Hindsight, LearningMode, LocalObjectRef,
};
use mortise_apis::labels::REPLICA_PEAKS;
use mortise_apis::schema::conditions::{CAPACITY_BUFFER, Conditions};
use mortise_state::ledger::BufferRoom;
use mortise_state::snapshot::{BufferDemand, LearnedDemand, ResolvedBuffer};

/// Whether template and size are known.
const READY: &str = "ReadyForProvisioning";
/// Whether there is room for all its pods.
const PROVISIONING: &str = "Provisioning";
/// Whether it is known what to expect of the workload. Only on buffers that learn.
const LEARNED: &str = "DemandLearned";
/// All conditions.
pub(super) const TYPES: [&str; 3] = [READY, PROVISIONING, LEARNED];

/// The new status; `None` if it is as it should be.
pub(super) fn new_status(
    buffer: &CapacityBuffer,
    demand: &BufferDemand,
    room: Option<&BufferRoom>,
    now: Timestamp,
) -> Option<CapacityBufferStatus> {
    let mut list = buffer.status.conditions.clone();
    let mut conditions = Conditions::new(CAPACITY_BUFFER, &buffer.metadata, &mut list, now);
    let mut status = CapacityBufferStatus {
        provisioning_strategy: Some(buffer.strategy().to_owned()),
        ..CapacityBufferStatus::default()
    };
    match &demand.resolution {
        Err(failure) => {
            conditions.set_false(READY, failure.reason(), &failure.to_string());
            let message = "the buffer is not ready for provisioning";
            conditions.set_false(PROVISIONING, "NotReadyForProvisioning", message);
        }
        Ok(resolved) => {
            conditions.set_true_with_reason(READY, "Resolved", "");
            set_resolved(&mut status, resolved);
            // Until a pass has placed its pods, what was found before stays.
            let room = room.filter(|room| room.revision == demand.revision);
            if resolved.replicas == 0 {
                let message = match resolved.closed_until {
                    Some(until) => format!("outside of its schedule, which begins next at {until}"),
                    None => "the buffer has no virtual pods".to_owned(),
                };
                conditions.set_false(PROVISIONING, "BufferEmpty", &message);
            } else if let Some(room) = room {
                set_room(&mut conditions, room);
            }
        }
    }
    match &demand.learned {
        Some(learned) => set_learned(&mut conditions, learned),
        None => {
            conditions.clear(LEARNED);
        }
    }
    status.conditions = list;
    (status != buffer.status).then_some(status)
}

fn set_resolved(status: &mut CapacityBufferStatus, resolved: &ResolvedBuffer) {
    status.replicas = i32::try_from(resolved.replicas).ok();
    if let Some(name) = &resolved.pod_template {
        status.pod_template_ref = Some(LocalObjectRef {
            name: name.to_string(),
        });
        status.pod_template_generation = Some(resolved.template.generation);
    }
}

fn set_room(conditions: &mut Conditions<'_>, room: &BufferRoom) {
    let BufferRoom { coming, failed, .. } = room;
    let pods = room.pods();
    if *coming == 0 && *failed == 0 {
        let message = format!("all {pods} virtual pods fit on existing nodes");
        conditions.set_true_with_reason(PROVISIONING, "FitsExistingCapacity", &message);
    } else {
        let message =
            format!("{coming}/{pods} virtual pods required new capacity, {failed} failed");
        conditions.set_false(PROVISIONING, "RequiresNewCapacity", &message);
    }
}

fn set_learned(conditions: &mut Conditions<'_>, learned: &LearnedDemand) {
    let peaks = match &learned.peaks {
        Ok(peaks) => peaks,
        Err(error) => {
            let message = format!(
                "annotation {REPLICA_PEAKS} cannot be read: {error}; correct it, or remove it to begin again"
            );
            conditions.set_false(LEARNED, "RecordingUnreadable", &message);
            return;
        }
    };
    let Some(expected) = learned.expected else {
        let message = match peaks.since() {
            Some(since) => format!(
                "the replicas of the workload are recorded since {since}; after a week of records some are expected"
            ),
            None => "nothing is recorded yet".to_owned(),
        };
        conditions.set_false(LEARNED, "Recording", &message);
        return;
    };
    let mut message = format!(
        "{} replicas are expected until {} (percentile {} of {} weeks)",
        expected.replicas, learned.until, learned.learning.percentile, expected.weeks
    );
    let Hindsight { hours, covered } = learned.hindsight;
    if hours > 0 {
        message += &format!(
            "; in the last week {covered} of {hours} hours had no more than were expected"
        );
    }
    let reason = match learned.learning.mode {
        LearningMode::Observe => "Observed",
        LearningMode::Apply => "Applied",
    };
    conditions.set_true_with_reason(LEARNED, reason, &message);
}
