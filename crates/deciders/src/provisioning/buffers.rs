//! When a pass is due for the room of capacity buffers, and what it found.
//!
//! Real pods take room without asking for it, and nodes come and go: whatever changes nodes or pods may have taken or given
//! room. A pass a second after the last one is for all such changes together.
//!
//! # Nodes that disruption is about to replace
//! The command that removes a node has seen to the room on it: it fits elsewhere, or on the replacement, which comes seconds after
//! the fence. Until the node is deleted its room therefore stays where it is. Otherwise a pass in between would launch a node of
//! its own for it, and the command would find its premises changed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use super::{RETRY_MS, after};
use mortise_apis::names::{NamespacedName, Uid};
use mortise_engine::decider::{Step, StepInput};
use mortise_planning::scheduling::{LaunchPlan, SolveReport, buffer_rooms};
use mortise_state::index::Changes;
use mortise_state::ledger::{FenceReason, LedgerOp};
use mortise_state::snapshot::{BufferDemand, NodeKey, Snapshot};

/// What buffers ask for, by name.
type Demand = Arc<BTreeMap<NamespacedName, Arc<BufferDemand>>>;

/// Passes for the room of buffers.
#[derive(Debug, Default)]
pub(super) struct BufferPasses {
    /// What buffers asked for at the last step.
    demand: Demand,
    /// When a pass is due.
    due: Option<Timestamp>,
    /// Virtual pods by the node on which the last pass found room for them.
    placed: BTreeMap<NodeKey, Vec<Uid>>,
}

impl BufferPasses {
    /// Takes changes in. `last`: when the last pass was.
    pub(super) fn see(
        &mut self,
        changes: &Changes,
        snapshot: &Snapshot,
        (now, last): (Timestamp, Option<Timestamp>),
    ) {
        let is_changed = !Arc::ptr_eq(&self.demand, &snapshot.demand);
        if is_changed {
            self.demand = Arc::clone(&snapshot.demand);
        }
        if self.is_idle() {
            self.due = None;
            // The room of the last buffer is forgotten by a pass, which costs nothing without pods.
            if !snapshot.ledger.rooms().0.is_empty() {
                self.due = Some(now);
            }
            return;
        }
        let Changes {
            everything,
            pods,
            nodes,
            claims,
            pools,
            node_classes,
            cluster_objects,
            demand: _,
            requests: _,
            ledger: _,
            pod_events: _,
        } = changes;
        let is_moved = *everything
            || *cluster_objects
            || !(pods.is_empty() && nodes.is_empty() && claims.is_empty())
            || !(pools.is_empty() && node_classes.is_empty());
        let at = if is_changed {
            now
        } else if is_moved {
            last.map_or(now, |at| now.max(after(at, RETRY_MS)))
        } else {
            return;
        };
        self.due = Some(self.due.map_or(at, |known| known.min(at)));
    }

    /// Whether no buffer asks for anything.
    pub(super) fn is_idle(&self) -> bool {
        let mut all = self.demand.values();
        self.due.is_none() && all.all(|demand| demand.pods.is_empty())
    }

    /// When the next pass is due because of buffers.
    pub(super) const fn due_at(&self) -> Option<Timestamp> {
        self.due
    }

    /// Virtual pods whose room is on a node that a disruption command is about to remove.
    pub(super) fn staying(&self, snapshot: &Snapshot) -> BTreeSet<Uid> {
        let fences = snapshot.ledger.fences().values();
        let fences = fences.filter(|fence| fence.reason == FenceReason::Disruption);
        fences
            .filter_map(|fence| snapshot.node_of_claim(&fence.claim))
            .filter(|node| !node.deleting)
            .filter_map(|node| self.placed.get(&node.key))
            .flatten()
            .cloned()
            .collect()
    }

    /// Records the room that a pass found. One that ran out of time has not tried all of them; it goes on.
    pub(super) fn note(
        &mut self,
        plan: &LaunchPlan,
        report: &SolveReport,
        staying: BTreeSet<Uid>,
        input: &StepInput<'_>,
        step: &mut Step,
    ) {
        self.due = None;
        if report.stopped {
            return;
        }
        self.placed.values_mut().for_each(|pods| {
            pods.retain(|pod| staying.contains(pod));
        });
        self.placed.retain(|_, pods| !pods.is_empty());
        let virtual_pods = plan.placements.iter();
        for placement in virtual_pods.filter(|placement| placement.pod.is_virtual()) {
            let pods = self.placed.entry(placement.node.clone()).or_default();
            pods.push(placement.pod.uid.clone());
        }
        let rooms = buffer_rooms(input.snapshot, plan, &staying);
        if **input.snapshot.ledger.rooms() != rooms {
            step.ledger.push(LedgerOp::SetRooms(Arc::new(rooms)));
        }
    }
}
