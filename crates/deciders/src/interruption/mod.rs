//! What the cloud announces about instances, turned into graceful replacement.
//!
//! # Problem
//! Notices come from queues and from polls, twice or late, about instances of this cluster and of others, with two minutes, two weeks
//! or no time at all left. Pods should run elsewhere before their instance ends, and nothing that was announced may be forgotten.
//!
//! # What follows
//! - An interruption without time (spot, stopping, reclaimed): the node is fenced and its NodeClaim deleted. Provisioning plans the
//!   pods of a deleted NodeClaim as soon as the deletion shows, so their replacement is launched while the drain is under way.
//! - A failed status check: the same, and the termination grace period ends now: nothing on the instance answers.
//! - An interruption with a start (scheduled change, end of a capacity block): it is stored on the NodeClaim. A day ahead the node is
//!   fenced and tainted, which makes provisioning plan its pods elsewhere; it is drained when they have room on nodes that are ready,
//!   or when what is left of the time requires it ([`timing`]).
//! - A rebalance recommendation: an event; or a cordon, or a replacement first, by the policy of the NodePool.
//!
//! # Invariants
//! - A message is acknowledged when the deletion was accepted or the announcement is stored on the NodeClaim, never before: a killed
//!   process gets the message again, or reads the annotation.
//! - Instances of others are acknowledged and left alone.
//! - Everything is idempotent: a message that comes twice finds the NodeClaim deleted or annotated.
//!
//! That an offering is empty is the provider's to note.
//!
//! # Source
//! karpenter-aws 6.2, 6.3 and 6.5; replacement first and start times go beyond it.

mod intent;
mod messages;
mod replacement;
#[cfg(test)]
mod tests;
mod timing;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use self::intent::{Intent, is_stored, policy_of, stored, stored_fence};
use self::messages::OpenMessages;
use self::replacement::Replacements;
use self::timing::Schedule;
use crate::tracking::event_throttle::EventThrottle;
use crate::tracking::timer_queue::{TimerQueue, earlier};
use crate::tracking::write_tracker::WriteTracker;
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::names::{ClaimName, ObjectRef, Uid};
use mortise_apis::taints;
use mortise_apis::values::{after, since};
use mortise_cloudprovider::{InterruptionKind, InterruptionNotice, PlannedInterruption};
use mortise_engine::decider::{Decider, InboxMessage, Step, StepInput};
use mortise_engine::decider_id::DeciderId;
use mortise_engine::effect::{Effect, EffectError, Outcome};
use mortise_engine::metric_event::MetricEvent;
use mortise_engine::record::Verdict;
use mortise_engine::write::{NodeTaints, ObjectWrite};
use mortise_planning::pause;
use mortise_planning::reason::Reason;
use mortise_planning::settings::RebalancePolicy;
use mortise_state::index::Changes;
use mortise_state::ledger::{Fence, FenceReason, LedgerOp};

/// Whether the replacement of a node is ready is asked again after this, although nothing changes.
const RECHECK_MS: i64 = 2_000;
/// A bad status that was not reported for this long is over. Statuses are polled every minute.
const RECOVERED_MS: i64 = 150_000;
/// That a setting cannot be read is said again after this.
const FAULT_EVERY_MS: i64 = 15 * 60_000;

/// The decider. See the module's documentation.
#[derive(Debug)]
pub struct InterruptionDecider {
    /// Claims by the last part of their provider id; and that part by claim, to remove it.
    instances: BTreeMap<Arc<str>, ClaimName>,
    ids: BTreeMap<ClaimName, Arc<str>>,
    open: OpenMessages,
    /// What is not stored yet.
    intents: BTreeMap<ClaimName, (Uid, Intent)>,
    /// Claims whose deletion was accepted and does not show yet.
    deleted: BTreeMap<ClaimName, Uid>,
    agenda: TimerQueue<ClaimName>,
    replacements: Replacements,
    /// Bad statuses that were counted, with the time of the last report.
    unhealthy: BTreeMap<(Arc<str>, InterruptionKind), Timestamp>,
    outbox: WriteTracker,
    told: EventThrottle,
}

