//! What a pass found for ProvisioningRequests.

use std::collections::BTreeMap;
use std::fmt::Display;

use super::plan::SolveReport;
use mortise_apis::names::{NamespacedName, PodKey};
use mortise_state::ledger::{RequestRoom, Rooms};
use mortise_state::snapshot::{Pod, Snapshot};

/// For every request of which pods wait: how many of them the pass left without a place, and why. The pass was about all that waits, and
/// was not stopped.
///
/// # Cost
/// The waiting pods of requests, and those without a place.
#[must_use]
pub fn request_rooms(snapshot: &Snapshot, report: &SolveReport) -> Rooms<RequestRoom> {
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
        return Rooms::default();
    }
    let mut note = |pod: &PodKey, why: &dyn Display| {
        let pod = snapshot.pending.get(pod);
        if let Some(request) = pod.and_then(|pod| request_of(pod))
            && let Some(room) = rooms.get_mut(request)
        {
            room.lacking += 1;
            room.why.get_or_insert_with(|| why.to_string().into());
        }
    };
    for unplaced in &report.unplaced {
        for (pod, _) in &unplaced.pods {
            note(pod, &unplaced.message);
        }
    }
    for (pod, why) in &report.ignored {
        note(pod, why);
    }
    let rooms = rooms.into_iter();
    Rooms(rooms.map(|(key, room)| (key.clone(), room)).collect())
}

fn request_of(pod: &Pod) -> Option<&NamespacedName> {
    pod.requested?;
    pod.gang.as_ref().map(|gang| &gang.group)
}
