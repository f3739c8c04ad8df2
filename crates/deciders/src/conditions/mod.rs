//! Conditions of claims that disruption reads: `Drifted`, `Consolidatable`, and the time of the last pod event; and
//! `ConsistentStateFound`, which says whether the node has what its claim expected.
//!
//! May: write these three conditions and `status.lastPodEventTime` of launched claims; ask providers whether a node
//! still fits its class.
//!
//! What is true of a node from the moment of its initialization on is written by whoever writes that
//! ([`mod@at_initialization`]).
//!
//! Must never: disrupt anything; restart a timer because this process started (pods that were there already are no
//! event); drop a provider's drift reason before the provider was asked again.
//!
//! All timers stand in objects: `lastPodEventTime`, or the transition of `Initialized`. Events of one claim are written
//! at most every 10 s, the last one never lost: until it is written it counts from memory. Where nodes do not rest
//! (`consolidateAfter` is `0s` or `Never`) nothing is measured from them, and they are not written.
//!
//! Of pods it tells what their `karpenter.sh/do-not-disrupt` means: until when it holds, or that it says nothing.
//!
//! Implements karpenter-core 4.6 (podevents, consistency), 4.7 and the pods' part of 1.7.

mod checks;
mod consistency_checks;
mod do_not_disrupt;

#[cfg(test)]
mod tests;

mod at_initialization;

pub(crate) use at_initialization::at_initialization;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use crate::tracking::event_throttle::EventThrottle;
use crate::tracking::request_tracker::RequestTracker;
use crate::tracking::timer_queue::{TimerQueue, earlier};
use crate::tracking::write_tracker::WriteTracker;
use consistency_checks::Consistency;
use do_not_disrupt::DoNotDisruptTimers;
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::karpenter::nodepool::{NodePool, NodePoolSpec};
use mortise_apis::names::{ClaimName, NodeClassKey, ObjectRef, PoolName};
use mortise_apis::schema::conditions;
use mortise_apis::values::{after, fnv1a};
use mortise_engine::condition_edits::edited_claim;
use mortise_engine::decider::{Decider, InboxMessage, Step, StepInput};
use mortise_engine::decider_id::DeciderId;
use mortise_engine::effect::{Effect, EffectOutput, Outcome};
use mortise_engine::record::Verdict;
use mortise_engine::write::{NodeClaimStatusEdit, ObjectWrite};
use mortise_planning::drift;
use mortise_planning::reason::Reason;
use mortise_state::index::Changes;

/// A claim's last pod event is written at most this often.
const POD_EVENT_MS: i64 = 10_000;
/// Providers are asked about each node this often.
const DRIFT_CHECK_MS: i64 = 5 * 60_000;
/// Drift checks under way at once. With 5,000 nodes and 100 ms per check, 50 keep up with 500 checks a second, thirty
/// times what the period needs.
const MAX_CHECKS: usize = 50;

/// What a provider said about a node.
#[derive(Clone, Debug)]
struct DriftCheck {
    answer: Option<String>,
    next: Timestamp,
}

/// The decider. See the module's documentation.
#[derive(Debug)]
pub struct ClaimConditionsDecider {
    agenda: TimerQueue<ClaimName>,
    outbox: WriteTracker,
    /// Last pod event per claim, until status shows it.
    events: BTreeMap<ClaimName, Timestamp>,
    /// Since when writes that no decider waits for are wanted.
    wanted: BTreeMap<ClaimName, Timestamp>,
    /// First check of claims that were never asked about, spread over the period.
    first_checks: BTreeMap<ClaimName, Timestamp>,
    checked: BTreeMap<ClaimName, DriftCheck>,
    checks: RequestTracker<ClaimName>,
    running: BTreeSet<ClaimName>,
    /// Claims whose check is due, in order of name.
    waiting: BTreeSet<ClaimName>,
    /// Versions of node classes as last seen: a new one makes all its checks due.
    classes: BTreeMap<NodeClassKey, String>,
    /// Pools as last seen: their counters change all the time, what they ask for rarely.
    pools: BTreeMap<PoolName, Arc<NodePool>>,
    consistency: Consistency,
    protections: DoNotDisruptTimers,
    told: EventThrottle,
}

impl Default for ClaimConditionsDecider {
    fn default() -> Self {
        Self::new()
    }
}

