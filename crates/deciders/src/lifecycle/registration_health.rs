//! Whether instances of a pool register, and how many may be tried while that is not known.
//!
//! Two things follow from the same results:
//!
//! - The condition `NodeRegistrationHealthy`, as in Karpenter: of the last four results two failures make it False. It
//!   starts again with every generation of the pool and of its node class.
//! - The launch breaker, ours. Until the first instance of a template (pool, node class and what the class stands for)
//!   has registered, only a few are out at a time. When several in a row have not registered, launches stop; then one
//!   is tried at a time, less and less often, until one registers or the template changes. The condition
//!   `LaunchesPaused` says so, on the object, where every process reads it.
//!
//! ```text
//! unproven ── one registers ──► closed ── several in a row fail ──► open ── delay ──► probe ── fails ──► open, longer
//!    └──────── several in a row fail ───────────────────────────────► ▲                └─ registers ──► closed
//! ```
//!
//! A bad image costs at most the instances of the trial and one for each back-off: with the defaults 8 at once, one
//! after 20 min and one after 45 min, which is ten in the first hour.
//!
//! Memory only saves reading: after a restart, `NodeRegistrationHealthy`, registered instances that are not drifted,
//! and `LaunchesPaused` tell what is known.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::BuildHasher as _;

use foldhash::fast::FixedState;
use jiff::Timestamp;
use serde_json::Value;

use super::breaker::{BreakerState, BreakerTransition, LaunchDecision};
use crate::tracking::timer_queue::TimerQueue;
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::karpenter::nodepool::NodePool;
use mortise_apis::karpenter::nodepool::{LAUNCHES_PAUSED, PROBE_LAUNCH};
use mortise_apis::names::{ClaimName, PoolName, Uid};
use mortise_apis::schema::conditions::{
    self, AWAITING_RECONCILIATION, AWAITING_RECONCILIATION_MESSAGE, ConditionStatus, Conditions,
};
use mortise_apis::values::{after, doubled};
use mortise_engine::condition_edits::edited;
use mortise_engine::decider::StepInput;
use mortise_engine::write::{NodePoolStatusEdit, ObjectWrite};
use mortise_planning::reason::Reason;
use mortise_state::snapshot::Snapshot;

/// Karpenter's condition.
const HEALTHY: &str = "NodeRegistrationHealthy";
/// Results that count, and how many failures among them are too many.
const RING: (usize, usize) = (4, 2);
/// The longest back-off between two tries.
const MAX_BACKOFF_MS: i64 = 60 * 60_000;

#[derive(Debug)]
struct PoolHealth {
    uid: Option<String>,
    /// Generations of pool and class that the ring is about.
    generations: (i64, i64),
    /// The last results, oldest first; `true` = registered.
    recent_results: VecDeque<bool>,
    healthy: Option<bool>,
    /// Reason and message of the last failure.
    why: (String, String),
    /// A number that is the same for the same template.
    asks: u64,
    trust: BreakerState,
    /// Failures since the last success.
    in_a_row: u32,
    /// The instance that is tried while the breaker is open.
    probe: Option<Uid>,
    /// Claims that wait, and since when.
    paused_claims: BTreeMap<ClaimName, Timestamp>,
}

/// Every pool's health.
#[derive(Debug)]
pub(super) struct RegistrationHealth {
    pools: BTreeMap<PoolName, PoolHealth>,
    /// When to compare a pool's status with what is known.
    agenda: TimerQueue<PoolName>,
    /// Instances that are launched, or about to be, and have not registered.
    trying: BTreeMap<Uid, PoolName>,
    /// Claims to be checked again: what paused them may be over.
    ready: BTreeSet<ClaimName>,
}

impl RegistrationHealth {
    /// Knows nothing.
    pub(super) const fn new() -> Self {
        Self {
            pools: BTreeMap::new(),
            agenda: TimerQueue::new(),
            trying: BTreeMap::new(),
            ready: BTreeSet::new(),
        }
    }

