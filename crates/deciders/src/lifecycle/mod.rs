//! Claims from their creation to an initialized node, or to their deletion.
//!
//! May: add the termination finalizer to claims and nodes; launch; copy the claim's labels, annotations, taints and
//! ownership to its Node; write the conditions `LaunchedInstance`, `Registered`, `Initialized`; delete claims that get
//! no instance or whose instance does not register in time; release claims that were deleted before they had an
//! instance.
//!
//! Must never: launch for a claim without finalizer or one that is being deleted; remove the finalizer of a claim that
//! may have an instance (termination does that, once the instance is gone); write another decider's condition.
//!
//! ```text
//! created ── finalizer, token ── Launch ──► instance known ── labels ── status ──► Launched
//!    │                      │                                                 │ Node with this provider id
//!    │                      ├─ no capacity, class not ready: delete            ▼
//!    │                      └─ other: condition, back-off 1 s .. 60 s      Registered ── ready, taints gone, resources ──► Initialized
//!    └─ deleted: instance of this claim listed? yes: status, termination ends it; no: finalizer removed
//! ```
//!
//! A Node that is there before status tells of the launch is registered first: one write of status then tells of both.
//!
//! Nothing is kept here that a restart would miss: an unlaunched claim is launched again and the provider finds the
//! instance that was made for the same UID (Law 4); timers are conditions' transition times.
//!
//! Implements karpenter-core 4.1 to 4.4.

mod breaker;
mod initialization;
mod launch;
mod launch_batches;
mod launch_reason;
mod launched_instance;
mod registration;
mod registration_health;

#[cfg(test)]
mod batch_tests;
#[cfg(test)]
mod health_tests;
#[cfg(test)]
mod life_tests;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use crate::tracking::request_tracker::RequestTracker;
use crate::tracking::timer_queue::{TimerQueue, earlier};
use crate::tracking::write_tracker::WriteTracker;
use breaker::BreakerTransition;
use launch_batches::LaunchBatches;
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::labels;
use mortise_apis::names::{ClaimName, ObjectRef, PoolName, Uid};
use mortise_apis::values::after;
use mortise_cloudprovider::LaunchedInstance;
use mortise_engine::condition_edits::since_transition;
use mortise_engine::decider::{Decider, InboxMessage, Step, StepInput};
use mortise_engine::decider_id::DeciderId;
use mortise_engine::effect::{Effect, Outcome};
use mortise_engine::record::Verdict;
use mortise_engine::write::ObjectWrite;
use mortise_planning::reason::{LaunchTimeout, Reason};
use mortise_state::index::Changes;
use mortise_state::snapshot::StateNode;
use registration_health::RegistrationHealth;

/// Back-off of launches: 1 s, doubling, 60 s at most.
const LAUNCH_BACKOFF_MS: (i64, i64) = (1_000, 60_000);
/// Back-off of lists of instances.
const SEARCH_BACKOFF_MS: (i64, i64) = (1_000, 30_000);
/// Longest text of an error in a condition.
const MESSAGE_CHARS: usize = 300;

/// How far a claim is, as its conditions say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ClaimPhase {
    Created,
    Launched,
    Registered,
    Initialized,
}

impl ClaimPhase {
    fn of(claim: &NodeClaim) -> Self {
        let phases = [
            ("Initialized", Self::Initialized),
            ("Registered", Self::Registered),
            ("Launched", Self::Launched),
        ];
        phases
            .into_iter()
            .find(|(condition, _)| claim.is_true(condition))
            .map_or(Self::Created, |(_, phase)| phase)
    }
}

/// The decider. See the module's documentation.
#[derive(Debug)]
pub struct LifecycleDecider {
    agenda: TimerQueue<ClaimName>,
    phases: BTreeMap<ClaimName, (Uid, ClaimPhase)>,
    launches: RequestTracker<Uid>,
    batches: LaunchBatches,
    /// Instances that status does not show yet.
    instances: BTreeMap<Uid, LaunchedInstance>,
    /// Since when claims have their instance's labels, until status names the instance.
    labelled: BTreeMap<Uid, Timestamp>,
    /// Since when registered claims have another reason not to be initialized than status says.
    unsaid: BTreeMap<Uid, Timestamp>,
    /// Claims for which the provider said that there is no instance.
    empty: BTreeSet<Uid>,
    /// Claims that are to be deleted.
    claims_to_delete: BTreeSet<Uid>,
    /// Condition reason and message of the last failed launch.
    failures: BTreeMap<Uid, (String, String)>,
    outbox: WriteTracker,
    /// Deleted claims that may have an unknown instance, by UID; and those that the list in flight answers for.
    wanted: BTreeMap<Uid, ClaimName>,
    asked: BTreeMap<Uid, ClaimName>,
    search: RequestTracker<()>,
    health: RegistrationHealth,
    /// When Nodes that are not Ready were first seen, by the claim's UID.
    joined: BTreeMap<Uid, Timestamp>,
    /// When claims that were paused stopped to be: their time to launch runs from then.
    released: BTreeMap<Uid, Timestamp>,
}

