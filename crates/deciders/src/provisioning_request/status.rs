//! The conditions of a ProvisioningRequest, from its phase and from the room that was found for it.

use std::sync::Arc;

use jiff::Timestamp;

use mortise_apis::k8s::provisioning_request::{ACCEPTED, BOOKING_EXPIRED, FAILED, PROVISIONED};
use mortise_apis::k8s::{ProvisioningClass, ProvisioningRequest, RequestPhase};
use mortise_apis::schema::conditions::{Condition, Conditions, PROVISIONING_REQUEST};
use mortise_state::snapshot::{RequestedPods, Snapshot};

/// The conditions that are written.
pub(super) const TYPES: [&str; 4] = [ACCEPTED, PROVISIONED, FAILED, BOOKING_EXPIRED];

/// There is no room for all the pods.
const NOT_FOUND: &str = "CapacityIsNotFound";

/// What was found for a request.
#[derive(Debug)]
enum Found {
    /// No pass has searched yet.
    Nothing,
    /// No room for some pods, and why.
    Lacking(usize, Option<Arc<str>>),
    /// Room, on nodes of which some are not ready.
    Coming,
    /// Room on nodes that are ready; some of them were launched since the request was made, which has whole seconds.
    New,
    /// Room on nodes that were there before the request.
    Existing,
}

impl Found {
    /// Of the last pass, and of the nodes as they are now.
    ///
    /// # Cost
    /// The pods of the request.
    fn of(request: &ProvisioningRequest, requested: &RequestedPods, snapshot: &Snapshot) -> Self {
        let room = snapshot.ledger.request_rooms().0.get(&request.key());
        let Some(room) = room.filter(|room| room.uid == requested.uid) else {
            return Self::Nothing;
        };
        if room.lacking > 0 {
            return Self::Lacking(room.lacking, room.why.clone());
        }
        let pods = requested.pods.iter().flat_map(|pods| pods.iter());
        let mut found = Self::Existing;
        for pod in pods.filter_map(|pod| snapshot.pods.get(pod)) {
            let nomination = snapshot.ledger.nomination(&pod.uid);
            let node = nomination.and_then(|nomination| snapshot.node_at(&nomination.place));
            match node {
                // It lost its place since the pass, or the pass left it out for time: another one follows.
                None if nomination.is_none() => return Self::Nothing,
                Some(node) if node.initialized && !node.deleting => {
                    if node.created().is_some_and(|created| created >= pod.created) {
                        found = Self::New;
                    }
                }
                None | Some(_) => return Self::Coming,
            }
        }
        found
    }
}

/// The new conditions, and when they change without any event. Room is examined only while it is searched.
pub(super) fn conditions(
    request: &ProvisioningRequest,
    requested: &RequestedPods,
    snapshot: &Snapshot,
    now: Timestamp,
) -> (Vec<Condition>, Option<Timestamp>) {
    let mut list = request.status.conditions.clone();
    let metadata = &request.metadata;
    let mut conditions = Conditions::new(PROVISIONING_REQUEST, metadata, &mut list, now);
    let due = match request.phase() {
        RequestPhase::Over => None,
        RequestPhase::Booked(until) if now >= until => {
            let message = "Capacity reservation time is expired";
            let reason = "CapacityReservationTimeExpired";
            conditions.set_true_with_reason(BOOKING_EXPIRED, reason, message);
            None
        }
        RequestPhase::Booked(until) => Some(until),
        RequestPhase::Searching => {
            if !request.is(ACCEPTED) {
                let message = "ProvisioningRequest is accepted by mortise";
                conditions.set_true_with_reason(ACCEPTED, "Accepted", message);
            }
            let until = request.valid_until();
            if now >= until {
                let message = "ProvisioningRequest is expired: no capacity was found in time";
                conditions.set_true_with_reason(FAILED, "Expired", message);
                None
            } else {
                set_found(&mut conditions, request, requested, snapshot);
                Some(until)
            }
        }
    };
    (list, due)
}

fn set_found(
    conditions: &mut Conditions<'_>,
    request: &ProvisioningRequest,
    requested: &RequestedPods,
    snapshot: &Snapshot,
) {
    if let Err(failure) = &requested.pods {
        conditions.set_false(PROVISIONED, "FailedToCreatePods", &failure.to_string());
        return;
    }
    match Found::of(request, requested, snapshot) {
        Found::Nothing => {}
        Found::Lacking(pods, why) => {
            let why = why.map_or_else(String::new, |why| format!(": {why}"));
            let message = format!("Capacity is not found for {pods} pods{why}");
            if request.is_tried_once() {
                conditions.set_true_with_reason(FAILED, NOT_FOUND, &message);
            } else {
                let message = format!("Capacity will be searched again. {message}");
                conditions.set_false(PROVISIONED, NOT_FOUND, &message);
            }
        }
        Found::Coming => {
            let message = "There is room for all pods, on nodes that are not ready yet";
            conditions.set_false(PROVISIONED, "WaitingForNodes", message);
        }
        Found::New if request.class() == Some(ProvisioningClass::BestEffortAtomic) => {
            let message = "Capacity is provisioned in the cluster";
            conditions.set_true_with_reason(PROVISIONED, "CapacityIsProvisioned", message);
        }
        Found::New | Found::Existing => {
            let message = "Capacity is found in the cluster";
            conditions.set_true_with_reason(PROVISIONED, "CapacityIsFound", message);
        }
    }
}