    /// What the objects tell.
    pub(super) fn begin(input: &StepInput<'_>) -> Self {
        let mut this = Self::new();
        for name in input.snapshot.pools.keys() {
            this.see(input, name);
        }
        for claim in input.snapshot.claims.values() {
            let is_tried = claim.provider_id().is_some()
                && !claim.is_true("Registered")
                && claim.metadata.deletion_timestamp.is_none();
            if let Some(uid) = claim.uid().filter(|_| is_tried) {
                this.unregistered(claim, &uid, input.now);
            }
        }
        this
    }

    /// Reads a pool as it is now, and starts again where it or its class changed.
    pub(super) fn see(
        &mut self,
        input: &StepInput<'_>,
        name: &PoolName,
    ) -> Option<BreakerTransition> {
        let Some(pool) = input.snapshot.pools.get(name) else {
            if let Some(gone) = self.pools.remove(name) {
                self.ready.extend(gone.paused_claims.into_keys());
            }
            self.agenda.set(name, None);
            self.trying.retain(|_, of| of != name);
            return None;
        };
        self.agenda.set(name, Some(input.now));
        let generations = (
            pool.metadata.generation.unwrap_or_default(),
            class_generation(input.snapshot, pool),
        );
        let asks = fingerprint(input.snapshot, pool);
        let known = self
            .pools
            .get_mut(name)
            .filter(|known| known.uid == pool.metadata.uid);
        let Some(known) = known else {
            let fresh = PoolHealth::first_seen(input, pool, generations, asks);
            self.pools.insert(name.clone(), fresh);
            return None;
        };
        if known.generations != generations {
            known.generations = generations;
            known.recent_results.clear();
            known.healthy = None;
        }
        self.ready.extend(known.paused_claims.keys().cloned());
        if known.asks == asks {
            return None;
        }
        known.asks = asks;
        known.in_a_row = 0;
        known.probe = None;
        let was = std::mem::replace(&mut known.trust, BreakerState::Unproven);
        matches!(was, BreakerState::Open { .. })
            .then(|| BreakerTransition::Closed { pool: name.clone() })
    }

    /// Whether the claim's instance may be launched now.
    pub(super) fn gate(
        &self,
        input: &StepInput<'_>,
        claim: &NodeClaim,
        uid: &Uid,
    ) -> LaunchDecision {
        let Some((name, pool)) = claim.pool().and_then(|name| {
            let pool = self.pools.get(&name)?;
            Some((name, pool))
        }) else {
            return LaunchDecision::Allow; // a user's own claim
        };
        let trying = || {
            let others = self
                .trying
                .iter()
                .filter(|(each, of)| **of == name && *each != uid);
            others.count()
        };
        match pool.trust {
            BreakerState::Closed => LaunchDecision::Allow,
            BreakerState::Unproven => {
                let most = input.settings.max_unproven_launches;
                // One that failed is not made up for by another: it told as much as it could.
                let failed = match input.settings.launch_failure_threshold {
                    0 => 0,
                    _ => usize::try_from(pool.in_a_row).unwrap_or(usize::MAX),
                };
                let trying = trying();
                if most == 0 || trying == 0 || trying.saturating_add(failed) < most {
                    return LaunchDecision::Allow;
                }
                let text = format!(
                    "{most} unproven launches of NodePool {name} are in progress: further launches wait until one registers"
                );
                LaunchDecision::Wait(text, None)
            }
            BreakerState::Open { until, .. } if until > input.now => {
                let why = pool.pause(until);
                let shows = input.snapshot.pools.get(&name).is_some_and(|pool| {
                    conditions::is_true(&pool.status.conditions, LAUNCHES_PAUSED)
                });
                // Until everybody can read it on the pool, the pods would come back here at once.
                if shows {
                    LaunchDecision::Reject(why)
                } else {
                    LaunchDecision::Wait(why.to_string(), Some(until))
                }
            }
            BreakerState::Open { .. } => match &pool.probe {
                Some(probe) if probe != uid => LaunchDecision::Wait(
                    format!("one probe launch of NodePool {name} is in progress"),
                    None,
                ),
                _ => LaunchDecision::Allow,
            },
        }
    }

    /// The claim waits; it is checked again when something about its pool changed. Tells since when it does.
    pub(super) fn hold(&mut self, claim: &NodeClaim, now: Timestamp) -> Timestamp {
        let pool = claim.pool().and_then(|pool| self.pools.get_mut(&pool));
        pool.map_or(now, |pool| {
            *pool.paused_claims.entry(claim.name()).or_insert(now)
        })
    }

