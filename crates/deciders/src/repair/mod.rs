//! Nodes whose conditions have been bad for too long are replaced.
//!
//! May: delete the claim of a registered node one of whose conditions the provider calls bad, once that has lasted as
//! long as the provider (or the pool) bears it; before that, unless the pool asks for grace, end the claim's
//! termination grace period, so that its pods are deleted at once and volumes are not waited for.
//!
//! Must never: act while more nodes of the pool are unhealthy than its limit (20 %, rounded up): then it is more likely
//! the network or a rollout than the nodes; act without the feature gate; act on a pool that has switched it off, or on a
//! node that a pause protects.
//!
//! Budgets, protecting annotations and disruption budgets of pods do not hold a forceful repair up, as in Karpenter: a
//! node that does not answer runs nothing that could be protected. With grace they do.
//!
//! Everything is decided from objects at each look; what is kept here only saves repeated calls and words.
//!
//! Implements karpenter-core 7.1, with settings per pool (`mortise.sh/repair-mode`, `-toleration-duration`,
//! `-max-unhealthy`).

mod rules;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use crate::tracking::event_throttle::EventThrottle;
use crate::tracking::timer_queue::{TimerQueue, earlier};
use crate::tracking::write_tracker::WriteTracker;
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::labels;
use mortise_apis::names::{ObjectRef, PoolName};
use mortise_apis::values::after;
use mortise_engine::decider::{Decider, InboxMessage, Step, StepInput};
use mortise_engine::decider_id::DeciderId;
use mortise_engine::effect::Effect;
use mortise_engine::freshness;
use mortise_engine::record::Verdict;
use mortise_engine::write::{DeletionReason, ObjectWrite};
use mortise_planning::pause;
use mortise_planning::reason::Reason;
use mortise_planning::settings::RepairPolicies as Served;
use mortise_state::index::Changes;
use mortise_state::snapshot::{NodeKey, StateNode};
use rules::{RepairMode, RepairRules, UnhealthyCondition, ailment};

/// A repair that is held up is checked again after this. Karpenter waits 5 min.
const RECHECK_MS: i64 = 30_000;
/// That it is held up is said again after this, as in Karpenter.
const BLOCKED_EVERY_MS: i64 = 15 * 60_000;
/// That a setting cannot be read is said again after this.
const FAULT_EVERY_MS: i64 = 15 * 60_000;

/// The decider. See the module's documentation.
#[derive(Debug)]
pub struct RepairDecider {
    agenda: TimerQueue<NodeKey>,
    outbox: WriteTracker,
    told: EventThrottle,
}

impl Default for RepairDecider {
    fn default() -> Self {
        Self::new()
    }
}

/// How many nodes there are and how many of them are unhealthy, of one pool, or of the cluster.
#[derive(Clone, Copy, Debug, Default)]
struct HealthCount {
    nodes: i64,
    unhealthy: i64,
}

/// Counts, found when first needed in a step.
type HealthCounts = Option<BTreeMap<Option<PoolName>, HealthCount>>;

