//! Capacity buffers: how much room each asks for, and how much the last pass found.

use mortise_state::ledger::BufferRoom;
use mortise_state::snapshot::{BufferDemand, LearnedDemand};
use serde_json::{Value, json};

use super::DebugView;
use super::table::TextTable;
use crate::service_state::ServiceState;

/// All buffers that are served, by namespace and name. Room is known to the replica that leads.
pub(super) fn view(shared: &ServiceState) -> DebugView {
    let snapshot = shared.snapshot();
    let rooms = &snapshot.ledger.rooms().0;
    let mut table = TextTable::new(&[
        "BUFFER",
        "PODS",
        "READY",
        "COMING",
        "FAILED",
        "CLOSED UNTIL",
        "EXPECTED",
        "PROBLEM",
    ]);
    let mut rows: Vec<Value> = Vec::new();
    for (key, demand) in snapshot.demand.iter() {
        // Room that was found for an earlier size or template says nothing.
        let room = rooms
            .get(key)
            .filter(|room| room.revision == demand.revision);
        let problem = demand.resolution.as_ref().err().map(ToString::to_string);
        table.row(cells(&key.to_string(), demand, room, problem.as_deref()));
        rows.push(json!({
            "buffer": key.to_string(),
            "pods": demand.pods.len(),
            "ready": room.map(|room| room.ready),
            "coming": room.map(|room| room.coming),
            "failed": room.map(|room| room.failed),
            "closedUntil": closed_until(demand),
            "learned": demand.learned.as_ref().map(learned),
            "problem": problem,
        }));
    }
    DebugView {
        text: table.render("no capacity buffer is served"),
        json: json!(rows),
    }
}

/// When its schedule keeps room next.
fn closed_until(demand: &BufferDemand) -> Option<String> {
    let resolved = demand.resolution.as_ref().ok()?;
    resolved.closed_until.map(|until| until.to_string())
}

/// What a buffer has learned.
fn learned(learned: &LearnedDemand) -> Value {
    let expected = learned.expected;
    let since = learned.peaks.as_ref().ok().and_then(|peaks| peaks.since());
    json!({
        "mode": learned.learning.mode.as_str(),
        "percentile": learned.learning.percentile,
        "recordedSince": since.map(|since| since.to_string()),
        "replicas": learned.replicas,
        "expected": expected.map(|expected| expected.replicas),
        "missing": learned.missing(),
        "until": learned.until.to_string(),
        "weeks": expected.map(|expected| expected.weeks),
        "lastWeek": { "hours": learned.hindsight.hours, "covered": learned.hindsight.covered },
    })
}

/// Replicas that are expected, and how many of them the workload does not have yet.
fn expected(demand: &BufferDemand) -> String {
    let Some(learned) = &demand.learned else {
        return "-".to_owned();
    };
    match (learned.expected, learned.missing()) {
        (Some(expected), Some(missing)) => {
            format!(
                "{} (+{missing}), {}",
                expected.replicas, learned.learning.mode
            )
        }
        _ => "not yet".to_owned(),
    }
}

fn cells(
    name: &str,
    demand: &BufferDemand,
    room: Option<&BufferRoom>,
    problem: Option<&str>,
) -> Vec<String> {
    let of_room = |part: fn(&BufferRoom) -> usize| {
        room.map_or_else(|| "-".to_owned(), |room| part(room).to_string())
    };
    vec![
        name.to_owned(),
        demand.pods.len().to_string(),
        of_room(|room| room.ready),
        of_room(|room| room.coming),
        of_room(|room| room.failed),
        closed_until(demand).unwrap_or_else(|| "-".to_owned()),
        expected(demand),
        problem.unwrap_or("-").to_owned(),
    ]
}