impl Default for InterruptionDecider {
    fn default() -> Self {
        Self::new()
    }
}

impl InterruptionDecider {
    /// A decider that knows nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            instances: BTreeMap::new(),
            ids: BTreeMap::new(),
            open: OpenMessages::default(),
            intents: BTreeMap::new(),
            deleted: BTreeMap::new(),
            agenda: TimerQueue::new(),
            replacements: Replacements::default(),
            unhealthy: BTreeMap::new(),
            outbox: WriteTracker::new(),
            told: EventThrottle::default(),
        }
    }

    /// Brings the claims by instance up to date. Returns those to be evaluated.
    fn index(&mut self, input: &StepInput<'_>) -> BTreeSet<ClaimName> {
        let mut changed: BTreeSet<ClaimName> = (*input.changes.claims).clone();
        if input.changes.everything {
            changed.extend(input.snapshot.claims.iter().map(|(name, _)| name.clone()));
            changed.extend(self.ids.keys().cloned());
        }
        for name in &changed {
            let claim = input.snapshot.claims.get(name);
            let id = claim.and_then(|claim| last_part(claim.instance_id()?));
            if let Some(old) = self.ids.remove(name)
                && self.instances.get(&old) == Some(name)
            {
                self.instances.remove(&old);
            }
            if let Some(id) = id {
                self.instances.insert(Arc::clone(&id), name.clone());
                self.ids.insert(name.clone(), id);
            }
        }
        changed
    }

    /// Takes a notice in. Returns the claims to be evaluated.
    fn notice(
        &mut self,
        input: &StepInput<'_>,
        provider: &Arc<str>,
        notice: &InterruptionNotice,
        step: &mut Step,
    ) -> Vec<ClaimName> {
        let (mut waits, mut todo) = (BTreeSet::new(), Vec::new());
        for instance in &notice.instances {
            let name = self.instances.get(instance).cloned();
            let claim = name.and_then(|name| input.snapshot.claims.get(&name));
            let Some(claim) = claim.filter(|_| notice.kind != InterruptionKind::Other) else {
                continue;
            };
            self.count(input.now, instance, notice.kind, step);
            if let Some(uid) = self.announced(input, notice, claim, step) {
                waits.insert(uid);
                todo.push(claim.name());
            }
        }
        if let Some(id) = &notice.id {
            let key = (Arc::clone(provider), Arc::clone(id));
            self.open.wait(key, waits, step);
        }
        todo
    }

    /// Counts a bad status of an instance, once until it is over.
    fn count(
        &mut self,
        now: Timestamp,
        instance: &Arc<str>,
        kind: InterruptionKind,
        step: &mut Step,
    ) {
        let Some(category) = kind.status_category() else {
            return;
        };
        let last = self.unhealthy.insert((Arc::clone(instance), kind), now);
        if last.is_none_or(|last| since(now, last) >= RECOVERED_MS) {
            step.tallies
                .push(MetricEvent::InstanceUnhealthy { category });
        }
    }

    /// Says what was announced, and notes what follows. Returns the claim's UID if that is to be stored before the message goes.
    fn announced(
        &mut self,
        input: &StepInput<'_>,
        notice: &InterruptionNotice,
        claim: &NodeClaim,
        step: &mut Step,
    ) -> Option<Uid> {
        let plan = PlannedInterruption {
            kind: notice.kind,
            starts: notice.starts,
        };
        let uid = claim.uid()?;
        let is_going =
            claim.metadata.deletion_timestamp.is_some() || self.is_deleted(&claim.name(), &uid);
        let policy = if notice.kind == InterruptionKind::RebalanceRecommendation {
            self.policy(input, claim, step)
        } else {
            RebalancePolicy::ReplaceFirst
        };
        let intent = Intent::new(plan, claim, policy, input.now)
            .map(|intent| self.at_once_if_unused(input, claim, intent))
            .filter(|intent| !is_done(claim, *intent, is_going));
        let (name, kind) = (claim.name(), notice.kind);
        let known = self.intents.get(&name).filter(|(of, _)| *of == uid);
        let known = known.map(|(_, intent)| *intent);
        // What is polled says the same until it is over.
        let is_new = intent.is_some_and(|intent| known.is_none_or(|known| intent.exceeds(known)));
        if notice.id.is_some() || (is_new && !is_going) {
            let deletes = matches!(intent, Some(Intent::Delete { .. }));
            let interrupted = (deletes && !is_going).then_some(Reason::Interrupted { kind });
            let reasons = interrupted.into_iter().chain([Reason::Notice { kind }]);
            tell(input, claim, reasons.collect(), step);
        }
        let intent = intent?;
        if is_new {
            self.intents.insert(name, (uid.clone(), intent));
        }
        Some(uid)
    }

    /// A node from which no pod would have to move needs no replacement.
    fn at_once_if_unused(
        &self,
        input: &StepInput<'_>,
        claim: &NodeClaim,
        intent: Intent,
    ) -> Intent {
        let Intent::Store {
            plan,
            fence: Some(FenceReason::Interruption),
        } = intent
        else {
            return intent;
        };
        let node = input.snapshot.node_of_claim(&claim.name());
        if node.is_some_and(|node| node.reschedulable().next().is_some()) {
            return intent;
        }
        Intent::Delete {
            kind: plan.kind,
            deadline: None,
        }
    }

    /// What follows a rebalance recommendation in the claim's pool.
    fn policy(
        &mut self,
        input: &StepInput<'_>,
        claim: &NodeClaim,
        step: &mut Step,
    ) -> RebalancePolicy {
        let name = claim.pool();
        let pool = name
            .as_ref()
            .and_then(|name| input.snapshot.pools.get(name));
        let node = input.snapshot.node_of_claim(&claim.name());
        if node.is_some_and(|node| pause::of_node(input.snapshot, node, input.now).is_some()) {
            // What the cloud recommends is voluntary.
            return RebalancePolicy::Ignore;
        }
        let (policy, fault) = policy_of(pool.map(|pool| &**pool), input.settings.rebalance);
        if let (Some(fault), Some(name)) = (fault, name) {
            let target = ObjectRef::Pool(name);
            let now = input.now;
            if self
                .told
                .is_news(&target, "settings", &fault, now, FAULT_EVERY_MS)
            {
                let (by, verdict) = (DeciderId::Interruption, Verdict::Blocked);
                step.announce(input, by, [target], verdict, vec![fault]);
            }
        }
        policy
    }

    /// Goes on with a claim: writes what is to be stored, and does what is due. Returns when to look again although nothing changes.
    fn look(
        &mut self,
        input: &StepInput<'_>,
        name: &ClaimName,
        step: &mut Step,
        stop: &dyn Fn() -> bool,
    ) -> Option<Timestamp> {
        let claim = input.snapshot.claims.get(name);
        if let Some((uid, intent)) = self.intents.get(name).cloned() {
            let there = claim.filter(|claim| claim.uid().as_ref() == Some(&uid));
            let is_going = |claim: &NodeClaim| claim.metadata.deletion_timestamp.is_some();
            match there.filter(|claim| !is_done(claim, intent, is_going(claim))) {
                Some(claim) => return self.pursue(input, claim, intent, step),
                None => self.done(name, &uid, step),
            }
        }
        let Some(claim) = claim.filter(|claim| claim.metadata.deletion_timestamp.is_none()) else {
            self.deleted.remove(name);
            return None;
        };
        if claim.uid().is_some_and(|uid| self.is_deleted(name, &uid)) {
            return None;
        }
        self.proceed(input, claim, step, stop)
    }

    /// Writes what is to be stored.
    fn pursue(
        &mut self,
        input: &StepInput<'_>,
        claim: &NodeClaim,
        intent: Intent,
        step: &mut Step,
    ) -> Option<Timestamp> {
        let name = claim.name();
        let (plan, fence, deadline) = match intent {
            Intent::Store { plan, fence } => (plan, fence, None),
            Intent::Delete { kind, deadline } => {
                let plan = PlannedInterruption { kind, starts: None };
                (plan, Some(FenceReason::Interruption), deadline)
            }
        };
        if let Some(reason) = fence {
            step.ledger.push(fenced(&name, reason, input.now));
        }
        let mut again = None;
        let is_going = claim.metadata.deletion_timestamp.is_some();
        let is_noted = stored_fence(claim) == fence && stored(claim) == Some(plan);
        if !is_noted || (deadline.is_some() && claim.termination_deadline().is_none()) {
            let write = ObjectWrite::set_interruption(name, plan, fence, deadline);
            again = self.outbox.send(input.now, write, step).err().flatten();
        }
        if matches!(intent, Intent::Delete { .. }) && !is_going {
            // The deletion does not wait for the note: writes to one object are executed in order.
            let deletion = Effect::delete_claim(claim);
            again = earlier(
                again,
                self.outbox.send(input.now, deletion, step).err().flatten(),
            );
        }
        again
    }

    /// Does what is due of an announcement that is stored on a claim.
    fn proceed(
        &mut self,
        input: &StepInput<'_>,
        claim: &NodeClaim,
        step: &mut Step,
        stop: &dyn Fn() -> bool,
    ) -> Option<Timestamp> {
        let (plan, now, name) = (stored(claim)?, input.now, claim.name());
        let cordoned = stored_fence(claim) == Some(FenceReason::Rebalance);
        let schedule = match Schedule::new(plan, claim) {
            Some(schedule) if schedule.begin > now => return Some(schedule.begin),
            schedule => schedule,
        };
        let is_late = schedule.is_none_or(|schedule| schedule.drain_by.is_some_and(|at| at <= now));
        let fence = if cordoned {
            FenceReason::Rebalance
        } else {
            FenceReason::Interruption
        };
        let node = input.snapshot.node_of_claim(&name);
        let again = if is_late {
            None
        } else if stored_fence(claim) == Some(fence) {
            step.ledger.push(fenced(&name, fence, now));
            self.taint(input, claim, step)
        } else {
            return self.intend(
                input,
                claim,
                Intent::Store {
                    plan,
                    fence: Some(fence),
                },
                step,
            );
        };
        if cordoned {
            return again;
        }
        let in_use = node.is_some_and(|node| node.reschedulable().next().is_some());
        if !is_late && in_use {
            let waits = self.replacements.look(input, stop).err();
            let is_covered = node.is_none_or(|node| self.replacements.covers(node));
            if waits.is_some() || !is_covered {
                let deadline = schedule.and_then(|schedule| schedule.drain_by);
                let next = waits.unwrap_or_else(|| after(now, RECHECK_MS));
                return earlier(earlier(again, Some(next)), deadline);
            }
        }
        let kind = plan.kind;
        tell(input, claim, vec![Reason::Interrupted { kind }], step);
        let deadline = None;
        self.intend(input, claim, Intent::Delete { kind, deadline }, step)
    }

    fn intend(
        &mut self,
        input: &StepInput<'_>,
        claim: &NodeClaim,
        intent: Intent,
        step: &mut Step,
    ) -> Option<Timestamp> {
        let uid = claim.uid()?;
        self.intents.insert(claim.name(), (uid, intent));
        self.pursue(input, claim, intent, step)
    }

    /// Keeps kube-scheduler off a node that is there.
    fn taint(
        &mut self,
        input: &StepInput<'_>,
        claim: &NodeClaim,
        step: &mut Step,
    ) -> Option<Timestamp> {
        let state_node = input.snapshot.node_of_claim(&claim.name())?;
        let node = state_node.node.as_ref().filter(|_| state_node.registered)?;
        let disrupted = taints::disrupted();
        if node.has_taint(&disrupted.key, &disrupted.effect) {
            return None;
        }
        let write = ObjectWrite::set_taints(node, NodeTaints::disrupted(node));
        self.outbox.send(input.now, write, step).err().flatten()
    }

    /// The API server has accepted the deletion of this claim, whether or not that shows.
    fn is_deleted(&self, name: &ClaimName, uid: &Uid) -> bool {
        self.deleted.get(name).is_some_and(|deleted| deleted == uid)
    }

    fn done(&mut self, name: &ClaimName, uid: &Uid, step: &mut Step) {
        self.intents.remove(name);
        self.open.done(uid, step);
    }

    /// Takes the outcome of a write in. Returns the claim that it was about.
    fn outcome(&mut self, now: Timestamp, outcome: &Outcome, step: &mut Step) -> Option<ClaimName> {
        self.outbox.answered(now, &outcome.effect, &outcome.result);
        let target = outcome.effect.target()?;
        let ObjectRef::Claim(name) = target else {
            return None;
        };
        if let Effect::Delete { uid: Some(uid), .. } = &*outcome.effect
            && let Ok(_) | Err(EffectError::NotFound(_) | EffectError::Conflict(_)) =
                &outcome.result
        {
            self.done(&name, uid, step);
            self.deleted.insert(name.clone(), uid.clone());
        }
        Some(name)
    }
}