    /// Whether the claim was waiting; it does not any more.
    pub(super) fn release(&mut self, claim: &NodeClaim) -> bool {
        let pool = claim.pool().and_then(|pool| self.pools.get_mut(&pool));
        pool.is_some_and(|pool| pool.paused_claims.remove(&claim.name()).is_some())
    }

    /// An instance is launched for the claim, or was and has not registered yet.
    pub(super) fn unregistered(&mut self, claim: &NodeClaim, uid: &Uid, now: Timestamp) {
        let Some(name) = claim.pool() else { return };
        let Some(pool) = self.pools.get_mut(&name) else {
            return;
        };
        if matches!(pool.trust, BreakerState::Open { until, .. } if until <= now) {
            pool.probe.get_or_insert_with(|| uid.clone());
        }
        self.trying.insert(uid.clone(), name);
    }

    /// The claim's instance is no longer tried: it registered, was deleted, or there is none.
    pub(super) fn ended(&mut self, uid: &Uid) {
        let Some(name) = self.trying.remove(uid) else {
            return;
        };
        if let Some(pool) = self.pools.get_mut(&name) {
            pool.probe.take_if(|probe| probe == uid);
            self.ready.extend(pool.paused_claims.keys().cloned());
        }
    }

    /// An instance registered.
    pub(super) fn registered(&mut self, claim: &NodeClaim, uid: &Uid) -> Option<BreakerTransition> {
        self.ended(uid);
        let name = claim.pool()?;
        let pool = self.pools.get_mut(&name).filter(|pool| pool.owns(claim))?;
        pool.result(true);
        pool.in_a_row = 0;
        let was = std::mem::replace(&mut pool.trust, BreakerState::Closed);
        self.ready.extend(pool.paused_claims.keys().cloned());
        self.agenda.sooner(&name, Timestamp::MIN);
        matches!(was, BreakerState::Open { .. }).then_some(BreakerTransition::Closed { pool: name })
    }

    /// A claim is deleted: its instance did not register in time, or was not launched in time.
    pub(super) fn timed_out(
        &mut self,
        input: &StepInput<'_>,
        claim: &NodeClaim,
        uid: &Uid,
        condition: &str,
    ) -> Option<BreakerTransition> {
        let launched = condition != "Launched";
        let was_probe = claim
            .pool()
            .and_then(|name| self.pools.get(&name))
            .is_some_and(|pool| pool.probe.as_ref() == Some(uid));
        self.ended(uid);
        let name = claim.pool()?;
        let pool = self.pools.get_mut(&name).filter(|pool| pool.owns(claim))?;
        pool.why = why(claim, launched);
        pool.result(false);
        self.agenda.sooner(&name, input.now);
        if !launched {
            return None; // no instance was lost
        }
        pool.in_a_row = pool.in_a_row.saturating_add(1);
        let most = input.settings.launch_failure_threshold;
        let opened = match pool.trust {
            BreakerState::Open { opened, .. } if was_probe => opened.saturating_add(1),
            BreakerState::Open { .. } => return None,
            _ if most > 0 && pool.in_a_row >= most => 1,
            _ => return None,
        };
        let wait = doubled(input.settings.launch_backoff_ms, opened - 1, MAX_BACKOFF_MS);
        let until = after(input.now, wait);
        pool.trust = BreakerState::Open { opened, until };
        self.ready.extend(pool.paused_claims.keys().cloned());
        Some(BreakerTransition::Opened {
            pool: name,
            failures: pool.in_a_row,
            until,
        })
    }

    /// Claims to be checked again.
    pub(super) fn take_ready(&mut self) -> BTreeSet<ClaimName> {
        std::mem::take(&mut self.ready)
    }

    /// Pools whose status is to be compared with what is known.
    pub(super) fn take_changed(&mut self, now: Timestamp) -> Vec<PoolName> {
        self.agenda.due(now)
    }

