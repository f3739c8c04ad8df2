//! Pools: readiness, validation, counters, hash.
//!
//! May: write the conditions `NodeClassReady`, `ValidationSucceeded` and with them `Ready`, the counters of status and
//! the annotations of pools with their hash and the version of the service; stamp claims whose hash was made by another version of the algorithm.
//!
//! Must never: write counters more than once in 5 s; give a claim that drifted a new hash (it would look as if
//! it had not); change anything about what a pool asks for.
//!
//! Counters are kept as sums that change with each node that changed, so that a step costs what changed.
//!
//! Implements karpenter-core 1.1 (conditions, counters, hash).

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use crate::tracking::event_throttle::EventThrottle;
use crate::tracking::timer_queue::{TimerQueue, earlier};
use crate::tracking::write_tracker::WriteTracker;
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::karpenter::nodepool::NodePool as Pool;
use mortise_apis::names::{ClaimName, ObjectRef, PoolName};
use mortise_apis::resources::resources_of;
use mortise_apis::resources::{CPU, EPHEMERAL_STORAGE, MEMORY, NODES, PODS, Resources};
use mortise_apis::schema::conditions::{self, ConditionStatus, Conditions};
use mortise_apis::validation::{in_words, template_faults};
use mortise_apis::values::{Quantity, after};
use mortise_apis::{Condition, labels};
use mortise_engine::condition_edits::edited;
use mortise_engine::decider::{Decider, InboxMessage, Step, StepInput};
use mortise_engine::decider_id::DeciderId;
use mortise_engine::effect::{Effect, Outcome};
use mortise_engine::record::Verdict;
use mortise_engine::write::{NodePoolStatusEdit, NodePoolUsage, ObjectWrite};
use mortise_planning::reason::Reason;
use mortise_state::index::Changes;
use mortise_state::snapshot::{BootTaint, NodeKey, StateNode};

/// Counters of one pool are written at most this often: Karpenter counts every 5 s.
const COUNTERS_MS: i64 = 5_000;

/// The decider. See the module's documentation.
#[derive(Debug)]
pub struct NodePoolDecider {
    agenda: TimerQueue<PoolName>,
    outbox: WriteTracker,
    /// What each node was counted as.
    counted: BTreeMap<NodeKey, (PoolName, Resources)>,
    sums: BTreeMap<PoolName, Sum>,
    /// When counters may be written again.
    not_before: BTreeMap<PoolName, Timestamp>,
    /// Claims to be stamped once their last write has been answered or has rested.
    stamps: TimerQueue<ClaimName>,
    told: EventThrottle,
    /// Boot taints that were recorded.
    boot_taints: BTreeSet<(PoolName, BootTaint)>,
}

/// What a pool has.
#[derive(Clone, Debug, Default, PartialEq)]
struct Sum {
    nodes: i64,
    capacity: Resources,
}

impl Default for NodePoolDecider {
    fn default() -> Self {
        Self::new()
    }
}