/// Whether a claim shows what is wanted.
fn is_done(claim: &NodeClaim, intent: Intent, is_going: bool) -> bool {
    match intent {
        Intent::Delete { deadline, .. } => {
            is_going && (deadline.is_none() || claim.termination_deadline().is_some())
        }
        Intent::Store { plan, fence } => is_going || is_stored(claim, plan, fence),
    }
}

fn fenced(claim: &ClaimName, reason: FenceReason, from: Timestamp) -> LedgerOp {
    LedgerOp::Fence(Fence {
        claim: claim.clone(),
        reason,
        from,
    })
}

/// Tells users of a claim and of its node.
fn tell(input: &StepInput<'_>, claim: &NodeClaim, reasons: Vec<Reason>, step: &mut Step) {
    let name = claim.name();
    let node = input.snapshot.node_of_claim(&name);
    let node = node.and_then(|node| node.node_name()).map(ObjectRef::Node);
    let objects = std::iter::once(ObjectRef::Claim(name)).chain(node);
    let (by, verdict) = (DeciderId::Interruption, Verdict::Notified);
    step.announce(input, by, objects, verdict, reasons);
}

/// `i-0123` of `aws:///us-east-1a/i-0123`.
fn last_part(id: &str) -> Option<Arc<str>> {
    id.rsplit('/')
        .next()
        .filter(|last| !last.is_empty())
        .map(Arc::from)
}

