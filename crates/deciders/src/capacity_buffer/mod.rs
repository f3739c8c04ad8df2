//! Capacity buffers: what they were resolved to, and whether there is room for it.
//!
//! May: write the status of CapacityBuffers, when it changes.
//!
//! Must never: decide what a buffer asks for, or where its room is. The index resolves buffers
//! ([`BufferDemand`](mortise_state::snapshot::BufferDemand)), provisioning places their virtual pods and records the result in the ledger; both appear
//! in the status here. It never touches buffers whose strategy is of another domain: another controller serves them.
//!
//! Implements karpenter-core 1.5 (status, conditions) and 7.4. With the feature gate off it does nothing.

mod status;

use jiff::Timestamp;

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
}

impl Default for CapacityBufferDecider {
    fn default() -> Self {
        Self {
            statuses: StatusReports::new(DeciderId::CapacityBuffer),
        }
    }
}

fn look(
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
        self.statuses
            .step(input, key_of, changed.into_iter().flatten(), look)
    }
}
