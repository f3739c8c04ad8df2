//! ProvisioningRequests: whether there is room for all their pods, and until when it is kept.
//!
//! # Phases
//! Accepted; then searched, until there is room on nodes that are ready for every pod (`Provisioned`), or until the request is too old
//! (`Failed`); then booked for ten minutes (`BookingExpired`). All that is known of a request is in its conditions, so it goes on
//! where another leader left it.
//!
//! May: write the conditions of ProvisioningRequests of the classes of Cluster Autoscaler, when they change.
//!
//! Must never: place pods. The index turns requests into pods ([`mortise_state::snapshot::RequestedPods`]), provisioning nominates
//! them and launches their nodes, and records in the ledger what was found.
//!
//! Implements ecosystem 7.3. It does nothing unless requests are served.

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
pub struct ProvisioningRequestDecider {
    statuses: StatusReports<NamespacedName>,
}

impl Default for ProvisioningRequestDecider {
    fn default() -> Self {
        Self {
            statuses: StatusReports::new(DeciderId::ProvisioningRequest),
        }
    }
}

fn look(
    writer: &mut StatusWriter,
    input: &StepInput<'_>,
    key: &NamespacedName,
    step: &mut Step,
) -> Option<Timestamp> {
    let request = input.snapshot.gangs.requests.get(key)?;
    let requested = input.snapshot.requested.get(key)?;
    let (conditions, due) = status::conditions(request, requested, input.snapshot, input.now);
    if conditions == request.status.conditions {
        return due;
    }
    let write = ObjectWrite::request_status(request, conditions.clone());
    let again = writer.write(input, write, (&conditions, &status::TYPES), step);
    [again, due].into_iter().flatten().min()
}

impl Decider for ProvisioningRequestDecider {
    fn id(&self) -> DeciderId {
        DeciderId::ProvisioningRequest
    }

    fn fresh(&self) -> Box<dyn Decider> {
        Box::new(Self::default())
    }

    fn is_needed(&self, settings: &Settings) -> bool {
        settings.provisioning_requests
    }

    fn is_interested(&self, changes: &Changes) -> bool {
        // Provisioning tells of room by the ledger; a node that became ready has it.
        changes.everything || changes.requests || changes.ledger || !changes.nodes.is_empty()
    }

    fn step(&mut self, input: &StepInput<'_>, _stop: &dyn Fn() -> bool) -> Step {
        let all = &input.snapshot.requested;
        let changed = self
            .is_interested(input.changes)
            .then(|| all.keys().cloned());
        let key_of = |target: &ObjectRef| match target {
            ObjectRef::Request(key) => Some(key.clone()),
            _ => None,
        };
        self.statuses
            .step(input, key_of, changed.into_iter().flatten(), look)
    }
}