impl ClaimConditionsDecider {
    /// A decider that knows nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            agenda: TimerQueue::new(),
            outbox: WriteTracker::new(),
            events: BTreeMap::new(),
            wanted: BTreeMap::new(),
            first_checks: BTreeMap::new(),
            checked: BTreeMap::new(),
            checks: RequestTracker::new(5_000, DRIFT_CHECK_MS),
            running: BTreeSet::new(),
            waiting: BTreeSet::new(),
            classes: BTreeMap::new(),
            pools: BTreeMap::new(),
            consistency: Consistency::default(),
            protections: DoNotDisruptTimers::new(),
            told: EventThrottle::default(),
        }
    }

    fn outcome(&mut self, now: Timestamp, outcome: &Outcome) -> Option<ClaimName> {
        match &*outcome.effect {
            Effect::Write(ObjectWrite {
                target: ObjectRef::Claim(name),
                ..
            }) => {
                self.outbox.answered(now, &outcome.effect, &outcome.result);
                Some(name.clone())
            }
            Effect::CheckDrift { claim, .. } => {
                let name = claim.name();
                self.running.remove(&name);
                match &outcome.result {
                    Ok(EffectOutput::Drift(answer)) => {
                        self.checks.succeeded(&name);
                        self.checked.insert(
                            name.clone(),
                            DriftCheck {
                                answer: answer.clone(),
                                next: after(now, DRIFT_CHECK_MS),
                            },
                        );
                    }
                    // What was known stays until the provider answers.
                    _ => drop(self.checks.failed(&name, now)),
                }
                Some(name)
            }
            _ => None,
        }
    }

    /// Claims that must be checked because something about them changed.
    fn changed(&mut self, input: &StepInput<'_>) -> BTreeSet<ClaimName> {
        let snapshot = input.snapshot;
        let mut todo: BTreeSet<ClaimName> = self.agenda.due(input.now).into_iter().collect();
        for node in &input.changes.pod_events {
            if let Some(name) = snapshot
                .node(node)
                .and_then(|state_node| state_node.claim_name())
            {
                self.events.insert(name.clone(), input.now);
                todo.insert(name);
            }
        }
        todo.extend(input.changes.claims.iter().cloned());
        let classes = self.changed_classes(input);
        let pools = self.changed_pools(input);
        let all = input.changes.everything;
        if all || !classes.is_empty() || !pools.is_empty() {
            for (name, claim) in snapshot.claims.iter() {
                let of_class = classes.contains(&claim.node_class_key());
                let of_pool = claim.pool().is_some_and(|pool| pools.contains(&pool));
                if of_class {
                    self.first_checks.insert(name.clone(), input.now);
                    if let Some(checked) = self.checked.get_mut(name) {
                        checked.next = input.now;
                    }
                }
                if all || of_class || of_pool {
                    todo.insert(name.clone());
                }
            }
        }
        todo
    }

    /// Pools that ask for something else, or are asked for by another hash, than when they were last seen.
    fn changed_pools(&mut self, input: &StepInput<'_>) -> BTreeSet<PoolName> {
        let mut changed = BTreeSet::new();
        for name in &input.changes.pools {
            let now = input.snapshot.pools.get(name);
            let before = self.pools.get(name);
            if before.map(|pool| asks(pool)) != now.map(|pool| asks(pool)) {
                changed.insert(name.clone());
            }
            match now {
                Some(pool) => drop(self.pools.insert(name.clone(), Arc::clone(pool))),
                None => drop(self.pools.remove(name)),
            }
        }
        changed
    }

    /// Node classes whose object changed since they were last seen; none the first time, when checks are spread.
    fn changed_classes(&mut self, input: &StepInput<'_>) -> BTreeSet<NodeClassKey> {
        let keys: Vec<&NodeClassKey> = if input.changes.everything {
            input.snapshot.node_classes.keys().collect()
        } else {
            input.changes.node_classes.iter().collect()
        };
        let mut changed = BTreeSet::new();
        for key in keys {
            let Some(class) = input.snapshot.node_classes.get(key) else {
                self.classes.remove(key);
                continue;
            };
            let version = class
                .object
                .pointer("/metadata/resourceVersion")
                .and_then(|version| version.as_str())
                .unwrap_or_default();
            if self
                .classes
                .insert(key.clone(), version.to_owned())
                .is_some_and(|old| old != version)
            {
                changed.insert(key.clone());
            }
        }
        changed
    }

    fn look(
        &mut self,
        input: &StepInput<'_>,
        name: &ClaimName,
        step: &mut Step,
    ) -> Option<Timestamp> {
        let claim = input.snapshot.claims.get(name).filter(|claim| {
            claim.metadata.deletion_timestamp.is_none() && claim.is_true("Launched")
        });
        let Some(claim) = claim else {
            self.forget(name);
            return None;
        };
        let pool = claim
            .pool()
            .and_then(|pool| input.snapshot.pools.get(&pool))
            .filter(|pool| pool.metadata.deletion_timestamp.is_none());
        let mut again = None;
        let mut drift = DriftStatus::AsItIs;
        if let Some(pool) = pool {
            drift = self.drift(input, claim, pool);
            again = earlier(again, self.check_later(input.now, claim));
        }
        let (consolidatable, at) = self.consolidatable(input.now, claim, pool.map(|pool| &**pool));
        again = earlier(again, at);
        let state_node = input.snapshot.node_of_claim(name);
        let node = state_node.and_then(|state_node| state_node.node.as_deref());
        let (faults, at) = self.consistency.evaluate(input, claim, node, step);
        again = earlier(again, at);
        let list = edited_claim(claim, input.now, |conditions| {
            match &drift {
                DriftStatus::Is(reason) => {
                    conditions.set_true_with_reason("Drifted", reason, reason)
                }
                DriftStatus::No => conditions.clear("Drifted"),
                DriftStatus::AsItIs => false,
            };
            if consolidatable {
                conditions.set_true("Consolidatable");
            } else {
                conditions.clear("Consolidatable");
            }
            match faults {
                None => {}
                Some([]) => drop(conditions.set_true("ConsistentStateFound")),
                Some(faults) => {
                    let text = faults.join("; ");
                    conditions.set_false("ConsistentStateFound", "ConsistencyCheckFailed", &text);
                }
            }
        });
        let rests = pool.is_some_and(|pool| rests(pool));
        let (event, at) = if rests {
            self.pod_event(input.now, claim)
        } else {
            // No timer runs from it.
            self.events.remove(name);
            (None, None)
        };
        again = earlier(again, at);
        if list.is_none() && event.is_none() {
            self.wanted.remove(name);
            return again;
        }
        // What must not be believed any longer is written at once; the rest comes with what else comes in a moment.
        let is_over = !consolidatable && claim.is_true("Consolidatable");
        let is_urgent = is_over || drift.changes(claim);
        if !is_urgent {
            let first = *self.wanted.entry(name.clone()).or_insert(input.now);
            let at = after(first, input.settings.condition_grace_ms);
            if at > input.now {
                return earlier(again, Some(at));
            }
        }
        self.wanted.remove(name);
        let edit = NodeClaimStatusEdit {
            last_pod_event: event,
            conditions: list,
            ..NodeClaimStatusEdit::default()
        };
        let write = ObjectWrite::claim_status(claim, edit);
        if let Err(at) = self.outbox.send(input.now, write, step) {
            return earlier(again, at);
        }
        self.note_drift(input, claim, &drift, step);
        again
    }

    fn forget(&mut self, name: &ClaimName) {
        self.events.remove(name);
        self.wanted.remove(name);
        self.first_checks.remove(name);
        self.checked.remove(name);
        self.consistency.forget(name);
        self.waiting.remove(name);
        self.checks.retain(|each| each != name);
    }

    /// Whether the claim, which is launched, has drifted.
    fn drift(&self, input: &StepInput<'_>, claim: &NodeClaim, pool: &NodePool) -> DriftStatus {
        if let Some(reason) = drift::reason(input.snapshot, claim, pool, input.now) {
            return DriftStatus::Is(reason.to_owned());
        }
        match self.checked.get(&claim.name()) {
            Some(DriftCheck {
                answer: Some(reason),
                ..
            }) => DriftStatus::Is(reason.clone()),
            Some(DriftCheck { answer: None, .. }) => DriftStatus::No,
            None => {
                let own = [drift::NODE_POOL, drift::REQUIREMENTS, drift::INSTANCE_TYPE];
                let was = conditions::find(&claim.status.conditions, "Drifted");
                if was.is_some_and(|was| !own.contains(&was.reason.as_str())) {
                    DriftStatus::AsItIs
                } else {
                    DriftStatus::No
                }
            }
        }
    }

    /// Whether the claim rests long enough for consolidation; if not, when it will.
    fn consolidatable(
        &self,
        now: Timestamp,
        claim: &NodeClaim,
        pool: Option<&NodePool>,
    ) -> (bool, Option<Timestamp>) {
        let Some(span) = pool
            .filter(|pool| !pool.is_static())
            .and_then(NodePool::consolidate_after)
        else {
            return (false, None);
        };
        let initialized = conditions::find(&claim.status.conditions, "Initialized")
            .filter(|condition| condition.status == conditions::ConditionStatus::True);
        let Some(initialized) = initialized else {
            return (false, None);
        };
        let written = claim.status.last_pod_event_time.as_ref().map(|time| time.0);
        let last = written.max(self.events.get(&claim.name()).copied());
        let Some(last) =
            last.or_else(|| initialized.last_transition_time.as_ref().map(|time| time.0))
        else {
            return (false, None);
        };
        let until = last.checked_add(span).unwrap_or(Timestamp::MAX);
        if until > now {
            (false, Some(until))
        } else {
            (true, None)
        }
    }

    /// The pod event to write now, or when to write it.
    fn pod_event(
        &mut self,
        now: Timestamp,
        claim: &NodeClaim,
    ) -> (Option<Timestamp>, Option<Timestamp>) {
        let name = claim.name();
        let Some(event) = self.events.get(&name).copied() else {
            return (None, None);
        };
        let event = Timestamp::from_second(event.as_second()).unwrap_or(event);
        let Some(written) = claim.status.last_pod_event_time.as_ref().map(|time| time.0) else {
            return (Some(event), None);
        };
        if written >= event {
            self.events.remove(&name);
            return (None, None);
        }
        let due = after(written, POD_EVENT_MS);
        if due > now {
            (None, Some(due))
        } else {
            (Some(event), None)
        }
    }

    fn note_drift(
        &mut self,
        input: &StepInput<'_>,
        claim: &NodeClaim,
        drift: &DriftStatus,
        step: &mut Step,
    ) {
        let target = ObjectRef::Claim(claim.name());
        match drift {
            DriftStatus::Is(why)
                if self
                    .told
                    .is_news(&target, "drift", why, input.now, i64::MAX) =>
            {
                let (by, verdict) = (DeciderId::Conditions, Verdict::Condition);
                let reasons = vec![Reason::Drifted { why: why.clone() }];
                if claim.is_true("Drifted") {
                    step.record(input, by, target, verdict, reasons);
                } else {
                    step.announce(input, by, [target], verdict, reasons);
                }
            }
            DriftStatus::No => self.told.forget(&target, "drift"),
            DriftStatus::Is(_) | DriftStatus::AsItIs => {}
        }
    }
}