    /// Compares a pool's status at that time, or sooner.
    pub(super) fn look_at(&mut self, name: &PoolName, at: Option<Timestamp>) {
        if let Some(at) = at.filter(|_| self.pools.contains_key(name)) {
            self.agenda.sooner(name, at);
        }
    }

    /// When the next comparison is due.
    pub(super) fn next(&self) -> Option<Timestamp> {
        self.agenda.next()
    }

    /// The status that the pool should have and has not: its write, if there is anything to write, and when that
    /// changes by time alone.
    pub(super) fn status(
        &self,
        input: &StepInput<'_>,
        name: &PoolName,
    ) -> (Option<ObjectWrite>, Option<Timestamp>) {
        let (Some(known), Some(pool)) = (self.pools.get(name), input.snapshot.pools.get(name))
        else {
            return (None, None);
        };
        // The pool's other conditions come first: two writers of one list would only get in each other's way.
        let generation = pool.metadata.generation;
        let is_judged = |type_: &&str| {
            conditions::find(&pool.status.conditions, type_)
                .is_some_and(|each| each.observed_generation == generation)
        };
        if !conditions::NODE_POOL.dependents.iter().all(is_judged) {
            return (None, None);
        }
        let until = match known.trust {
            BreakerState::Open { until, .. } => Some(until).filter(|until| *until > input.now),
            BreakerState::Unproven | BreakerState::Closed => None,
        };
        let list = edited(
            conditions::NODE_POOL,
            &pool.metadata,
            &pool.status.conditions,
            input.now,
            |conditions| known.write(conditions, input.now),
        );
        let (_, class) = known.generations;
        let observed = pool.status.node_class_observed_generation;
        if list.is_none() && observed.unwrap_or_default() == class {
            return (None, until);
        }
        let edit = NodePoolStatusEdit {
            node_class_generation: Some(class),
            conditions: list,
            ..NodePoolStatusEdit::default()
        };
        (Some(ObjectWrite::pool_status(pool, edit)), until)
    }
}

impl PoolHealth {
    /// What the objects tell about a pool that this process has not seen yet.
    fn first_seen(
        input: &StepInput<'_>,
        pool: &NodePool,
        generations: (i64, i64),
        asks: u64,
    ) -> Self {
        let condition = |type_| conditions::find(&pool.status.conditions, type_);
        let mut this = Self {
            uid: pool.metadata.uid.clone(),
            generations,
            recent_results: VecDeque::new(),
            healthy: None,
            why: why_unknown(),
            asks,
            trust: BreakerState::Unproven,
            in_a_row: 0,
            probe: None,
            paused_claims: BTreeMap::new(),
        };
        let current = condition(HEALTHY).filter(|known| {
            known.observed_generation.unwrap_or_default() == generations.0
                && pool
                    .status
                    .node_class_observed_generation
                    .unwrap_or_default()
                    == generations.1
        });
        match current.map(|known| known.status) {
            Some(ConditionStatus::True) => this.result(true),
            Some(ConditionStatus::False) => {
                this.result(false);
                this.result(false);
                if let Some(known) = current {
                    this.why = (known.reason.clone(), known.message.clone());
                }
            }
            Some(ConditionStatus::Unknown) | None => {}
        }
        let name = pool.name();
        let paused = condition(LAUNCHES_PAUSED);
        if let Some(paused) = paused {
            let since = paused
                .last_transition_time
                .as_ref()
                .map_or(input.now, |time| time.0);
            let told = told(&paused.message);
            let until = if paused.status == ConditionStatus::True {
                told.and_then(|(_, until)| until)
                    .unwrap_or_else(|| after(since, input.settings.launch_backoff_ms))
            } else {
                input.now
            };
            // The first closing comes with this number of failures, and each one after it closes once more.
            let first = input.settings.launch_failure_threshold;
            this.in_a_row = told.map_or(first, |(failures, _)| failures.max(first));
            let opened = (this.in_a_row - first).saturating_add(1);
            this.trust = BreakerState::Open { opened, until };
        } else if this.healthy == Some(true) || has_registered(input.snapshot, &name) {
            this.trust = BreakerState::Closed;
        }
        this
    }

