//! Pods that consolidation moved from one kind of node to another, and back within a day.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use jiff::Timestamp;
use mortise_apis::labels::{CAPACITY_TYPE, INSTANCE_TYPE};
use mortise_apis::names::{ClaimName, NamespacedName};
use mortise_apis::values::{after, since};
use mortise_planning::disruption::command::{DisruptionCommand, DisruptionReason};

/// The next pod of the workload comes this soon, or it comes for another reason.
const NEXT_MS: i64 = 10 * 60_000;
/// A move the other way is one back for this long.
const DAY_MS: i64 = 24 * 3_600_000;
/// What changed goes on changing the cluster for this long: pods are created and nodes start.
const SETTLES_MS: i64 = 5 * 60_000;

/// A kind of node: instance type and capacity type.
pub(crate) type NodeKind = Arc<str>;

/// The kind of a node, by its labels; `None` while it lacks one.
pub(crate) fn node_kind<'a>(label: impl Fn(&str) -> Option<&'a str>) -> Option<NodeKind> {
    let (instance_type, capacity_type) = (label(INSTANCE_TYPE)?, label(CAPACITY_TYPE)?);
    Some(format!("{instance_type}/{capacity_type}").into())
}

/// A move of one pod of a workload.
#[derive(Debug)]
struct Move {
    /// When consolidation decided it.
    decided: Timestamp,
    at: Timestamp,
    from: NodeKind,
    to: NodeKind,
}

/// A pod that consolidation evicted.
#[derive(Debug)]
struct LeavingPod {
    decided: Timestamp,
    at: Timestamp,
    from: NodeKind,
}

/// One workload.
#[derive(Debug, Default)]
struct MovedWorkloadPods {
    /// Pods that consolidation evicted, whose next ones have no node yet, the first of them first.
    leaving: VecDeque<LeavingPod>,
    /// Moves of the last day, the first of them first.
    moves: VecDeque<Move>,
}

/// Counts them. Which of several pods of a workload came from where is not known: the first that comes is taken for the first that
/// left.
#[derive(Debug, Default)]
pub(crate) struct MovedPods {
    /// Nodes that consolidation decided to remove, and when.
    consolidated: BTreeMap<ClaimName, Timestamp>,
    workloads: BTreeMap<String, MovedWorkloadPods>,
    /// Pods of CapacityBuffers.
    buffers: BTreeMap<NamespacedName, i64>,
    back: u64,
    /// Until when something that is not consolidation changes the cluster; `None` in recordings, which do not tell.
    changes_until: Option<Timestamp>,
    /// Moves back while nothing else changed, that nothing has taken yet.
    cycles: Vec<String>,
}

impl MovedPods {
    /// A disruption command begins. Replacing drifted nodes is a change of its own.
    pub(crate) fn note_command(&mut self, command: &DisruptionCommand, at: Timestamp) {
        match command.reason() {
            DisruptionReason::Underutilized => {
                let claims = command.targets.iter().map(|target| target.claim.clone());
                claims.for_each(|claim| self.consolidate(claim, at));
            }
            DisruptionReason::Empty => {}
            DisruptionReason::Drifted => {
                for target in &command.targets {
                    self.consolidated.remove(target.claim.as_str());
                }
                self.change(at);
            }
        }
    }

    /// Consolidation decided to remove a node.
    pub(crate) fn consolidate(&mut self, claim: ClaimName, at: Timestamp) {
        self.consolidated.entry(claim).or_insert(at);
    }

    /// Something that is not consolidation changes the cluster: a workload, a price, the capacity of the cloud, a setting.
    pub(crate) fn change(&mut self, at: Timestamp) {
        let until = after(at, SETTLES_MS);
        self.changes_until = self.changes_until.max(Some(until));
    }

    /// A CapacityBuffer is written, with room for this number of pods. One that grows or shrinks changes the cluster as a workload does.
    pub(crate) fn note_buffer(&mut self, key: &NamespacedName, pods: i64, at: Timestamp) {
        if self.buffers.insert(key.clone(), pods) != Some(pods) {
            self.change(at);
        }
    }

    /// Whether consolidation decided to remove a node.
    pub(crate) fn is_consolidated(&self, claim: &str) -> bool {
        self.consolidated.contains_key(claim)
    }

    /// A pod of a workload is evicted from a node of this kind. It counts if consolidation decided to remove the node's NodeClaim.
    pub(crate) fn leave(&mut self, workload: &str, claim: &str, from: NodeKind, at: Timestamp) {
        let Some(decided) = self.consolidated.get(claim) else {
            return;
        };
        let own = self.workloads.entry(workload.to_owned()).or_default();
        own.leaving.push_back(LeavingPod {
            decided: *decided,
            at,
            from,
        });
    }

