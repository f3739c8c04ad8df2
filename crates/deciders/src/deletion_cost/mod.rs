//! Deletion costs of pods: a workload that shrinks should leave the nodes that consolidation would remove.
//!
//! The ReplicaSet controller selects which pods go, and knows nothing of nodes: a workload that shrinks from 40 pods to 20 leaves all
//! its nodes half empty, and the others are evicted to pack them. It reads `controller.kubernetes.io/pod-deletion-cost`, and deletes
//! pods with the least cost first: with a cost by the node, pods leave one node after the other, and empty nodes go without evictions.
//!
//! May: write that annotation to pods of ReplicaSets, and next to it one of our own with the same number, which says whose it is.
//!
//! Must never: change a cost that it did not write, or write more than [`PACE`] pods a second.
//!
//! It remembers nothing that matters: the costs are in the pods, and each depends only on its node.
//!
//! It does nothing unless `--pod-deletion-costs` is set.

mod order;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use jiff::Timestamp;

use crate::tracking::timer_queue::TimerQueue;
use crate::tracking::write_tracker::WriteTracker;
use mortise_apis::names::{ObjectRef, PodKey};
use mortise_apis::values::after;
use mortise_engine::decider::{Decider, InboxMessage, Step, StepInput};
use mortise_engine::decider_id::DeciderId;
use mortise_engine::effect::Effect;
use mortise_engine::write::ObjectWrite;
use mortise_planning::settings::Settings;
use mortise_state::index::Changes;
use mortise_state::snapshot::{DeletionCost, NodeKey, Pod};
use order::NodeRank;

/// Pods that are written ...
const PACE: usize = 20;
/// ... in this time, so that other writes wait little.
const WINDOW_MS: i64 = 1_000;

/// The decider. See the module's documentation.
#[derive(Debug)]
pub struct DeletionCostDecider {
    agenda: TimerQueue<NodeKey>,
    outbox: WriteTracker,
    /// Nodes with pods that wait to be written; those with the least cost first.
    waiting: BTreeSet<(i32, NodeKey)>,
    window: Window,
}

/// Writes until a time.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    end: Option<Timestamp>,
    writes: usize,
}

impl Window {
    /// When there may be a write again; `None`: now.
    fn full_until(&mut self, now: Timestamp) -> Option<Timestamp> {
        if self.end.is_none_or(|end| end <= now) {
            *self = Self {
                end: Some(after(now, WINDOW_MS)),
                writes: 0,
            };
        }
        self.end.filter(|_| self.writes >= PACE)
    }
}

impl Default for DeletionCostDecider {
    fn default() -> Self {
        Self {
            agenda: TimerQueue::new(),
            outbox: WriteTracker::new(),
            waiting: BTreeSet::new(),
            window: Window::default(),
        }
    }
}

/// Whether the ReplicaSet controller may ask for the cost of a pod, and its user gave it none.
fn is_ranked(pod: &Pod) -> bool {
    let owner = pod.owner.as_ref();
    owner.is_some_and(|owner| &*owner.kind == "ReplicaSet")
        && pod.is_active()
        && !matches!(pod.deletion_cost, DeletionCost::User(_))
}

impl DeletionCostDecider {
    /// Writes the costs of the pods on a node that have another one.
    fn look(&mut self, input: &StepInput<'_>, key: &NodeKey, step: &mut Step) {
        let Some(node) = input.snapshot.nodes.get(key) else {
            self.agenda.set(key, None);
            return;
        };
        let rank = NodeRank::new(node, input.now);
        let ends = node.pods.iter().filter_map(|pod| pod.protected_until());
        let mut again = ends.filter(|at| *at > input.now).min();
        for pod in node.pods.iter().filter(|pod| is_ranked(pod)) {
            let cost = rank.cost_of(pod);
            if cost == pod.deletion_cost.own() {
                continue;
            }
            if self.window.full_until(input.now).is_some() {
                self.waiting.insert((cost.unwrap_or(0), key.clone()));
                break;
            }
            let write = ObjectWrite::set_deletion_cost(pod.key.clone(), cost);
            match self.outbox.send(input.now, write, step) {
                Ok(()) => self.window.writes += 1,
                Err(at) => again = [at, again].into_iter().flatten().min(),
            }
        }
        self.agenda.set(key, again);
    }
}

impl Decider for DeletionCostDecider {
    fn id(&self) -> DeciderId {
        DeciderId::DeletionCost
    }

    fn fresh(&self) -> Box<dyn Decider> {
        Box::new(Self::default())
    }

    fn is_needed(&self, settings: &Settings) -> bool {
        settings.pod_deletion_costs
    }

    fn is_interested(&self, changes: &Changes) -> bool {
        changes.everything || !changes.nodes.is_empty()
    }

    fn step(&mut self, input: &StepInput<'_>, _stop: &dyn Fn() -> bool) -> Step {
        let mut step = Step::default();
        let mut todo: BTreeSet<NodeKey> = self.agenda.due(input.now).into_iter().collect();
        for delivery in input.inbox {
            if let InboxMessage::Outcome(outcome) = delivery
                && self
                    .outbox
                    .answered(input.now, &outcome.effect, &outcome.result)
                && let Effect::Write(write) = &*outcome.effect
                && let ObjectRef::Pod(pod) = &write.target
            {
                todo.extend(node_of(input, pod));
            }
        }
        if input.changes.everything {
            todo.extend(input.snapshot.nodes.iter().map(|(key, _)| key.clone()));
        } else {
            todo.extend(input.changes.nodes.iter().cloned());
        }
        for key in &todo {
            self.look(input, key, &mut step);
        }
        while self.window.full_until(input.now).is_none()
            && let Some((_, key)) = self.waiting.pop_first()
        {
            self.look(input, &key, &mut step);
        }
        self.outbox.sweep(input.now, input.snapshot);
        let pace = self.window.full_until(input.now);
        let next = pace.filter(|_| !self.waiting.is_empty());
        for at in next.into_iter().chain(self.agenda.next()) {
            step.wake_at(at);
        }
        step
    }
}

fn node_of(input: &StepInput<'_>, pod: &PodKey) -> Option<NodeKey> {
    let node = input.snapshot.pods.get(pod)?.node.clone()?;
    Some(input.snapshot.named.get(&node)?.key.clone())
}