impl NodePoolDecider {
    /// A decider that knows nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            agenda: TimerQueue::new(),
            outbox: WriteTracker::new(),
            counted: BTreeMap::new(),
            sums: BTreeMap::new(),
            not_before: BTreeMap::new(),
            stamps: TimerQueue::new(),
            told: EventThrottle::default(),
            boot_taints: BTreeSet::new(),
        }
    }

    /// Counts the nodes that changed. Returns the pools whose sums changed.
    fn count(&mut self, input: &StepInput<'_>) -> BTreeSet<PoolName> {
        let keys: BTreeSet<NodeKey> = if input.changes.everything {
            input
                .snapshot
                .nodes
                .iter()
                .map(|(key, _)| key.clone())
                .chain(self.counted.keys().cloned())
                .collect()
        } else {
            (*input.changes.nodes).clone()
        };
        let mut pools = BTreeSet::new();
        for key in keys {
            let state_node = input
                .snapshot
                .nodes
                .get(&key)
                .filter(|state_node| !state_node.deleting);
            let now =
                state_node.and_then(|state_node| Some((state_node.pool()?, counts(state_node))));
            let before = self.counted.get(&key);
            if before == now.as_ref() {
                continue;
            }
            if let Some((pool, capacity)) = self.counted.remove(&key) {
                let sum = self.sums.entry(pool.clone()).or_default();
                sum.nodes -= 1;
                sum.capacity.sub_assign(&capacity);
                pools.insert(pool);
            }
            if let Some((pool, capacity)) = now {
                let sum = self.sums.entry(pool.clone()).or_default();
                sum.nodes += 1;
                sum.capacity.add_assign(&capacity);
                pools.insert(pool.clone());
                self.counted.insert(key, (pool, capacity));
            }
        }
        pools
    }

    fn outcome(
        &mut self,
        now: Timestamp,
        outcome: &Outcome,
        pools: &mut BTreeSet<PoolName>,
        claims: &mut BTreeSet<ClaimName>,
    ) {
        let Effect::Write(write) = &*outcome.effect else {
            return;
        };
        self.outbox.answered(now, &outcome.effect, &outcome.result);
        match &write.target {
            ObjectRef::Pool(name) => drop(pools.insert(name.clone())),
            ObjectRef::Claim(name) => drop(claims.insert(name.clone())),
            _ => {}
        }
    }

    fn look(
        &mut self,
        input: &StepInput<'_>,
        name: &PoolName,
        step: &mut Step,
    ) -> Option<Timestamp> {
        let Some(pool) = input.snapshot.pools.get(name) else {
            self.not_before.remove(name);
            self.boot_taints.retain(|(pool, _)| pool != name);
            if self.sums.get(name).is_some_and(|sum| sum.nodes == 0) {
                self.sums.remove(name);
            }
            return None;
        };
        self.note_boot_taints(input, name, step);
        if let Some(all) = outdated_annotations(pool, &input.settings.version, input.now) {
            let write = ObjectWrite::set_hashes(ObjectRef::Pool(name.clone()), all);
            let sent = self.outbox.send(input.now, write, step);
            return sent.err().flatten();
        }
        let list = edited(
            conditions::NODE_POOL,
            &pool.metadata,
            &pool.status.conditions,
            input.now,
            |conditions| judge(conditions, input, pool),
        );
        let sum = self.sums.get(name).cloned().unwrap_or_default();
        let usage = changed_usage(pool, &sum);
        if list.is_none() {
            usage.as_ref()?;
            if let Some(at) = self.not_before.get(name).filter(|at| **at > input.now) {
                return Some(*at);
            }
        }
        let counts = usage.is_some();
        let edit = NodePoolStatusEdit {
            usage,
            conditions: list.clone(),
            ..NodePoolStatusEdit::default()
        };
        let write = ObjectWrite::pool_status(pool, edit);
        if let Err(at) = self.outbox.send(input.now, write, step) {
            return at;
        }
        if let Some(list) = &list {
            self.note(input, name, list, step);
        }
        if !counts {
            return None;
        }
        let at = after(input.now, COUNTERS_MS);
        self.not_before.insert(name.clone(), at);
        Some(at)
    }

    /// Records conditions that keep the pool from being used.
    fn note(
        &mut self,
        input: &StepInput<'_>,
        name: &PoolName,
        list: &[Condition],
        step: &mut Step,
    ) {
        let target = ObjectRef::Pool(name.clone());
        for type_ in conditions::NODE_POOL.dependents.iter().copied() {
            let Some(condition) = conditions::find(list, type_) else {
                continue;
            };
            if condition.status == ConditionStatus::True {
                self.told.forget(&target, type_);
                continue;
            }
            let by = (input, DeciderId::NodePool);
            self.told.condition(by, &target, type_, condition, step);
        }
    }

    /// Records each boot taint of a pool once.
    fn note_boot_taints(&mut self, input: &StepInput<'_>, name: &PoolName, step: &mut Step) {
        for (taint, longest_ms) in input.snapshot.boot_taints.of_pool(name) {
            if self.boot_taints.insert((name.clone(), taint.clone())) {
                let (by, pool) = (DeciderId::NodePool, ObjectRef::Pool(name.clone()));
                let reasons = vec![Reason::BootTaint {
                    taint: format!("{}:{}", taint.key, taint.effect),
                    seconds: (longest_ms + 999) / 1_000,
                }];
                step.announce(input, by, [pool], Verdict::Observed, reasons);
            }
        }
    }

    /// Stamps a claim whose hash another version of the algorithm made.
    fn stamp(&mut self, input: &StepInput<'_>, claim: &NodeClaim, step: &mut Step) {
        let Some(pool) = claim
            .pool()
            .and_then(|pool| input.snapshot.pools.get(&pool))
        else {
            return;
        };
        let version = (
            labels::NODEPOOL_HASH_VERSION,
            labels::NODEPOOL_HASH_VERSION_VALUE,
        );
        let Some(stamp) = ObjectWrite::upgrade_hash(claim, version, labels::NODEPOOL_HASH, || {
            pool.hash().to_string()
        }) else {
            return;
        };
        if let Err(Some(at)) = self.outbox.send(input.now, stamp, step) {
            self.stamps.sooner(&claim.name(), at);
        }
    }
}

