//! Provisioning in Karpenter's way.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::new_node_claim::{self, ClaimNames};
use mortise_apis::names::{PodKey, Uid};
use mortise_apis::values::after;
use mortise_engine::decider::{Decider, Step, StepInput};
use mortise_engine::decider_id::DeciderId;
use mortise_engine::freshness;
use mortise_planning::scheduling::{LaunchPlan, SolveOptions, solve};
use mortise_state::index::Changes;
use mortise_state::ledger::LedgerOp;
use mortise_state::snapshot::NodeKey;

/// A pod that waits triggers a batch again after this long.
const AGAIN_MS: i64 = 10_000;

/// CapacityBuffers trigger a batch this often.
const BUFFERS_MS: i64 = 30_000;

/// A nomination lasts for two of the longest batches.
const NOMINATION_BATCHES: i64 = 2;

/// Batches of unschedulable pods, and a first-fit pass over all of them.
#[derive(Debug, Default)]
pub(super) struct BaselineProvisioning {
    /// Pods that triggered a batch, with the last time.
    triggered: BTreeMap<Uid, Timestamp>,
    /// Nodes that are being deleted and have pods that need a place.
    leaving: BTreeSet<NodeKey>,
    /// When CapacityBuffers triggered a batch.
    buffers: Option<Timestamp>,
    /// First and last trigger of the open batch.
    batch: Option<(Timestamp, Timestamp)>,
}

impl BaselineProvisioning {
    fn trigger(&mut self, now: Timestamp) {
        let first = self.batch.map_or(now, |(first, _)| first);
        self.batch = Some((first, now));
    }

    /// Pods and nodes that trigger a batch now. Returns when the next pod does.
    fn read(&mut self, input: &StepInput<'_>) -> Option<Timestamp> {
        let now = input.now;
        let mut waiting = BTreeMap::new();
        for (_, pod) in input.snapshot.pending.sorted() {
            if !pod.unschedulable {
                continue;
            }
            let last = self.triggered.get(&pod.uid).copied();
            let is_due = last.is_none_or(|last| after(last, AGAIN_MS) <= now);
            if is_due {
                self.trigger(now);
            }
            let last = last.filter(|_| !is_due).unwrap_or(now);
            waiting.insert(pod.uid.clone(), last);
        }
        self.triggered = waiting;
        let mut leaving = BTreeSet::new();
        for key in input.snapshot.deleting.iter() {
            let node = input.snapshot.nodes.get(&**key);
            if node.is_some_and(|node| node.reschedulable().next().is_some()) {
                if !self.leaving.contains(key) {
                    self.trigger(now);
                }
                leaving.insert(key.clone());
            }
        }
        self.leaving = leaving;
        let next = self.triggered.values().min();
        let next = next.map(|last| after(*last, AGAIN_MS));
        [next, self.read_buffers(input)].into_iter().flatten().min()
    }

    /// Triggers a batch for room that CapacityBuffers keep free. Returns when they do so again.
    fn read_buffers(&mut self, input: &StepInput<'_>) -> Option<Timestamp> {
        input.snapshot.virtual_pods().next()?;
        let last = self
            .buffers
            .filter(|last| input.now < after(*last, BUFFERS_MS));
        let last = last.unwrap_or_else(|| {
            self.trigger(input.now);
            input.now
        });
        self.buffers = Some(last);
        Some(after(last, BUFFERS_MS))
    }

    /// When the open batch is over.
    fn ends(&self, input: &StepInput<'_>) -> Option<Timestamp> {
        let (first, last) = self.batch?;
        let settings = input.settings;
        let idle = after(last, settings.batch_idle_ms);
        Some(idle.min(after(first, settings.batch_max_ms)))
    }

    fn pass(input: &StepInput<'_>, step: &mut Step, stop: &dyn Fn() -> bool) {
        let mut view = input.snapshot.with_expected_claims();
        let others = view.pending.sorted().into_iter();
        let others = others.filter(|(_, pod)| !pod.unschedulable);
        let others: Vec<PodKey> = others.map(|(key, _)| key.clone()).collect();
        for key in &others {
            view.pending.remove(key);
        }
        let options = SolveOptions {
            closed: input.snapshot.fenced_nodes(),
            pending: true,
            seed: input.seed,
            ..input.settings.solve_options()
        };
        let (plan, _) = solve(input.now, &view, &options, stop);
        nominate(&plan, input, step);
        let mut names = ClaimNames::new(input.seed);
        for planned in &plan.claims {
            new_node_claim::create(planned, &mut names, DeciderId::Provisioning, input, step);
        }
    }
}

/// Nodes that pods are expected on are not disrupted for a while.
fn nominate(plan: &LaunchPlan, input: &StepInput<'_>, step: &mut Step) {
    let lasts = NOMINATION_BATCHES * input.settings.batch_max_ms;
    let until = after(input.now, lasts);
    let waiting = plan.placements.iter();
    for placement in waiting.filter(|each| each.pod.node.is_none() && !each.pod.is_virtual()) {
        let place = placement.place.clone();
        let nomination = placement.pod.nomination(place, input.now, until);
        step.ledger.push(LedgerOp::Nominate(nomination));
    }
}

impl Decider for BaselineProvisioning {
    fn id(&self) -> DeciderId {
        DeciderId::Provisioning
    }

    fn fresh(&self) -> Box<dyn Decider> {
        Box::new(Self::default())
    }

    fn is_interested(&self, changes: &Changes) -> bool {
        changes.everything
            || changes.demand
            || !(changes.pods.is_empty() && changes.nodes.is_empty() && changes.claims.is_empty())
    }

    fn step(&mut self, input: &StepInput<'_>, stop: &dyn Fn() -> bool) -> Step {
        let mut step = Step::default();
        let next = self.read(input);
        if self.ends(input).is_some_and(|end| end <= input.now) {
            if input.held_by(DeciderId::Provisioning).is_some() {
                step.wake_in(input.now, freshness::RECHECK_MS);
                return step;
            }
            self.batch = None;
            Self::pass(input, &mut step, stop);
        }
        for at in [self.ends(input), next].into_iter().flatten() {
            step.wake_at(at.max(after(input.now, 1)));
        }
        step
    }
}