    /// Only claims that this pool made say something about it.
    fn owns(&self, claim: &NodeClaim) -> bool {
        let mut owners = claim.metadata.owner_references.iter().flatten();
        owners.any(|owner| Some(&owner.uid) == self.uid.as_ref())
    }

    fn result(&mut self, registered: bool) {
        if self.recent_results.len() == RING.0 {
            self.recent_results.pop_front();
        }
        self.recent_results.push_back(registered);
        let failures = self.recent_results.iter().filter(|each| !**each).count();
        // One failure alone says nothing yet.
        if failures >= RING.1 {
            self.healthy = Some(false);
        } else if registered {
            self.healthy = Some(true);
        }
    }

    /// Why launches are paused.
    const fn pause(&self, until: Timestamp) -> Reason {
        Reason::NodesNotRegistering {
            failures: self.in_a_row,
            probe: until,
        }
    }

    fn write(&self, conditions: &mut Conditions<'_>, now: Timestamp) {
        match self.healthy {
            Some(true) => conditions.set_true(HEALTHY),
            Some(false) => conditions.set_false(HEALTHY, &self.why.0, &self.why.1),
            None => conditions.set_unknown(
                HEALTHY,
                AWAITING_RECONCILIATION,
                AWAITING_RECONCILIATION_MESSAGE,
            ),
        };
        match self.trust {
            BreakerState::Open { until, .. } if until > now => conditions.set_true_with_reason(
                LAUNCHES_PAUSED,
                "NodesNotRegistering",
                &self.pause(until).to_string(),
            ),
            BreakerState::Open { .. } => conditions.set_unknown(
                LAUNCHES_PAUSED,
                PROBE_LAUNCH,
                &format!(
                    "{} consecutive nodes did not register; a probe launch is in progress",
                    self.in_a_row
                ),
            ),
            BreakerState::Unproven | BreakerState::Closed => conditions.clear(LAUNCHES_PAUSED),
        };
    }
}

/// What the message of [`PoolHealth::pause_message`] says, which is all that a process knows that was not there: how
/// many instances in a row did not register, and when the next is tried.
fn told(message: &str) -> Option<(u32, Option<Timestamp>)> {
    let (failures, _) = message.split_once(' ')?;
    let at = message
        .rsplit_once(" at ")
        .and_then(|(_, at)| at.parse().ok());
    Some((failures.parse().ok()?, at))
}

/// Some instance of the pool registered and is as the pool and its class now want it.
fn has_registered(snapshot: &Snapshot, pool: &PoolName) -> bool {
    snapshot.claims.values().any(|claim| {
        claim.pool().as_ref() == Some(pool)
            && claim.is_true("Registered")
            && !claim.is_true("Drifted")
    })
}

fn why_unknown() -> (String, String) {
    (
        "RegistrationFailed".to_owned(),
        "Failed to register node".to_owned(),
    )
}

/// Karpenter's reason and message: of the launch where that is what failed.
fn why(claim: &NodeClaim, launched: bool) -> (String, String) {
    let condition = conditions::find(&claim.status.conditions, "Launched");
    match condition.filter(|each| !launched && !each.reason.is_empty()) {
        Some(condition) => (condition.reason.clone(), condition.message.clone()),
        None => why_unknown(),
    }
}

fn class_generation(snapshot: &Snapshot, pool: &NodePool) -> i64 {
    let class = snapshot.node_classes.get(&pool.node_class_key());
    let generation = class.and_then(|class| class.object.pointer("/metadata/generation"));
    generation.and_then(Value::as_i64).unwrap_or_default()
}

/// What the pool's instances are made of: the template, the class, and what the class was found to stand for (images,
/// networks), which may change under the same generation.
fn fingerprint(snapshot: &Snapshot, pool: &NodePool) -> u64 {
    let class = snapshot.node_classes.get(&pool.node_class_key());
    let part = |name: &str| {
        let mut part = class
            .and_then(|class| class.object.get(name))
            .cloned()
            .unwrap_or_default();
        if let Some(fields) = part.as_object_mut() {
            fields.remove("conditions");
        }
        part.to_string()
    };
    let template = serde_json::to_string(&pool.spec.template).unwrap_or_default();
    FixedState::with_seed(7).hash_one((template, part("spec"), part("status")))
}
