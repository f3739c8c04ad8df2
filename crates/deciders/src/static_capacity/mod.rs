//! Pools with `spec.replicas`: exactly that many nodes, whatever the pods ask for.
//!
//! May: create claims from the pool's template until there are `replicas` of them, and delete claims of which there are
//! too many, those first with which least is lost.
//!
//! Must never: exceed `limits.nodes`, counted with the nodes that are still being deleted; make a node for one that is
//! only on its way; take away a node because its drifted neighbour is being replaced, or one that a pause protects; touch pools without `replicas`,
//! or do anything while the feature gate is off.
//!
//! A drifted node is replaced by disruption, under the pool's budgets. Its replacement says on itself whom it replaces
//! (`mortise.sh/replaces`), so that the pair counts as one node in every process ([`ReplicaCounts`]).
//!
//! Everything is counted from objects and the ledger at each look; what is kept here only saves repeated calls.
//!
//! Implements karpenter-core 7.2, without what 10.4#16 suspects.

mod deletion_order;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use mortise_planning::replica_counts::ReplicaCounts;

use super::node_claim_request::{NameGenerator, NodeClaimRequest};
use crate::launch_shape::batch_new_claims;
use crate::tracking::event_throttle::EventThrottle;
use crate::tracking::request_tracker::RequestTracker;
use crate::tracking::write_tracker::WriteTracker;
use mortise_apis::karpenter::nodepool::NodePool;
use mortise_apis::names::{ObjectRef, PoolName, Uid};
use mortise_apis::schema::conditions::{self, ConditionStatus};
use mortise_engine::decider::{Decider, InboxMessage, Step, StepInput};
use mortise_engine::decider_id::DeciderId;
use mortise_engine::effect::{Effect, EffectError, Outcome};
use mortise_engine::record::Verdict;
use mortise_planning::pause;
use mortise_planning::reason::Reason;
use mortise_planning::scheduling::{SolveOptions, StaticClaimPlanner};
use mortise_state::index::Changes;
use mortise_state::snapshot::Snapshot;

/// Creating a claim fails for a reason of its pool (a denied template, a limit): 1 s, doubling to 1 min.
const BACKOFF_MS: (i64, i64) = (1_000, 60_000);
/// That a pool has fewer nodes than it should is said again after this.
const SHORT_EVERY_MS: i64 = 5 * 60_000;
/// Most claims of one step: the next one goes on. A typo in `replicas` is noticed before a thousand nodes are there.
const MOST_AT_ONCE: i64 = 100;
/// After this many the step is repeated at once.
const AGAIN_MS: i64 = 100;

/// What the NodeClaims of one look are made by.
struct NewStaticClaims<'a> {
    names: NameGenerator,
    /// Made for the first one, since it reads all nodes.
    planner: Option<StaticClaimPlanner<'a>>,
    /// What the planner is made from.
    from: (&'a Snapshot, &'a SolveOptions),
}

/// The decider. See the module's documentation.
#[derive(Debug)]
pub struct StaticCapacityDecider {
    outbox: WriteTracker,
    /// Claims whose deletion was asked for and does not show yet.
    leaving: BTreeSet<Uid>,
    pools: RequestTracker<PoolName>,
    told: EventThrottle,
}

impl Default for StaticCapacityDecider {
    fn default() -> Self {
        Self::new()
    }
}