/// What is known about a claim's drift.
enum DriftStatus {
    Is(String),
    No,
    /// The provider was not asked yet: what is written stays.
    AsItIs,
}

impl DriftStatus {
    /// It is not what the claim says.
    fn changes(&self, claim: &NodeClaim) -> bool {
        let written = conditions::find(&claim.status.conditions, "Drifted");
        match self {
            Self::Is(reason) => written.is_none_or(|written| written.reason != *reason),
            Self::No => written.is_some(),
            Self::AsItIs => false,
        }
    }
}

/// Nodes of the pool rest after the last pod event before they are consolidated: then its time matters.
fn rests(pool: &NodePool) -> bool {
    pool.consolidate_after()
        .is_some_and(|span| span.is_positive())
}

/// What of a pool claims are compared with.
fn asks(pool: &NodePool) -> (&NodePoolSpec, Option<&BTreeMap<String, String>>, bool) {
    (
        &pool.spec,
        pool.metadata.annotations.as_ref(),
        pool.metadata.deletion_timestamp.is_some(),
    )
}

/// A fixed moment of the period for each name, so that a restart does not ask about everything at once.
fn spread(name: &str) -> i64 {
    i64::try_from(fnv1a(name.bytes()) % DRIFT_CHECK_MS.unsigned_abs()).unwrap_or(0)
}

