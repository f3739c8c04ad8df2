//! What a pass found for ProvisioningRequests.

use std::collections::BTreeMap;

use super::plan::SolveReport;
use mortise_apis::names::NamespacedName;
use mortise_state::ledger::{RequestRoom, RequestRooms};
use mortise_state::snapshot::{Pod, Snapshot};

/// For every request of which pods wait: how many of them the pass left without a place, and why. The pass was about all that waits, and
/// was not stopped.
///
/// # Cost
/// The waiting pods of requests, and those without a place.
#[must_use]
pub fn request_rooms(snapshot: &Snapshot, report: &SolveReport) -> RequestRooms {
    let requested = snapshot.requested.iter();
    let mut rooms: BTreeMap<&NamespacedName, RequestRoom> = requested
        .filter(|(_, requested)| requested.pods.as_ref().is_ok_and(|pods| !pods.is_empty()))
        .map(|(key, requested)| {
            let room = RequestRoom {
                uid: requested.uid.clone(),
                lacking: 0,
                why: None,
            };
            (key, room)
        })
        .collect();
    if rooms.is_empty() {
        return RequestRooms::default();
    }
    let unplaced = report.unplaced.iter();
    let unplaced = unplaced.flat_map(|each| each.pods.iter().map(|(pod, _)| (pod, &*each.message)));
    let ignored = report.ignored.iter();
    let ignored = ignored.map(|(pod, why)| (pod, why.to_string()));
    let unplaced = unplaced.map(|(pod, why)| (pod, why.to_owned()));
    for (key, why) in unplaced.chain(ignored) {
        let pod = snapshot.pending.get(key);
        if let Some(request) = pod.and_then(|pod| request_of(pod))
            && let Some(room) = rooms.get_mut(request)
        {
            room.lacking += 1;
            room.why.get_or_insert_with(|| why.into());
        }
    }
    let rooms = rooms.into_iter();
    RequestRooms(rooms.map(|(key, room)| (key.clone(), room)).collect())
}

fn request_of(pod: &Pod) -> Option<&NamespacedName> {
    pod.requested?;
    pod.gang.as_ref().map(|gang| &gang.group)
}