impl Default for LifecycleDecider {
    fn default() -> Self {
        Self::new()
    }
}

impl LifecycleDecider {
    /// A decider that knows nothing yet.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            agenda: TimerQueue::new(),
            phases: BTreeMap::new(),
            launches: RequestTracker::new(LAUNCH_BACKOFF_MS.0, LAUNCH_BACKOFF_MS.1),
            batches: LaunchBatches::new(),
            instances: BTreeMap::new(),
            labelled: BTreeMap::new(),
            unsaid: BTreeMap::new(),
            empty: BTreeSet::new(),
            claims_to_delete: BTreeSet::new(),
            failures: BTreeMap::new(),
            outbox: WriteTracker::new(),
            wanted: BTreeMap::new(),
            asked: BTreeMap::new(),
            search: RequestTracker::new(SEARCH_BACKOFF_MS.0, SEARCH_BACKOFF_MS.1),
            health: RegistrationHealth::new(),
            joined: BTreeMap::new(),
            released: BTreeMap::new(),
        }
    }

    fn outcome(
        &mut self,
        input: &StepInput<'_>,
        outcome: &Outcome,
        todo: &mut BTreeSet<ClaimName>,
        step: &mut Step,
    ) {
        let now = input.now;
        match &*outcome.effect {
            Effect::Launch(request) => {
                self.launched(input, request, &outcome.result, step);
                todo.insert(request.claim.name());
            }
            Effect::Write(ObjectWrite { target, .. }) | Effect::Delete { target, .. } => {
                self.outbox.answered(now, &outcome.effect, &outcome.result);
                match target {
                    ObjectRef::Claim(name) => {
                        self.note_refused_token(input, name, outcome);
                        todo.insert(name.clone());
                    }
                    ObjectRef::Pool(name) => self.health.look_at(name, Some(now)),
                    ObjectRef::Node(name) => {
                        todo.extend(input.snapshot.node(name).and_then(|node| node.claim_name()))
                    }
                    _ => {}
                }
            }
            Effect::ListInstances => self.listed(input, &outcome.result, todo),
            _ => {}
        }
    }

    /// Does the next thing for a claim. Returns when to look again although nothing changes.
    fn look(
        &mut self,
        input: &StepInput<'_>,
        name: &ClaimName,
        step: &mut Step,
    ) -> Option<Timestamp> {
        let Some(claim) = input.snapshot.claims.get(name) else {
            if let Some((uid, _)) = self.phases.remove(name) {
                self.forget(&uid);
            }
            return None;
        };
        let uid = claim.uid()?;
        self.note_phase(input, claim, step);
        let deleting = claim.metadata.deletion_timestamp.is_some();
        if deleting {
            self.health.ended(&uid);
            self.health.release(claim);
        }
        if claim.provider_id().is_none() {
            if let Some(launched) = self.instances.get(&uid).cloned() {
                return self.adopt(input, claim, &launched, deleting, step);
            }
            return if deleting {
                self.abandon(input, claim, uid, step)
            } else {
                self.launch(input, claim, uid, step)
            };
        }
        self.forget_launch(&uid);
        if deleting {
            return None;
        }
        let again = self.hydrate(input, claim, step);
        if claim.is_true("Initialized") {
            return again;
        }
        earlier(again, self.update_progress(input, claim, uid, None, step))
    }

    fn forget_launch(&mut self, uid: &Uid) {
        self.instances.remove(uid);
        self.labelled.remove(uid);
        self.empty.remove(uid);
        self.failures.remove(uid);
        self.wanted.remove(uid);
        self.released.remove(uid);
        self.batches.forget(uid);
    }

    fn forget(&mut self, uid: &Uid) {
        self.forget_launch(uid);
        self.health.ended(uid);
        self.joined.remove(uid);
        self.unsaid.remove(uid);
        self.claims_to_delete.remove(uid);
        self.launches.retain(|each| each != uid);
    }

    /// Records what the objects show to have happened, once per process.
    fn note_phase(&mut self, input: &StepInput<'_>, claim: &NodeClaim, step: &mut Step) {
        let phase = ClaimPhase::of(claim);
        let uid = claim.uid().unwrap_or_else(|| "".into());
        let Some((_, before)) = self
            .phases
            .insert(claim.name(), (uid.clone(), phase))
            .filter(|(was, _)| *was == uid)
        else {
            if phase == ClaimPhase::Launched && claim.metadata.deletion_timestamp.is_none() {
                self.health.unregistered(claim, &uid, input.now);
            }
            return;
        };
        if before < ClaimPhase::Registered && phase >= ClaimPhase::Registered {
            let news = self.health.registered(claim, &uid);
            self.tell(input, news, step);
        }
        let target = ObjectRef::Claim(claim.name());
        let state_node = claim
            .provider_id()
            .and_then(|id| input.snapshot.nodes.get(id));
        let steps = [
            (ClaimPhase::Launched, Verdict::Launched),
            (ClaimPhase::Registered, Verdict::Registered),
            (ClaimPhase::Initialized, Verdict::Initialized),
        ];
        for (_, verdict) in steps
            .into_iter()
            .filter(|(each, ..)| before < *each && *each <= phase)
        {
            let reasons = match verdict {
                Verdict::Launched => {
                    vec![offering(claim, state_node.map(|state_node| &**state_node))]
                }
                _ => state_node
                    .and_then(|state_node| state_node.node_name())
                    .map(|node| Reason::OnNode { node, claim: None })
                    .into_iter()
                    .collect(),
            };
            step.announce(
                input,
                DeciderId::Lifecycle,
                [target.clone()],
                verdict,
                reasons,
            );
        }
    }

    /// Waits for a condition until its deadline. `Err`: its time is over, the step of the claim ends here and goes on then.
    pub(super) fn await_condition(
        &mut self,
        input: &StepInput<'_>,
        claim: &NodeClaim,
        uid: &Uid,
        condition: &'static str,
        step: &mut Step,
    ) -> Result<Option<Timestamp>, Option<Timestamp>> {
        let again = self.check_deadline(input, claim, uid, condition, step);
        if self.delete_timed_out(input.now, claim, uid, step)? {
            return Err(None);
        }
        Ok(again)
    }

    /// Deletes a claim that is marked for deletion. `true` when there is nothing else to do for it.
    fn delete_timed_out(
        &mut self,
        now: Timestamp,
        claim: &NodeClaim,
        uid: &Uid,
        step: &mut Step,
    ) -> Result<bool, Option<Timestamp>> {
        if !self.claims_to_delete.contains(uid) {
            return Ok(false);
        }
        self.outbox.send(now, Effect::delete_claim(claim), step)?;
        Ok(true)
    }

    /// Marks a claim for deletion whose condition did not come true in time. Otherwise returns the deadline.
    pub(super) fn check_deadline(
        &mut self,
        input: &StepInput<'_>,
        claim: &NodeClaim,
        uid: &Uid,
        condition: &'static str,
        step: &mut Step,
    ) -> Option<Timestamp> {
        let (limit, why) = match condition {
            "Launched" => (
                input.settings.launch_timeout_ms,
                LaunchTimeout::LaunchTimeout,
            ),
            "Initialized" => (
                input.settings.initialization_timeout_ms,
                LaunchTimeout::InitializationTimeout,
            ),
            _ => (
                input.settings.registration_timeout_ms,
                LaunchTimeout::RegistrationTimeout,
            ),
        };
        // A node has its whole time to initialize from the moment at which it registered.
        let measured = if condition == "Initialized" {
            "Registered"
        } else {
            condition
        };
        let since = since_transition(&claim.metadata, &claim.status.conditions, measured)?;
        let later = match condition {
            "Launched" => self.released.get(uid).copied(),
            // A claim that was paused has its whole time to register all the same.
            "Registered" => since_transition(&claim.metadata, &claim.status.conditions, "Launched"),
            _ => None,
        };
        let since = later.map_or(since, |later| since.max(later));
        let deadline = after(since, limit);
        if deadline > input.now {
            return Some(deadline);
        }
        if self.claims_to_delete.insert(uid.clone()) {
            let status =
                mortise_apis::schema::conditions::status_of(&claim.status.conditions, condition);
            let reason = Reason::LaunchTimedOut {
                condition,
                status: status.as_str(),
                why,
            };
            step.record(
                input,
                DeciderId::Lifecycle,
                ObjectRef::Claim(claim.name()),
                Verdict::LaunchFailed,
                vec![reason],
            );
            if condition != "Initialized" {
                let news = self.health.timed_out(input, claim, uid, condition);
                self.tell(input, news, step);
            }
        }
        None
    }

    /// Says that launches are paused, or are no longer.
    fn tell(&self, input: &StepInput<'_>, news: Option<BreakerTransition>, step: &mut Step) {
        let (pool, verdict, reason) = match news {
            None => return,
            Some(BreakerTransition::Opened {
                pool,
                failures,
                until,
            }) => {
                let reason = Reason::LaunchesPaused {
                    pool: pool.clone(),
                    failures,
                    until,
                };
                (pool, Verdict::Blocked, reason)
            }
            Some(BreakerTransition::Closed { pool }) => {
                (pool, Verdict::Condition, Reason::LaunchesResumed)
            }
        };
        let pool = [ObjectRef::Pool(pool)];
        step.announce(input, DeciderId::Lifecycle, pool, verdict, vec![reason]);
    }

    /// Reads pools that changed.
    fn see_pools(&mut self, input: &StepInput<'_>, step: &mut Step) {
        let changes = input.changes;
        if changes.everything {
            // Another process may have led meanwhile: the objects know more than this one.
            self.health = RegistrationHealth::begin(input);
            return;
        }
        let mut names: BTreeSet<PoolName> = (*changes.pools).clone();
        if !changes.node_classes.is_empty() {
            let pools = input
                .snapshot
                .pools
                .iter()
                .filter(|(_, pool)| changes.node_classes.contains(&pool.node_class_key()));
            names.extend(pools.map(|(name, _)| name.clone()));
        }
        for name in &names {
            let news = self.health.see(input, name);
            self.tell(input, news, step);
        }
    }

    /// Writes how instances of pools register.
    fn write_health(&mut self, input: &StepInput<'_>, step: &mut Step) {
        for name in self.health.take_changed(input.now) {
            let (write, at) = self.health.status(input, &name);
            let again =
                write.and_then(|write| self.outbox.send(input.now, write, step).err().flatten());
            self.health.look_at(&name, earlier(at, again));
        }
        if let Some(at) = self.health.next() {
            step.wake_at(at);
        }
    }
}