impl RepairDecider {
    /// A decider that knows nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            agenda: TimerQueue::new(),
            outbox: WriteTracker::new(),
            told: EventThrottle::default(),
        }
    }

    /// Replaces the node if it is unhealthy for too long. Returns when to look again although nothing changes.
    fn look(
        &mut self,
        input: &StepInput<'_>,
        key: &NodeKey,
        counts: &mut HealthCounts,
        step: &mut Step,
    ) -> Option<Timestamp> {
        let state_node = input.snapshot.nodes.get(key)?;
        let (claim, rules, ailment) = unhealthy(input, state_node)?;
        if claim.metadata.deletion_timestamp.is_some() || rules.mode == RepairMode::Off {
            return None;
        }
        if ailment.due > input.now {
            return Some(ailment.due);
        }
        if let Some(old) = input.held_by(DeciderId::Repair) {
            let target = ObjectRef::Claim(claim.name());
            let told = (input, DeciderId::Repair);
            self.told.outdated(told, &target, old, step);
            return Some(after(input.now, freshness::RECHECK_MS));
        }
        if let Some(pause) = pause::of_node(input.snapshot, state_node, input.now) {
            let again = pause::look_again(&pause, input.now);
            self.held_up(input, state_node, Reason::Paused(pause), step);
            return Some(again);
        }
        let counts = counts.get_or_insert_with(|| count(input));
        let pool = state_node.pool();
        let HealthCount { nodes, unhealthy } = counts.get(&pool).copied().unwrap_or_default();
        if unhealthy > rules.limit.allowed(nodes) {
            let reason = Reason::TooManyUnhealthy {
                unhealthy,
                nodes,
                limit: rules.limit_text(),
                in_pool: known_pool(input, state_node).is_some(),
            };
            self.held_up(input, state_node, reason, step);
            return Some(after(input.now, RECHECK_MS));
        }
        self.replace(input, state_node, claim, rules.mode, &ailment, step)
    }

    fn replace(
        &mut self,
        input: &StepInput<'_>,
        state_node: &StateNode,
        claim: &NodeClaim,
        mode: RepairMode,
        ailment: &UnhealthyCondition,
        step: &mut Step,
    ) -> Option<Timestamp> {
        let now = input.now;
        let target = ObjectRef::Claim(claim.name());
        let mut again = None;
        let over = |text: &str| text.parse::<Timestamp>().is_ok_and(|at| at <= now);
        if mode == RepairMode::Forceful
            && !claim
                .annotation(labels::TERMINATION_TIMESTAMP)
                .is_some_and(over)
        {
            let by = DeletionReason {
                by: DeciderId::Repair,
                reason: reason(ailment),
            };
            let write = ObjectWrite::set_deadline(claim, now, Some(by));
            again = self.outbox.send(now, write, step).err().flatten();
        }
        let why = (DeciderId::Repair, &reason(ailment));
        if let Err(at) = self.outbox.end(now, claim, why, step) {
            return earlier(again, at);
        }
        let about = [Some(target), state_node.node_name().map(ObjectRef::Node)];
        let about = about.into_iter().flatten();
        let (by, verdict) = (DeciderId::Repair, Verdict::Disrupted);
        step.announce(input, by, about, verdict, vec![reason(ailment)]);
        again
    }

    /// Says what keeps an unhealthy node: too many others are, or a pause.
    fn held_up(
        &mut self,
        input: &StepInput<'_>,
        state_node: &StateNode,
        reason: Reason,
        step: &mut Step,
    ) {
        let is_of_pool = matches!(reason, Reason::TooManyUnhealthy { .. });
        let pool = known_pool(input, state_node).filter(|_| is_of_pool);
        let about = [
            state_node.node_name().map(ObjectRef::Node),
            state_node.claim_name().map(ObjectRef::Claim),
            pool.map(ObjectRef::Pool),
        ];
        for object in about.into_iter().flatten() {
            if !self
                .told
                .is_news(&object, "blocked", "", input.now, BLOCKED_EVERY_MS)
            {
                continue;
            }
            let (by, verdict) = (DeciderId::Repair, Verdict::Blocked);
            step.announce(input, by, [object], verdict, vec![reason.clone()]);
        }
    }

    /// Says which settings of pools cannot be read.
    fn tell_faults(&mut self, input: &StepInput<'_>, step: &mut Step) {
        for name in input.changes.pools.iter().chain(everything(input)) {
            let Some(pool) = input.snapshot.pools.get(name) else {
                continue;
            };
            for fault in RepairRules::of(pool).1 {
                let target = ObjectRef::Pool(name.clone());
                if self
                    .told
                    .is_news(&target, "settings", &fault, input.now, FAULT_EVERY_MS)
                {
                    let (by, verdict) = (DeciderId::Repair, Verdict::Blocked);
                    step.announce(input, by, [target], verdict, vec![fault]);
                }
            }
        }
    }
}

/// The node's pool, if it exists.
fn known_pool(input: &StepInput<'_>, state_node: &StateNode) -> Option<PoolName> {
    let pools = &input.snapshot.pools;
    state_node.pool().filter(|pool| pools.contains_key(pool))
}

/// Every pool, at the first step.
fn everything<'a>(input: &StepInput<'a>) -> impl Iterator<Item = &'a PoolName> + use<'a> {
    let first = input.changes.everything;
    input.snapshot.pools.keys().filter(move |_| first)
}

