//! Node classes: status, hash annotations, finalizer, catalogue.
//!
//! May: have a provider resolve a class when its spec changed and every five minutes; write what the provider found
//! (status, annotations, finalizer); announce on NodePools which of their zones are shifted away; stamp claims whose hash
//! of the class was made by another version of the algorithm; keep the finalizer of a deleted class while claims use it,
//! then have its provider release what it made for it, then remove it.
//!
//! Must never: decide what a class means (its provider does); write a status twice for one answer, or write one that
//! changes nothing; remove a finalizer that is not the provider's; give a claim that drifted a new hash (it would look
//! as if it had not); let a deleted class go before its provider has released it, which would leave what only the class names.
//!
//! The catalogue in an answer is put into the index by the engine. This decider is the only writer of the status.
//!
//! Implements karpenter-aws 1.7, 1.10 and 7 (node class status, hash versions, termination) as far as all providers
//! share it.

#[cfg(test)]
mod tests;
mod zonal_shifts;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use self::zonal_shifts::ZonalShifts;
use crate::tracking::event_throttle::EventThrottle;
use crate::tracking::request_tracker::RequestTracker;
use crate::tracking::timer_queue::{TimerQueue, attempt, earlier};
use crate::tracking::write_tracker::WriteTracker;
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::names::{ClaimName, NodeClassKey, ObjectRef};
use mortise_apis::node_class::NodeClassObject;
use mortise_apis::schema::finalizers::has_finalizer;
use mortise_apis::values::after;
use mortise_cloudprovider::{ResolveRequest, ResolvedNodeClass};
use mortise_engine::decider::{Decider, InboxMessage, Step, StepInput};
use mortise_engine::decider_id::DeciderId;
use mortise_engine::effect::{Effect, EffectOutput, Outcome};
use mortise_engine::record::Verdict;
use mortise_engine::write::{ObjectEdit, ObjectWrite, StatusEdit};
use mortise_planning::reason::Reason;
use mortise_state::index::Changes;

/// Most names in an event.
const NAMES_IN_EVENT: usize = 5;

/// What is known of one class.
#[derive(Clone, Debug, Default)]
struct NodeClassState {
    /// Generation that was resolved, or is being resolved.
    generation: Option<i64>,
    /// When to resolve again.
    next: Option<Timestamp>,
    answer: Option<Arc<ResolvedNodeClass>>,
    /// The answer's status was written. Compared with the object only until then: a server may leave out what it does
    /// not know, and comparing would then write indefinitely.
    written: bool,
    /// Finalizer that the provider asked for at some time.
    finalizer: Option<&'static str>,
    /// The provider has been asked for the class since it is being deleted and no claim uses it: what it made is gone.
    released: bool,
}

/// The class with what refers to it.
fn request(input: &StepInput<'_>, class: &NodeClassObject) -> ResolveRequest {
    let pools = input.snapshot.pools.values();
    let claims: Vec<Arc<NodeClaim>> = claims_of(input, &class.key).cloned().collect();
    let nodes = claims.iter().filter_map(|claim| {
        let node = input.snapshot.node_of_claim(claim.name().as_str())?;
        node.node.clone().filter(|_| node.registered)
    });
    ResolveRequest {
        class: class.clone(),
        node_pools: pools
            .filter(|pool| pool.node_class_key() == class.key)
            .cloned()
            .collect(),
        nodes: nodes.collect(),
        claims,
    }
}

/// The claims that use a class.
fn claims_of<'a>(
    input: &'a StepInput<'_>,
    key: &'a NodeClassKey,
) -> impl Iterator<Item = &'a Arc<NodeClaim>> {
    let claims = input.snapshot.claims.values();
    claims.filter(|claim| claim.node_class_key() == *key)
}