impl StaticCapacityDecider {
    /// A decider that knows nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            outbox: WriteTracker::new(),
            leaving: BTreeSet::new(),
            pools: RequestTracker::new(BACKOFF_MS.0, BACKOFF_MS.1),
            told: EventThrottle::default(),
        }
    }

    fn outcome(&mut self, input: &StepInput<'_>, outcome: &Outcome, step: &mut Step) {
        match &*outcome.effect {
            Effect::CreateClaim(claim) => {
                let Some(pool) = claim.pool() else { return };
                match &outcome.result {
                    Ok(_) => self.pools.succeeded(&pool),
                    Err(error) => {
                        self.pools.failed(&pool, input.now);
                        let target = ObjectRef::Pool(pool.clone());
                        let reason = match error {
                            EffectError::Limit(message) => Reason::Limit {
                                pool,
                                message: message.clone(),
                            },
                            other => Reason::Failed {
                                error: other.to_string(),
                            },
                        };
                        self.short(input, &target, vec![reason], step);
                    }
                }
            }
            Effect::Write(_) => {
                self.outbox
                    .answered(input.now, &outcome.effect, &outcome.result);
            }
            Effect::Delete { uid, .. } => {
                self.outbox
                    .answered(input.now, &outcome.effect, &outcome.result);
                let failed = !matches!(
                    outcome.result,
                    Ok(_) | Err(EffectError::NotFound(_) | EffectError::Conflict(_))
                );
                if let Some(uid) = uid.as_ref().filter(|_| failed) {
                    self.leaving.remove(uid);
                }
            }
            _ => {}
        }
    }

    /// Makes the pool have as many nodes as it is to have.
    fn look(
        &mut self,
        input: &StepInput<'_>,
        pool: &Arc<NodePool>,
        census: &ReplicaCounts,
        new: &mut NewStaticClaims<'_>,
        step: &mut Step,
    ) {
        let Some(replicas) = pool.spec.replicas else {
            return;
        };
        let target = ObjectRef::Pool(pool.name());
        if !input.settings.gates.static_capacity {
            self.short(input, &target, vec![Reason::StaticCapacityOff], step);
            return;
        }
        match census.missing(replicas) {
            0 => self.told.forget(&target, "short"),
            missing if missing > 0 => {
                self.grow(input, pool, (replicas, missing), census, new, step);
            }
            surplus => {
                self.told.forget(&target, "short");
                self.shrink(input, &pool.name(), (replicas, -surplus), census, step);
            }
        }
    }

    fn grow(
        &mut self,
        input: &StepInput<'_>,
        pool: &Arc<NodePool>,
        (replicas, missing): (i64, i64),
        census: &ReplicaCounts,
        new: &mut NewStaticClaims<'_>,
        step: &mut Step,
    ) {
        let (name, now) = (pool.name(), input.now);
        let target = ObjectRef::Pool(name.clone());
        let there = replicas - missing;
        let nodes = |there| Reason::Replicas {
            pool: name.clone(),
            wanted: replicas,
            there,
        };
        let is_coming_up = !pool.is_ready()
            && conditions::status_of(&pool.status.conditions, conditions::READY)
                != ConditionStatus::False;
        if is_coming_up || input.snapshot.catalog_of(pool).is_none() {
            return; // a moment after its creation; its conditions say what keeps it from being ready
        }
        let NewStaticClaims {
            names,
            planner,
            from,
        } = new;
        let planner = planner.get_or_insert_with(|| StaticClaimPlanner::new(from.0, from.1));
        let template = match planner.template(pool) {
            Ok(template) => template,
            Err(why) => {
                let reasons = vec![Reason::NoStaticPlan { why }, nodes(there)];
                self.short(input, &target, reasons, step);
                return;
            }
        };
        if let Some(at) = self.pools.waits_until(&name).filter(|at| *at > now) {
            step.wake_at(at);
            return;
        }
        let room = pool.limits().nodes.map_or(i64::MAX, |limit| {
            limit.saturating_sub(census.nodes()).max(0)
        });
        if room < missing {
            let limit = pool.limits().nodes.unwrap_or_default();
            let message = format!(
                "limit of nodes is {limit}, and {} nodes exist, {} of them terminating",
                census.nodes(),
                census.going
            );
            let reason = Reason::Limit {
                pool: name.clone(),
                message,
            };
            self.short(input, &target, vec![reason, nodes(there + room)], step);
        } else {
            self.told.forget(&target, "short");
        }
        let wanted = missing.min(room);
        for _ in 0..wanted.min(MOST_AT_ONCE) {
            let planned = planner.plan(&template);
            let claim = NodeClaimRequest {
                planned: &planned,
                pool,
                name: names.claim(&name, input.snapshot),
                replaces: &[],
            };
            claim.order(input, step);
            let mut reasons = vec![nodes(there)];
            reasons.extend(claim.reasons().into_iter().skip(1));
            let subject = ObjectRef::Claim(claim.name);
            step.record(
                input,
                DeciderId::StaticCapacity,
                subject,
                Verdict::NodePlanned,
                reasons,
            );
        }
        if wanted > MOST_AT_ONCE {
            step.wake_in(now, AGAIN_MS);
        }
    }

    fn shrink(
        &mut self,
        input: &StepInput<'_>,
        pool: &PoolName,
        (replicas, surplus): (i64, i64),
        census: &ReplicaCounts,
        step: &mut Step,
    ) {
        let there = replicas + surplus;
        let surplus = usize::try_from(surplus).unwrap_or(usize::MAX);
        let order = deletion_order::by_loss(&census.counted, input.snapshot, input.now);
        let mut paused = None;
        let free = order.iter().filter(|claim| {
            let state_node = input.snapshot.node_of_claim(&claim.name());
            let pause = state_node
                .and_then(|state_node| pause::of_node(input.snapshot, state_node, input.now));
            let is_free = pause.is_none();
            if let Some(pause) = pause {
                paused = Some((claim.name(), pause));
            }
            is_free
        });
        let free: Vec<_> = free.take(surplus).collect();
        if let Some((claim, pause)) = paused.filter(|_| free.len() < surplus) {
            step.wake_at(pause::look_again(&pause, input.now));
            let told = (input, DeciderId::StaticCapacity);
            let subject = ObjectRef::Claim(claim);
            self.told
                .paused(told, subject, (pause, SHORT_EVERY_MS), step);
        }
        for claim in free {
            let reason = Reason::Replicas {
                pool: pool.clone(),
                wanted: replicas,
                there,
            };
            let why = (DeciderId::StaticCapacity, &reason);
            if let Err(at) = self.outbox.end(input.now, claim, why, step) {
                // Something keeps it (a webhook, a conflict): it still counts as the one that goes.
                at.into_iter().for_each(|at| step.wake_at(at));
                continue;
            }
            self.leaving.extend(claim.uid());
            let subject = ObjectRef::Claim(claim.name());
            let (by, verdict) = (DeciderId::StaticCapacity, Verdict::Disrupted);
            step.announce(input, by, [subject], verdict, vec![reason]);
        }
    }

    /// Says that a pool has fewer nodes than it should, and why.
    fn short(
        &mut self,
        input: &StepInput<'_>,
        pool: &ObjectRef,
        reasons: Vec<Reason>,
        step: &mut Step,
    ) {
        let (now, every_ms) = (input.now, SHORT_EVERY_MS);
        if self.told.is_news(pool, "short", &reasons, now, every_ms) {
            let (by, verdict) = (DeciderId::StaticCapacity, Verdict::Blocked);
            step.announce(input, by, [pool.clone()], verdict, reasons);
        }
    }
}

