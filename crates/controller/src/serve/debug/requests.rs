//! ProvisioningRequests: what room each asks for, and how much of it there is.

use mortise_apis::k8s::RequestPhase;
use mortise_state::snapshot::RequestedPods;
use serde_json::{Value, json};

use super::DebugView;
use super::table::TextTable;
use crate::service_state::ServiceState;

/// All requests that are served, by namespace and name. Places are known to the replica that leads.
pub(super) fn view(shared: &ServiceState) -> DebugView {
    let snapshot = shared.snapshot();
    let mut table = TextTable::new(&["REQUEST", "PHASE", "UNTIL", "PODS", "PLACES", "PROBLEM"]);
    let mut rows: Vec<Value> = Vec::new();
    for (key, requested) in snapshot.requested.iter() {
        let RequestedPods { pods, .. } = &**requested;
        let Some(request) = snapshot.gangs.requests.get(key) else {
            continue;
        };
        let phase = request.phase();
        let until = match phase {
            RequestPhase::Searching => Some(request.valid_until()),
            RequestPhase::Booked(until) => Some(until),
            RequestPhase::Over => None,
        };
        let waiting = pods.iter().flat_map(|pods| pods.iter());
        let waiting = waiting.filter_map(|pod| snapshot.pods.get(pod));
        let places: Vec<bool> = waiting
            .map(|pod| snapshot.ledger.nomination(&pod.uid).is_some())
            .collect();
        let count = places.len();
        let places = places.into_iter().filter(|has_place| *has_place).count();
        let room = snapshot.ledger.request_rooms().0.get(key);
        let lacking = room.and_then(|room| room.why.as_deref().map(str::to_owned));
        let problem = pods.as_ref().err().map(ToString::to_string).or(lacking);
        let text = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
        let until = until.map(|until| until.to_string());
        table.row(vec![
            key.to_string(),
            phase.label().to_owned(),
            text(until.clone()),
            count.to_string(),
            places.to_string(),
            text(problem.clone()),
        ]);
        rows.push(json!({
            "request": key.to_string(),
            "class": request.spec.provisioning_class_name,
            "phase": phase.label(),
            "until": until,
            "pods": count,
            "places": places,
            "problem": problem,
        }));
    }
    DebugView {
        text: table.render("no ProvisioningRequest is served"),
        json: json!(rows),
    }
}