/// The decider. See the module's documentation.
#[derive(Debug)]
pub struct NodeClassDecider {
    agenda: TimerQueue<NodeClassKey>,
    known: BTreeMap<NodeClassKey, NodeClassState>,
    resolves: RequestTracker<NodeClassKey>,
    outbox: WriteTracker,
    /// Claims to be stamped once their last write has been answered or has rested.
    stamps: TimerQueue<ClaimName>,
    told: EventThrottle,
    shifts: ZonalShifts,
}

impl Default for NodeClassDecider {
    fn default() -> Self {
        Self::new()
    }
}

impl NodeClassDecider {
    /// A decider that knows nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            agenda: TimerQueue::new(),
            known: BTreeMap::new(),
            resolves: RequestTracker::new(1_000, 60_000),
            outbox: WriteTracker::new(),
            stamps: TimerQueue::new(),
            told: EventThrottle::default(),
            shifts: ZonalShifts::default(),
        }
    }

    fn outcome(
        &mut self,
        input: &StepInput<'_>,
        outcome: &Outcome,
        step: &mut Step,
    ) -> Option<NodeClassKey> {
        match &*outcome.effect {
            Effect::Resolve(request) => {
                let class = &request.class;
                let target = ObjectRef::NodeClass(class.key.clone());
                let known = self.known.entry(class.key.clone()).or_default();
                match &outcome.result {
                    Ok(EffectOutput::Resolved(answer)) => {
                        self.resolves.succeeded(&class.key);
                        let wait = answer
                            .again_ms
                            .unwrap_or(input.settings.nodeclass_resync_interval_ms);
                        let wait = wait.clamp(
                            1_000,
                            input.settings.nodeclass_resync_interval_ms.max(1_000),
                        );
                        known.next = Some(after(input.now, wait));
                        known.finalizer = answer.finalizer.or(known.finalizer);
                        known.answer = Some(Arc::clone(answer));
                        known.written = false;
                        known.released = class.is_being_deleted() && request.claims.is_empty();
                        self.told.forget(&target, "resolve");
                        self.shifts.told(&class.key, &answer.shifted_zones);
                    }
                    Ok(_) => self.resolves.succeeded(&class.key),
                    Err(error) => {
                        known.next = Some(self.resolves.failed(&class.key, input.now));
                        let text = error.to_string();
                        if self
                            .told
                            .is_news(&target, "resolve", &text, input.now, 600_000)
                        {
                            step.record(
                                input,
                                DeciderId::NodeClass,
                                target,
                                Verdict::Condition,
                                vec![Reason::Failed { error: text }],
                            );
                        }
                    }
                }
                Some(class.key.clone())
            }
            Effect::Write(ObjectWrite {
                target: ObjectRef::NodeClass(key),
                edit,
                ..
            }) => {
                self.outbox
                    .answered(input.now, &outcome.effect, &outcome.result);
                if let Some(known) = self.known.get_mut(key)
                    && let ObjectEdit::SetStatus(StatusEdit::NodeClass(written)) = edit
                    && outcome.result.is_ok()
                {
                    // There may be a newer answer than the one that was written.
                    let answer = known
                        .answer
                        .as_ref()
                        .and_then(|answer| answer.status.as_ref());
                    known.written = Some(written) == answer;
                }
                Some(key.clone())
            }
            Effect::Write(ObjectWrite {
                target: ObjectRef::Claim(name),
                ..
            }) => {
                self.outbox
                    .answered(input.now, &outcome.effect, &outcome.result);
                self.stamps.sooner(name, input.now);
                None
            }
            _ => None,
        }
    }

    fn look(
        &mut self,
        input: &StepInput<'_>,
        key: &NodeClassKey,
        step: &mut Step,
    ) -> Option<Timestamp> {
        let Some(class) = input.snapshot.node_classes.get(key) else {
            self.known.remove(key);
            self.shifts.forget(key);
            self.resolves.retain(|each| each != key);
            return None;
        };
        let meta = &*class.metadata;
        let again = self.resolve(input, class, meta.generation, step);
        let Some(write) = self.next_write(input, class, meta, step) else {
            return again;
        };
        let sent = self.outbox.send(input.now, write, step);
        earlier(again, sent.err().flatten())
    }

    /// Has the class resolved if its spec is new or its time has come.
    fn resolve(
        &mut self,
        input: &StepInput<'_>,
        class: &NodeClassObject,
        generation: Option<i64>,
        step: &mut Step,
    ) -> Option<Timestamp> {
        let now = input.now;
        let known = self.known.entry(class.key.clone()).or_default();
        let release = class.is_being_deleted()
            && !known.released
            && claims_of(input, &class.key).next().is_none();
        let new = known.generation != generation || known.next.is_none() || release;
        if let Some(next) = known.next.filter(|next| !new && *next > now) {
            return Some(next);
        }
        if let Err(at) = attempt(&mut self.resolves, &class.key, now) {
            return at;
        }
        known.generation = generation;
        known.next.get_or_insert(now);
        step.effect(Effect::Resolve(Box::new(request(input, class))));
        None
    }

    /// Has the class resolved when capacity that it lacks is asked for again: until then its catalogue says that there is none.
    fn resolve_sooner(&mut self, key: &NodeClassKey, again: Timestamp) {
        if let Some(known) = self.known.get_mut(key)
            && let Some(next) = &mut known.next
        {
            *next = again.min(*next);
        }
    }

    /// The next thing to write to the object: finalizer, annotations, status, and at the end the finalizer's removal.
    fn next_write(
        &mut self,
        input: &StepInput<'_>,
        class: &NodeClassObject,
        meta: &ObjectMeta,
        step: &mut Step,
    ) -> Option<ObjectWrite> {
        let known = self.known.get(&class.key)?;
        let target = ObjectRef::NodeClass(class.key.clone());
        if meta.deletion_timestamp.is_some() {
            // After a restart a class may be deleted before it could be resolved: the name follows Karpenter's rule.
            let finalizer = known
                .finalizer
                .map_or_else(|| format!("{}/termination", class.key.group), str::to_owned);
            let released = known.released;
            if !has_finalizer(meta, &finalizer)
                || self.is_used(input, &class.key, step)
                || !released
            {
                return None;
            }
            return Some(ObjectWrite::remove_finalizer(target, meta, &finalizer));
        }
        let answer = known.answer.as_ref()?;
        if let Some(finalizer) = answer
            .finalizer
            .filter(|finalizer| !has_finalizer(meta, finalizer))
        {
            return Some(ObjectWrite::add_finalizer(target, meta, finalizer));
        }
        let there = |key: &str, value: &str| {
            meta.annotations
                .as_ref()
                .and_then(|all| all.get(key))
                .is_some_and(|has| has == value)
        };
        let mut hashes = answer.annotations.clone();
        hashes.retain(|key, value| !there(key, value));
        if !hashes.is_empty() {
            return Some(ObjectWrite::set_hashes(target, hashes));
        }
        let status = answer.status.as_ref().filter(|_| !known.written)?;
        let now = class.object.get("status").unwrap_or(&Value::Null);
        if !would_change(now, status) {
            return None;
        }
        Some(ObjectWrite::class_status(class.key.clone(), status.clone()))
    }

    /// Stamps a claim whose hash of the class was made by another version of the algorithm.
    fn stamp(&mut self, input: &StepInput<'_>, claim: &NodeClaim, step: &mut Step) {
        let known = self.known.get(&claim.node_class_key());
        let Some(answer) = known.and_then(|known| known.answer.as_ref()) else {
            return;
        };
        let versioned = answer.annotations.iter().find_map(|(key, version)| {
            let hash = key.strip_suffix("-version")?;
            Some((key, version, hash, answer.annotations.get(hash)?))
        });
        let Some((version_key, version, hash_key, hash)) = versioned else {
            return;
        };
        // The launch itself writes both; before it there is nothing that could have drifted.
        if !claim.is_true("Launched") {
            return;
        }
        let Some(stamp) =
            ObjectWrite::upgrade_hash(claim, (version_key, version), hash_key, || hash.clone())
        else {
            return;
        };
        if let Err(Some(at)) = self.outbox.send(input.now, stamp, step) {
            self.stamps.sooner(&claim.name(), at);
        }
    }

    /// Claims use the class. Says so once in ten minutes.
    fn is_used(&mut self, input: &StepInput<'_>, key: &NodeClassKey, step: &mut Step) -> bool {
        let users: BTreeSet<_> = claims_of(input, key).map(|claim| claim.name()).collect();
        if users.is_empty() {
            return false;
        }
        let reason = Reason::UsedBy {
            claims: users.into_iter().take(NAMES_IN_EVENT).collect(),
        };
        let target = ObjectRef::NodeClass(key.clone());
        if self
            .told
            .is_news(&target, "users", &reason, input.now, 600_000)
        {
            let (by, verdict) = (DeciderId::NodeClass, Verdict::Waiting);
            step.announce(input, by, [target], verdict, vec![reason]);
        }
        true
    }
}

