//! How much room a pass found for capacity buffers.

use std::collections::{BTreeMap, BTreeSet};

use super::plan::LaunchPlan;
use mortise_apis::names::{NamespacedName, Uid};
use mortise_state::ledger::{BufferRoom, Rooms};
use mortise_state::snapshot::{Pod, Snapshot};

/// The room of every buffer with virtual pods, according to a complete pass over all of them that were not `staying`.
///
/// Room counts as ready on initialized nodes only: a pod can start there at once.
#[must_use]
pub fn buffer_rooms(
    snapshot: &Snapshot,
    plan: &LaunchPlan,
    staying: &BTreeSet<Uid>,
) -> Rooms<BufferRoom> {
    let with_pods = snapshot
        .demand
        .iter()
        .filter(|(_, demand)| !demand.pods.is_empty());
    let mut rooms: BTreeMap<&NamespacedName, BufferRoom> = with_pods
        .map(|(key, demand)| {
            let room = BufferRoom {
                revision: demand.revision,
                failed: demand.pods.len(),
                ..BufferRoom::default()
            };
            (key, room)
        })
        .collect();
    let mut place = |pod: &Pod, is_ready: bool| {
        let room = pod.buffer.as_deref().and_then(|key| rooms.get_mut(key));
        if let Some(room) = room {
            room.failed = room.failed.saturating_sub(1);
            *(if is_ready {
                &mut room.ready
            } else {
                &mut room.coming
            }) += 1;
        }
    };
    let stay = snapshot
        .virtual_pods()
        .filter(|pod| staying.contains(&pod.uid));
    for pod in stay {
        place(pod, true);
    }
    for placement in &plan.placements {
        place(&placement.pod, !placement.uninitialized);
    }
    for pod in plan.claims.iter().flat_map(|claim| &claim.pods) {
        place(pod, false);
    }
    Rooms(
        rooms
            .into_iter()
            .map(|(key, room)| (key.clone(), room))
            .collect(),
    )
}