impl Decider for ClaimConditionsDecider {
    fn id(&self) -> DeciderId {
        DeciderId::Conditions
    }

    fn fresh(&self) -> Box<dyn Decider> {
        Box::new(Self::default())
    }

    fn is_interested(&self, changes: &Changes) -> bool {
        let Changes {
            everything,
            pods,
            claims,
            pools,
            node_classes,
            pod_events,
            ..
        } = changes;
        *everything
            || !pods.is_empty()
            || !claims.is_empty()
            || !pools.is_empty()
            || !node_classes.is_empty()
            || !pod_events.is_empty()
    }

    fn step(&mut self, input: &StepInput<'_>, _stop: &dyn Fn() -> bool) -> Step {
        let mut step = Step::default();
        let mut todo = self.changed(input);
        for delivery in input.inbox {
            if let InboxMessage::Outcome(outcome) = delivery {
                todo.extend(self.outcome(input.now, outcome));
            }
        }
        for name in todo {
            let again = self.look(input, &name, &mut step);
            self.agenda.set(&name, again);
        }
        self.send_checks(input, &mut step);
        let protections = self.protections.look(input, &mut self.told, &mut step);
        self.outbox.sweep(input.now, input.snapshot);
        self.told.sweep(input.now);
        if let Some(at) = earlier(self.agenda.next(), protections) {
            step.wake_at(at);
        }
        step
    }
}
