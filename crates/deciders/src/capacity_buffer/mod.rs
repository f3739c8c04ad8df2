//! Capacity buffers: what they were resolved to, and whether there is room for it.
//!
//! May: write the status of CapacityBuffers, when it changes; and to those that learn, in an annotation, the most replicas that
//! their workload had in each hour.
//!
//! Must never: write recorded peaks that it cannot read; decide what a buffer asks for, or where its room is. The index resolves buffers
//! ([`BufferDemand`](mortise_state::snapshot::BufferDemand)), provisioning places their virtual pods and records the result in the ledger; both appear
//! in the status here. It never touches buffers whose strategy is of another domain: another controller serves them.
//!
//! Implements karpenter-core 1.5 (status, conditions) and 7.4. With the feature gate off it does nothing.

mod peak_recorder;
mod status;

use jiff::Timestamp;

use self::peak_recorder::PeakRecorder;
use crate::tracking::status_reports::{StatusReports, StatusWriter};
use mortise_apis::names::{NamespacedName, ObjectRef};
use mortise_engine::decider::{Decider, Step, StepInput};
use mortise_engine::decider_id::DeciderId;
use mortise_engine::write::ObjectWrite;
use mortise_planning::settings::Settings;
use mortise_state::index::Changes;

/// The decider. See the module's documentation.
#[derive(Debug)]
pub struct CapacityBufferDecider {
    statuses: StatusReports<NamespacedName>,
    peaks: PeakRecorder,
}

impl Default for CapacityBufferDecider {
    fn default() -> Self {
        Self {
            statuses: StatusReports::new(DeciderId::CapacityBuffer),
            peaks: PeakRecorder::default(),
        }
    }
}

fn look(
    (writer, peaks): (&mut StatusWriter, &mut PeakRecorder),
    input: &StepInput<'_>,
    key: &NamespacedName,
    step: &mut Step,
) -> Option<Timestamp> {
    let demand = input.snapshot.demand.get(key);
    let Some(learned) = demand.and_then(|demand| demand.learned.as_ref()) else {
        peaks.forget(key);
        return look_at_status(writer, input, key, step);
    };
    let again = look_at_status(writer, input, key, step);
    let recorded = match peaks.see(key, learned, input.now) {
        Ok(all) => {
            let write = ObjectWrite::set_replica_peaks(key.clone(), all);
            let sent = writer.send(input.now, write, step);
            sent.map(|()| peaks.sent(key, input.now))
        }
        Err(at) => Err(at),
    };
    again.into_iter().chain(recorded.err().flatten()).min()
}

fn look_at_status(
    writer: &mut StatusWriter,
    input: &StepInput<'_>,
    key: &NamespacedName,
    step: &mut Step,
) -> Option<Timestamp> {
    let buffer = input.snapshot.buffers.get(key)?;
    let demand = input.snapshot.demand.get(key)?;
    let room = input.snapshot.ledger.rooms().0.get(key);
    let status = status::new_status(buffer, demand, room, input.now)?;
    let write = ObjectWrite::buffer_status(buffer, status.clone());
    writer.write(input, write, (&status.conditions, &status::TYPES), step)
}

impl Decider for CapacityBufferDecider {
    fn id(&self) -> DeciderId {
        DeciderId::CapacityBuffer
    }

    fn fresh(&self) -> Box<dyn Decider> {
        Box::new(Self::default())
    }

    fn is_needed(&self, settings: &Settings) -> bool {
        settings.gates.capacity_buffer
    }

    fn is_interested(&self, changes: &Changes) -> bool {
        // Provisioning tells of room by the ledger.
        changes.everything || changes.demand || changes.ledger
    }

    fn step(&mut self, input: &StepInput<'_>, _stop: &dyn Fn() -> bool) -> Step {
        let all = &input.snapshot.demand;
        let changed = self
            .is_interested(input.changes)
            .then(|| all.keys().cloned());
        let key_of = |target: &ObjectRef| match target {
            ObjectRef::Buffer(key) => Some(key.clone()),
            _ => None,
        };
        let peaks = &mut self.peaks;
        let changed = changed.into_iter().flatten();
        self.statuses
            .step(input, key_of, changed, |writer, input, key, step| {
                look((writer, &mut *peaks), input, key, step)
            })
    }
}