/// Whether a merge patch changes the value it is applied to.
fn would_change(now: &Value, patch: &Value) -> bool {
    match patch {
        Value::Object(fields) => {
            fields
                .iter()
                .any(|(name, wanted)| match (now.get(name), wanted) {
                    (None, Value::Null) => false,
                    (None, _) => true,
                    (Some(now), wanted) => would_change(now, wanted),
                })
        }
        other => now != other,
    }
}

impl Decider for NodeClassDecider {
    fn id(&self) -> DeciderId {
        DeciderId::NodeClass
    }

    fn fresh(&self) -> Box<dyn Decider> {
        Box::new(Self::default())
    }

    fn is_interested(&self, changes: &Changes) -> bool {
        // The last claim of a deleted class frees it, and claims of an older age are stamped.
        changes.everything || !changes.node_classes.is_empty() || !changes.claims.is_empty()
    }

    fn step(&mut self, input: &StepInput<'_>, _stop: &dyn Fn() -> bool) -> Step {
        let mut step = Step::default();
        let mut todo: BTreeSet<NodeClassKey> = self.agenda.due(input.now).into_iter().collect();
        for delivery in input.inbox {
            match delivery {
                InboxMessage::Outcome(outcome) => {
                    todo.extend(self.outcome(input, outcome, &mut step));
                }
                InboxMessage::CapacityRefused { class, again } => {
                    self.resolve_sooner(class, *again);
                    todo.insert(class.clone());
                }
                InboxMessage::Notice { .. } => {}
            }
        }
        let classes = &input.snapshot.node_classes;
        if input.changes.everything {
            todo.extend(classes.keys().cloned());
            todo.extend(self.known.keys().cloned());
        }
        todo.extend(input.changes.node_classes.iter().cloned());
        if !input.changes.claims.is_empty() {
            todo.extend(
                classes
                    .values()
                    .filter(|class| class.is_being_deleted())
                    .map(|class| class.key.clone()),
            );
        }
        let mut claims = (*input.changes.claims).clone();
        claims.extend(self.stamps.due(input.now));
        if input.changes.everything || !todo.is_empty() {
            let concerned = input.snapshot.claims.iter().filter(|(_, claim)| {
                input.changes.everything || todo.contains(&claim.node_class_key())
            });
            claims.extend(concerned.map(|(name, _)| name.clone()));
        }
        for key in todo {
            let again = self.look(input, &key, &mut step);
            self.agenda.set(&key, again);
        }
        for name in claims {
            if let Some(claim) = input.snapshot.claims.get(&name) {
                self.stamp(input, claim, &mut step);
            }
        }
        self.shifts.announce(input, &mut step);
        self.told.sweep(input.now);
        self.outbox.sweep(input.now, input.snapshot);
        if let Some(at) = earlier(self.agenda.next(), self.stamps.next()) {
            step.wake_at(at);
        }
        step
    }
}
