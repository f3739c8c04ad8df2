//! Backoff of launches for a pod whose nominations fail on nodes that stay unused.
//!
//! # Rule
//! A failed nomination is normally followed by another one at once, on a new node if necessary: other pods use the
//! capacity of the first. If that node stays unused instead, the reason may hold for the next node as well. One further
//! node is launched at once. After two failures the next launch waits one minute, then two, four, up to half an hour. A
//! defect of mortise, of a driver or of a catalog therefore costs about eight nodes per hour and pod, not one per
//! second, and a repaired cause is still found.
//!
//! The state is lost with the leader.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::pending_pods::PendingPods;
use mortise_apis::names::PodKey;
use mortise_apis::values::{after, doubled, since};
use mortise_engine::decider::StepInput;
use mortise_planning::reason::{NominationFailure, Reason};
use mortise_planning::scheduling::{FreeCapacity, LaunchPlan, PlannedClaim, SolveReport};
use mortise_state::snapshot::{NodeKey, Snapshot, StateNode};

/// Older failures do not count.
const MEMORY_MS: i64 = 4 * 60 * 60_000;
/// Failures after which the next launch waits.
const FREE_FAILURES: usize = 2;
/// First delay; it doubles with each further failure.
const INITIAL_MS: i64 = 60_000;
/// Longest delay.
const MAX_MS: i64 = 30 * 60_000;

/// The unused nodes that a pod was nominated to, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct LaunchBackoff(Vec<UnusedNode>);

/// A node that the pod was nominated to and that nothing uses.
#[derive(Clone, Debug)]
struct UnusedNode {
    node: String,
    why: NominationFailure,
    at: Timestamp,
}

impl LaunchBackoff {
    /// Records a failed nomination on an unused node.
    pub(super) fn note(&mut self, node: &StateNode, why: &NominationFailure, now: Timestamp) {
        self.0.retain(|attempt| since(now, attempt.at) < MEMORY_MS);
        self.0.push(UnusedNode {
            node: node.name().to_owned(),
            why: why.clone(),
            at: now,
        });
    }

    /// When the next node may be launched for the pod; `None`: now.
    pub(super) fn pauses_until(&self, now: Timestamp) -> Option<Timestamp> {
        let recent = self.recent(now).count();
        let last = self.0.last()?;
        let doublings = u32::try_from(recent.checked_sub(FREE_FAILURES)?).unwrap_or(u32::MAX);
        let until = after(last.at, doubled(INITIAL_MS, doublings, MAX_MS));
        (until > now).then_some(until)
    }

    /// Why no node is launched for the pod; `None` if one may be.
    pub(super) fn reason(&self, now: Timestamp) -> Option<Reason> {
        let until = self.pauses_until(now)?;
        Some(Reason::LaunchBackoff {
            nodes: self.recent(now).map(|own| own.node.clone()).collect(),
            why: self.0.last()?.why.clone(),
            until,
        })
    }

    fn recent(&self, now: Timestamp) -> impl Iterator<Item = &UnusedNode> {
        let all = self.0.iter();
        all.filter(move |attempt| since(now, attempt.at) < MEMORY_MS)
    }
}

impl PendingPods {
    /// Records failed nominations on nodes that nothing uses.
    pub(super) fn note_unused_nodes(
        &mut self,
        plan: &LaunchPlan,
        report: &SolveReport,
        input: &StepInput<'_>,
    ) {
        if report.broken.is_empty() {
            return;
        }
        let used: BTreeSet<&NodeKey> = plan.placements.iter().map(|own| &own.node).collect();
        let ledger = &input.snapshot.ledger;
        let is_of_node = |why: &NominationFailure| *why != NominationFailure::GangIncomplete;
        for (uid, why) in report.broken.iter().filter(|(_, why)| is_of_node(why)) {
            let Some(nomination) = ledger.nomination(uid) else {
                continue;
            };
            let node = input.snapshot.node_at(&nomination.place);
            let Some(node) = node.filter(|node| is_unused(node, input.snapshot)) else {
                continue;
            };
            let waiting = self.by_key.get_mut(&nomination.pod);
            if let Some(waiting) = waiting.filter(|_| !used.contains(&node.key)) {
                waiting.launch_backoff.note(node, why, input.now);
            }
        }
    }

    /// Pods that the plan launches a node for although their backoff has not elapsed.
    pub(super) fn paused(&self, plan: &LaunchPlan, now: Timestamp) -> Vec<PodKey> {
        let launched = plan.claims.iter().flat_map(PlannedClaim::real_pods);
        let paused = launched.filter(|pod| {
            let waiting = self.by_key.get(&pod.key);
            waiting.is_some_and(|waiting| waiting.launch_backoff.pauses_until(now).is_some())
        });
        paused.map(|pod| pod.key.clone()).collect()
    }
}

/// Whether a node, launched or expected, is not being deleted and runs no pods except those of DaemonSets.
fn is_unused(node: &StateNode, snapshot: &Snapshot) -> bool {
    FreeCapacity::closed(snapshot, node).is_none() && node.reschedulable().next().is_none()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use mortise_apis::karpenter::nodeclaim::NodeClaim;

    #[test]
    fn delays_double_and_expire() {
        let node = StateNode::from_expected_claim(&Arc::new(NodeClaim::default()));
        let start = Timestamp::UNIX_EPOCH;
        let mut backoff = LaunchBackoff::default();
        let mut now = start;
        let mut pauses = Vec::new();
        for _ in 0..9 {
            backoff.note(&node, &NominationFailure::Topology, now);
            let until = backoff.pauses_until(now);
            pauses.push(until.map_or(0, |until| since(until, now) / 60_000));
            now = until.unwrap_or(now);
            assert_eq!(backoff.pauses_until(now), None, "the end is exclusive");
        }
        assert_eq!(pauses, [0, 1, 2, 4, 8, 16, 30, 30, 30]);
        assert_eq!(backoff.pauses_until(after(now, MEMORY_MS)), None);
    }
}