fn reason(ailment: &UnhealthyCondition) -> Reason {
    Reason::Unhealthy {
        condition: ailment.condition.to_owned(),
        status: ailment.status.to_owned(),
        since: ailment.since,
    }
}

/// The claim, its rules and what is bad, of a registered node of ours that is unhealthy.
fn unhealthy<'a>(
    input: &StepInput<'_>,
    state_node: &'a StateNode,
) -> Option<(&'a NodeClaim, RepairRules, UnhealthyCondition)> {
    let claim = state_node
        .claim
        .as_deref()
        .filter(|claim| claim.is_true("Registered"))?;
    let node = state_node.node.as_deref()?;
    let class = claim.node_class_key();
    let served = input
        .settings
        .repair
        .iter()
        .find(|each: &&Served| each.serves.covers(&class))?;
    let pool = state_node
        .pool()
        .and_then(|pool| input.snapshot.pools.get(&pool));
    let rules = pool.map_or_else(RepairRules::default, |pool| RepairRules::of(pool).0);
    let ailment = ailment(node, &served.policies, &rules)?;
    Some((claim, rules, ailment))
}

/// Nodes with a Node object, by pool; those without a pool count against all nodes. Cost: one pass over the nodes.
fn count(input: &StepInput<'_>) -> BTreeMap<Option<PoolName>, HealthCount> {
    let mut counts: BTreeMap<Option<PoolName>, HealthCount> = BTreeMap::new();
    for state_node in input.snapshot.nodes.values() {
        if state_node.node.is_none() || state_node.claim.is_none() {
            continue;
        }
        let is_unhealthy = i64::from(unhealthy(input, state_node).is_some());
        let pool = state_node.pool();
        for key in [None, pool.clone()]
            .into_iter()
            .take(if pool.is_some() { 2 } else { 1 })
        {
            let count = counts.entry(key).or_default();
            count.nodes += 1;
            count.unhealthy += is_unhealthy;
        }
    }
    counts
}

impl Decider for RepairDecider {
    fn id(&self) -> DeciderId {
        DeciderId::Repair
    }

    fn fresh(&self) -> Box<dyn Decider> {
        Box::new(Self::default())
    }

    fn is_interested(&self, changes: &Changes) -> bool {
        changes.everything || !changes.nodes.is_empty() || !changes.pools.is_empty()
    }

    fn step(&mut self, input: &StepInput<'_>, _stop: &dyn Fn() -> bool) -> Step {
        let mut step = Step::default();
        if !input.settings.gates.node_repair || input.settings.repair.is_empty() {
            return step;
        }
        let mut todo: BTreeSet<NodeKey> = self.agenda.due(input.now).into_iter().collect();
        for delivery in input.inbox {
            let InboxMessage::Outcome(outcome) = delivery else {
                continue;
            };
            self.outbox
                .answered(input.now, &outcome.effect, &outcome.result);
            if let Effect::Write(ObjectWrite { target, .. }) | Effect::Delete { target, .. } =
                &*outcome.effect
                && let ObjectRef::Claim(name) = target
            {
                todo.extend(
                    input
                        .snapshot
                        .node_of_claim(name)
                        .map(|state_node| state_node.key.clone()),
                );
            }
        }
        todo.extend(input.changes.nodes.iter().cloned());
        if input.changes.everything || !input.changes.pools.is_empty() {
            let of_changed = |state_node: &StateNode| {
                input.changes.everything
                    || state_node
                        .pool()
                        .is_some_and(|pool| input.changes.pools.contains(&pool))
            };
            let nodes = input
                .snapshot
                .nodes
                .iter()
                .filter(|(_, state_node)| of_changed(state_node));
            todo.extend(nodes.map(|(key, _)| key.clone()));
            self.tell_faults(input, &mut step);
        }
        let mut counts = None;
        for key in todo {
            let again = self.look(input, &key, &mut counts, &mut step);
            self.agenda.set(&key, again);
        }
        self.told.sweep(input.now);
        self.outbox.sweep(input.now, input.snapshot);
        if let Some(at) = self.agenda.next() {
            step.wake_at(at);
        }
        step
    }
}