impl Decider for InterruptionDecider {
    fn id(&self) -> DeciderId {
        DeciderId::Interruption
    }

    fn fresh(&self) -> Box<dyn Decider> {
        Box::new(Self::default())
    }

    fn is_interested(&self, changes: &Changes) -> bool {
        changes.everything || !changes.claims.is_empty()
    }

    fn step(&mut self, input: &StepInput<'_>, stop: &dyn Fn() -> bool) -> Step {
        let mut step = Step::default();
        let mut todo = self.index(input);
        todo.extend(self.agenda.due(input.now));
        for delivery in input.inbox {
            match delivery {
                InboxMessage::Notice { provider, notice } => {
                    todo.extend(self.notice(input, provider, notice, &mut step));
                }
                InboxMessage::Outcome(outcome) => {
                    todo.extend(self.outcome(input.now, outcome, &mut step));
                }
                InboxMessage::CapacityRefused { .. } => {}
            }
        }
        for name in todo {
            let again = self.look(input, &name, &mut step, stop);
            self.agenda.set(&name, again);
        }
        self.unhealthy
            .retain(|_, last| since(input.now, *last) < RECOVERED_MS);
        self.told.sweep(input.now);
        self.outbox.sweep(input.now, input.snapshot);
        if let Some(at) = self.agenda.next() {
            step.wake_at(at);
        }
        step
    }
}