impl Decider for StaticCapacityDecider {
    fn id(&self) -> DeciderId {
        DeciderId::StaticCapacity
    }

    fn fresh(&self) -> Box<dyn Decider> {
        Box::new(Self::default())
    }

    fn is_interested(&self, changes: &Changes) -> bool {
        changes.everything
            || !changes.claims.is_empty()
            || !changes.pools.is_empty()
            || !changes.node_classes.is_empty()
    }

    fn step(&mut self, input: &StepInput<'_>, _stop: &dyn Fn() -> bool) -> Step {
        let mut step = Step::default();
        for delivery in input.inbox {
            if let InboxMessage::Outcome(outcome) = delivery {
                self.outcome(input, outcome, &mut step);
            }
        }
        if input.changes.everything {
            // After a time without leading, answers may have been lost.
            self.leaving.clear();
        }
        let all: BTreeMap<PoolName, ReplicaCounts> =
            ReplicaCounts::all(input.snapshot, &self.leaving);
        if all.is_empty() {
            return step;
        }
        let options = input.settings.solve_options();
        let mut new = NewStaticClaims {
            names: NameGenerator::new(input.seed),
            planner: None,
            from: (input.snapshot, &options),
        };
        for (name, census) in &all {
            let pool = input.snapshot.pools.get(name);
            if let Some(pool) = pool.filter(|pool| pool.metadata.deletion_timestamp.is_none()) {
                self.look(input, pool, census, &mut new, &mut step);
            }
        }
        self.forget_gone(input);
        self.told.sweep(input.now);
        self.outbox.sweep(input.now, input.snapshot);
        batch_new_claims(input, &mut step);
        step
    }
}

impl StaticCapacityDecider {
    /// A deletion that shows is no longer expected.
    fn forget_gone(&mut self, input: &StepInput<'_>) {
        if self.leaving.is_empty() {
            return;
        }
        let staying = |claim: &Arc<mortise_apis::karpenter::nodeclaim::NodeClaim>| {
            claim
                .metadata
                .deletion_timestamp
                .is_none()
                .then(|| claim.uid())
                .flatten()
        };
        let there: BTreeSet<Uid> = input.snapshot.claims.values().filter_map(staying).collect();
        self.leaving.retain(|uid| there.contains(uid));
    }
}