/// What a node counts as: what it is known to have.
fn counts(state_node: &StateNode) -> Resources {
    state_node.capacity.clone()
}

/// The hash of a NodePool, the version of its algorithm, and the `version` of the service, with the time if another one preceded it;
/// `None` if its annotations contain all.
fn outdated_annotations(
    pool: &Pool,
    version: &str,
    now: Timestamp,
) -> Option<BTreeMap<String, String>> {
    let annotations = pool.metadata.annotations.as_ref();
    let there = |key: &str| annotations?.get(key).map(String::as_str);
    let hash = pool.hash().to_string();
    let mut wanted = vec![
        (labels::NODEPOOL_HASH, hash),
        (
            labels::NODEPOOL_HASH_VERSION,
            labels::NODEPOOL_HASH_VERSION_VALUE.to_owned(),
        ),
    ];
    if !version.is_empty() {
        wanted.push((labels::VERSION, version.to_owned()));
    }
    if wanted.iter().all(|(key, value)| there(key) == Some(value)) {
        return None;
    }
    // A NodePool that names none is new, or Karpenter's.
    let is_upgrade = there(labels::VERSION).is_some_and(|before| before != version);
    if is_upgrade && !version.is_empty() {
        let second = Timestamp::from_second(now.as_second()).unwrap_or(now);
        wanted.push((labels::UPGRADED_AT, second.to_string()));
    }
    let wanted = wanted.into_iter();
    Some(wanted.map(|(key, value)| (key.to_owned(), value)).collect())
}

/// Sets the conditions of a pool from its template and its node class.
fn judge(conditions: &mut Conditions<'_>, input: &StepInput<'_>, pool: &Pool) {
    let faults = template_faults(pool, &input.snapshot.well_known);
    if faults.is_empty() {
        conditions.set_true("ValidationSucceeded");
    } else {
        conditions.set_false(
            "ValidationSucceeded",
            "NodePoolValidationFailed",
            &in_words(&faults),
        );
    }
    let Some(class) = input.snapshot.node_classes.get(&pool.node_class_key()) else {
        conditions.set_false(
            "NodeClassReady",
            "NodeClassNotFound",
            "NodeClass not found on cluster",
        );
        return;
    };
    if class
        .object
        .pointer("/metadata/deletionTimestamp")
        .is_some()
    {
        conditions.set_false(
            "NodeClassReady",
            "NodeClassTerminating",
            "NodeClass is Terminating",
        );
        return;
    }
    match class.ready().cloned() {
        Some(ready) if ready.status == ConditionStatus::True => {
            conditions.set_true("NodeClassReady")
        }
        Some(ready) if ready.status == ConditionStatus::False => {
            // The schema wants a reason.
            let reason = Some(ready.reason.as_str()).filter(|reason| !reason.is_empty());
            conditions.set_false(
                "NodeClassReady",
                reason.unwrap_or("NodeClassNotReady"),
                &ready.message,
            )
        }
        _ => conditions.set_false(
            "NodeClassReady",
            "NodeClassReadinessUnknown",
            "Node Class Readiness Unknown",
        ),
    };
}