    /// A pod of a workload got a node of this kind.
    pub(crate) fn arrive(&mut self, workload: &str, to: NodeKind, at: Timestamp) {
        let Some(own) = self.workloads.get_mut(workload) else {
            return;
        };
        own.leaving.retain(|pod| since(at, pod.at) <= NEXT_MS);
        own.moves.retain(|each| since(at, each.at) <= DAY_MS);
        let Some(pod) = own.leaving.pop_front().filter(|pod| pod.from != to) else {
            return;
        };
        let LeavingPod { decided, from, .. } = pod;
        let is_back = |each: &&Move| each.from == to && each.to == from;
        let last = own.moves.iter().rev().find(is_back);
        if let Some(there) = last {
            self.back += 1;
            if self
                .changes_until
                .is_some_and(|until| until < there.decided)
            {
                self.cycles.push(format!(
                    "consolidation moved a pod of {workload} from {to} to {from} at {} and back at {at}, and nothing else changed",
                    there.at
                ));
            }
        }
        own.moves.push_back(Move {
            decided,
            at,
            from,
            to,
        });
    }

    /// Moves back since the last call, before which nothing changed but what consolidation did.
    pub(crate) fn take_cycles(&mut self) -> Vec<String> {
        std::mem::take(&mut self.cycles)
    }

    /// How many moves were back.
    pub(crate) const fn back(&self) -> u64 {
        self.back
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minute: i64) -> Timestamp {
        Timestamp::from_second(minute * 60).unwrap()
    }

    /// A pod of `web` moves from a node of the first kind to one of the second.
    fn move_pod(moved: &mut MovedPods, minute: i64, from: &str, to: &str) {
        move_pod_of("web", moved, (minute, minute + 1), from, to);
    }

    fn move_pod_of(
        workload: &str,
        moved: &mut MovedPods,
        (leaves, comes): (i64, i64),
        from: &str,
        to: &str,
    ) {
        let claim = format!("{from}-{leaves}");
        moved.consolidate(claim.as_str().into(), at(leaves));
        moved.leave(workload, &claim, from.into(), at(leaves));
        moved.arrive(workload, to.into(), at(comes));
    }

    fn there() -> MovedPods {
        let mut moved = MovedPods::default();
        move_pod(&mut moved, 0, "a", "b");
        moved
    }

    #[test]
    fn a_move_is_back_if_the_same_workload_made_it_the_other_way_within_a_day() {
        assert_eq!(there().back(), 0);
        let then = |workload: &str, minutes: (i64, i64), to: &str| {
            let mut moved = there();
            move_pod_of(workload, &mut moved, minutes, "b", to);
            moved.back()
        };
        assert_eq!(then("web", (60, 61), "a"), 1);
        let day = 25 * 60;
        assert_eq!(then("web", (day, day + 1), "a"), 0, "a day later");
        assert_eq!(then("api", (60, 61), "a"), 0, "another workload");
        assert_eq!(then("web", (60, 75), "a"), 0, "it comes for another reason");
        assert_eq!(then("web", (60, 61), "c"), 0, "further on");
        assert_eq!(then("web", (60, 61), "b"), 0, "to a node of the same kind");
        let mut scaled = there();
        scaled.arrive("web", "a".into(), at(61));
        assert_eq!(scaled.back(), 0, "nothing left room for it");
        let mut drained = there();
        drained.leave("web", "not consolidated", "b".into(), at(60));
        drained.arrive("web", "a".into(), at(61));
        assert_eq!(drained.back(), 0, "not consolidation's");
    }

    #[test]
    fn a_move_back_is_a_cycle_if_nothing_else_changed() {
        let then = |changed: Option<i64>| {
            let mut moved = MovedPods::default();
            moved.change(at(0));
            move_pod(&mut moved, 30, "a", "b");
            if let Some(minute) = changed {
                moved.change(at(minute));
            }
            move_pod(&mut moved, 60, "b", "a");
            assert_eq!(moved.back(), 1);
            moved.take_cycles()
        };
        let cycles = then(None);
        assert_eq!(
            cycles,
            [
                "consolidation moved a pod of web from a to b at 1970-01-01T00:31:00Z and back at 1970-01-01T01:01:00Z, and nothing else changed"
            ]
        );
        assert_eq!(then(Some(45)), [""; 0], "between the moves");
        assert_eq!(
            then(Some(27)),
            [""; 0],
            "the first move was decided while it changed"
        );
        assert_eq!(then(Some(20)), cycles, "it had settled");
    }
    #[test]
    fn a_buffer_of_another_size_changes_the_cluster() {
        let then = |pods: i64| {
            let mut moved = MovedPods::default();
            let key = NamespacedName::new("default", "room");
            moved.note_buffer(&key, 2, at(0));
            move_pod(&mut moved, 30, "a", "b");
            moved.note_buffer(&key, pods, at(45));
            move_pod(&mut moved, 60, "b", "a");
            moved.take_cycles().len()
        };
        assert_eq!(then(5), 0);
        assert_eq!(then(2), 1, "a status of the same size");
    }
}