impl Decider for LifecycleDecider {
    fn id(&self) -> DeciderId {
        DeciderId::Lifecycle
    }

    fn fresh(&self) -> Box<dyn Decider> {
        Box::new(Self::default())
    }

    fn is_interested(&self, changes: &Changes) -> bool {
        changes.everything
            || !changes.claims.is_empty()
            || !changes.nodes.is_empty()
            || !changes.pools.is_empty()
            || !changes.node_classes.is_empty()
    }

    fn step(&mut self, input: &StepInput<'_>, _stop: &dyn Fn() -> bool) -> Step {
        let mut step = Step::default();
        let mut todo: BTreeSet<ClaimName> = self.agenda.due(input.now).into_iter().collect();
        self.see_pools(input, &mut step);
        for delivery in input.inbox {
            if let InboxMessage::Outcome(outcome) = delivery {
                self.outcome(input, outcome, &mut todo, &mut step);
            }
        }
        if input.changes.everything {
            // Another process may have led meanwhile, and launched what had no instance.
            self.empty.clear();
            self.batches.reset();
            self.outbox.forgive();
            self.launches.forgive();
            self.search.forgive();
            todo.extend(input.snapshot.claims.iter().map(|(name, _)| name.clone()));
            todo.extend(self.phases.keys().cloned());
        }
        todo.extend(input.changes.claims.iter().cloned());
        todo.extend(
            input
                .changes
                .nodes
                .iter()
                .filter_map(|key| input.snapshot.nodes.get(key)?.claim_name()),
        );
        for name in todo {
            let again = self.look(input, &name, &mut step);
            self.agenda.set(&name, again);
        }
        for name in self.health.take_ready() {
            let again = self.look(input, &name, &mut step);
            self.agenda.set(&name, again);
        }
        self.announce_batches(input, &mut step);
        self.launch_batches(input, &mut step);
        self.write_health(input, &mut step);
        self.search(input.now, &mut step);
        self.outbox.sweep(input.now, input.snapshot);
        for at in [self.agenda.next(), self.batches.next()]
            .into_iter()
            .flatten()
        {
            step.wake_at(at);
        }
        step
    }
}

fn offering(claim: &NodeClaim, state_node: Option<&StateNode>) -> Reason {
    let label = |key: &str| claim.label(key).unwrap_or_default().to_owned();
    Reason::Offering {
        instance_type: label(labels::INSTANCE_TYPE),
        zone: label(labels::TOPOLOGY_ZONE),
        capacity_type: label(labels::CAPACITY_TYPE),
        price: state_node.and_then(|state_node| state_node.price),
    }
}
