//! Pods that consolidation moved from one kind of node to another, and back within a day.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use jiff::Timestamp;
use mortise_apis::labels::{CAPACITY_TYPE, INSTANCE_TYPE};
use mortise_apis::names::ClaimName;
use mortise_apis::values::since;

/// The next pod of the workload comes this soon, or it comes for another reason.
const NEXT_MS: i64 = 10 * 60_000;
/// A move the other way is one back for this long.
const DAY_MS: i64 = 24 * 3_600_000;

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
    at: Timestamp,
    from: NodeKind,
    to: NodeKind,
}

/// One workload.
#[derive(Debug, Default)]
struct MovedWorkloadPods {
    /// Pods that consolidation evicted, whose next ones have no node yet, the first of them first.
    leaving: VecDeque<(Timestamp, NodeKind)>,
    /// Moves of the last day, the first of them first.
    moves: VecDeque<Move>,
}

/// Counts them. Which of several pods of a workload came from where is not known: the first that comes is taken for the first that
/// left.
#[derive(Debug, Default)]
pub(crate) struct MovedPods {
    /// Nodes that consolidation decided to remove.
    consolidated: BTreeSet<ClaimName>,
    workloads: BTreeMap<String, MovedWorkloadPods>,
    back: u64,
}

impl MovedPods {
    /// Consolidation decided to remove a node.
    pub(crate) fn consolidate(&mut self, claim: ClaimName) {
        self.consolidated.insert(claim);
    }

    /// Whether consolidation decided to remove a node.
    pub(crate) fn is_consolidated(&self, claim: &str) -> bool {
        self.consolidated.contains(claim)
    }

    /// Consolidation evicted a pod of a workload from a node of this kind.
    pub(crate) fn leave(&mut self, workload: &str, from: NodeKind, at: Timestamp) {
        let own = self.workloads.entry(workload.to_owned()).or_default();
        own.leaving.push_back((at, from));
    }

    /// A pod of a workload got a node of this kind.
    pub(crate) fn arrive(&mut self, workload: &str, to: NodeKind, at: Timestamp) {
        let Some(own) = self.workloads.get_mut(workload) else {
            return;
        };
        own.leaving.retain(|(left, _)| since(at, *left) <= NEXT_MS);
        own.moves.retain(|each| since(at, each.at) <= DAY_MS);
        let Some((_, from)) = own.leaving.pop_front() else {
            return;
        };
        if from == to {
            return;
        }
        let mut moves = own.moves.iter();
        if moves.any(|each| each.from == to && each.to == from) {
            self.back += 1;
        }
        own.moves.push_back(Move { at, from, to });
    }

    /// How many moves were back.
    pub(crate) const fn back(&self) -> u64 {
        self.back
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn played(steps: &[(i64, &str, Option<&str>, Option<&str>)]) -> u64 {
        let mut moved = MovedPods::default();
        for (minute, workload, leaves, comes) in steps {
            let at = Timestamp::from_second(minute * 60).unwrap();
            if let Some(from) = leaves {
                moved.leave(workload, (*from).into(), at);
            }
            if let Some(to) = comes {
                moved.arrive(workload, (*to).into(), at);
            }
        }
        moved.back()
    }

    #[test]
    fn a_move_is_back_if_the_same_workload_made_it_the_other_way_within_a_day() {
        let there = [(0, "web", Some("a"), None), (1, "web", None, Some("b"))];
        let then =
            |more: &[(i64, &str, Option<&str>, Option<&str>)]| played(&[&there[..], more].concat());
        assert_eq!(then(&[]), 0);
        let back = |minute| {
            [
                (minute, "web", Some("b"), None),
                (minute + 1, "web", None, Some("a")),
            ]
        };
        assert_eq!(then(&back(60)), 1);
        assert_eq!(then(&back(25 * 60)), 0, "a day later");
        let other = [(60, "api", Some("b"), None), (61, "api", None, Some("a"))];
        assert_eq!(then(&other), 0, "another workload");
        let late = [(60, "web", Some("b"), None), (75, "web", None, Some("a"))];
        assert_eq!(then(&late), 0, "a pod that comes for another reason");
        let on = [(60, "web", Some("b"), None), (61, "web", None, Some("c"))];
        assert_eq!(then(&on), 0, "further on");
        let same = [(60, "web", Some("b"), None), (61, "web", None, Some("b"))];
        assert_eq!(then(&same), 0, "to another node of the same kind");
        let scaled = [(60, "web", None, Some("a"))];
        assert_eq!(then(&scaled), 0, "a pod that nothing left room for");
    }
}