/// The usage that the status does not contain yet; `None` if it does.
fn changed_usage(pool: &Pool, sum: &Sum) -> Option<NodePoolUsage> {
    let mut wanted: BTreeMap<String, String> = sum
        .capacity
        .to_api()
        .into_iter()
        .map(|(name, amount)| (name, amount.0))
        .collect();
    for name in [CPU, MEMORY, PODS, EPHEMERAL_STORAGE] {
        wanted
            .entry(name.to_owned())
            .or_insert_with(|| "0".to_owned());
    }
    wanted.insert(
        NODES.to_owned(),
        Quantity::from_units(sum.nodes).to_string(),
    );
    let written = pool.status.resources.clone().unwrap_or_default();
    let same_names = written.keys().eq(wanted.keys());
    let same = same_names
        && resources_of(&written) == sum.capacity.clone().with(NODES, sum.nodes)
        && pool.status.nodes == Some(sum.nodes);
    if same {
        return None;
    }
    let mut resources: BTreeMap<String, Option<String>> = wanted
        .into_iter()
        .map(|(name, amount)| (name, Some(amount)))
        .collect();
    for name in written.keys() {
        resources.entry(name.clone()).or_insert(None);
    }
    Some(NodePoolUsage {
        resources,
        nodes: sum.nodes,
    })
}

impl Decider for NodePoolDecider {
    fn id(&self) -> DeciderId {
        DeciderId::NodePool
    }

    fn fresh(&self) -> Box<dyn Decider> {
        Box::new(Self::default())
    }

    fn is_interested(&self, changes: &Changes) -> bool {
        let Changes {
            everything,
            nodes,
            claims,
            pools,
            node_classes,
            ..
        } = changes;
        *everything
            || !nodes.is_empty()
            || !claims.is_empty()
            || !pools.is_empty()
            || !node_classes.is_empty()
    }

    fn step(&mut self, input: &StepInput<'_>, _stop: &dyn Fn() -> bool) -> Step {
        let mut step = Step::default();
        let mut pools = self.count(input);
        let mut claims = (*input.changes.claims).clone();
        claims.extend(self.stamps.due(input.now));
        pools.extend(self.agenda.due(input.now));
        for delivery in input.inbox {
            if let InboxMessage::Outcome(outcome) = delivery {
                self.outcome(input.now, outcome, &mut pools, &mut claims);
            }
        }
        if input.changes.everything {
            self.outbox.forgive();
            pools.extend(input.snapshot.pools.keys().cloned());
            claims.extend(input.snapshot.claims.iter().map(|(name, _)| name.clone()));
        }
        pools.extend(input.changes.pools.iter().cloned());
        if !input.changes.node_classes.is_empty() {
            let of_class =
                |pool: &Pool| input.changes.node_classes.contains(&pool.node_class_key());
            pools.extend(
                input
                    .snapshot
                    .pools
                    .values()
                    .filter(|pool| of_class(pool))
                    .map(|pool| pool.name()),
            );
        }
        for name in pools {
            let again = self.look(input, &name, &mut step);
            self.agenda.set(&name, again);
        }
        for name in claims {
            if let Some(claim) = input.snapshot.claims.get(&name) {
                self.stamp(input, claim, &mut step);
            }
        }
        self.told.sweep(input.now);
        self.outbox.sweep(input.now, input.snapshot);
        if let Some(at) = earlier(self.agenda.next(), self.stamps.next()) {
            step.wake_at(at);
        }
        step
    }
}
