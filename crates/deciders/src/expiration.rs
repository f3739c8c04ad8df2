//! Claims that are older than their `expireAfter`.
//!
//! May: delete a claim at its creation time plus `expireAfter`, whatever budgets and protecting annotations say; the
//! drain that follows honours disruption budgets of pods and protected pods until the termination grace period ends. Where a
//! NodePoolPolicy says so, expired claims wait for the budgets of their NodePool.
//!
//! Must never: delete more than one claim a second, act on a node that a pause protects, or touch a claim whose `expireAfter` is `Never` or cannot be read.
//!
//! So that a fleet that was made together does not go together, each claim is born with an `expireAfter` of its own
//! ([`mortise_planning::settings::Settings::expiration_jitter_percent`]).
//!
//! The only state is when the last claim was deleted, and which deletions no object shows yet, so a restart changes nothing.
//!
//! Implements karpenter-core 4.6 (expiration).

use std::cell::OnceCell;
use std::collections::BTreeSet;

use jiff::Timestamp;

use crate::tracking::event_throttle::EventThrottle;
use crate::tracking::timer_queue::TimerQueue;
use crate::tracking::write_tracker::WriteTracker;
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::names::{ClaimName, ObjectRef};
use mortise_apis::values::after;
use mortise_engine::decider::{Decider, InboxMessage, Step, StepInput};
use mortise_engine::decider_id::DeciderId;
use mortise_engine::effect::Effect;
use mortise_engine::record::Verdict;
use mortise_planning::disruption::budgets::PoolBudgets;
use mortise_planning::pause;
use mortise_planning::reason::Reason;
use mortise_state::index::Changes;
use mortise_state::snapshot::Snapshot;

/// At most one claim expires in this time.
const PACE_MS: i64 = 1_000;
/// That a pause or a budget keeps a claim is said again after this.
const KEPT_EVERY_MS: i64 = 15 * 60_000;
/// A claim that waits for a budget is checked again after this: nodes come and go, and budgets have schedules.
const BUDGET_AGAIN_MS: i64 = 10_000;

/// The decider. See the module's documentation.
#[derive(Debug)]
pub struct ExpirationDecider {
    agenda: TimerQueue<ClaimName>,
    outbox: WriteTracker,
    not_before: Option<Timestamp>,
    /// Claims whose deletion was requested and that no object shows as deleted.
    going: BTreeSet<ClaimName>,
    told: EventThrottle,
}

/// The budgets of a step, counted when the first claim asks for them.
type StepBudgets = OnceCell<PoolBudgets>;

impl Default for ExpirationDecider {
    fn default() -> Self {
        Self::new()
    }
}

impl ExpirationDecider {
    /// A decider that knows nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            agenda: TimerQueue::new(),
            outbox: WriteTracker::new(),
            not_before: None,
            going: BTreeSet::new(),
            told: EventThrottle::default(),
        }
    }

    /// Deletes the claim if it is its time and the pace allows. Returns when to look again.
    fn look(
        &mut self,
        input: &StepInput<'_>,
        name: &ClaimName,
        budgets: &StepBudgets,
        step: &mut Step,
    ) -> Option<Timestamp> {
        let claim = input.snapshot.claims.get(name)?;
        let expires = claim
            .expires_at()
            .filter(|_| claim.metadata.deletion_timestamp.is_none())?;
        if expires > input.now {
            return Some(expires);
        }
        if let Some(at) = self.not_before.filter(|at| *at > input.now) {
            return Some(at);
        }
        if let Some(at) = self.paused(input, claim, step) {
            return Some(at);
        }
        if let Some(at) = self.over_budget(input, claim, budgets, step) {
            return Some(at);
        }
        let why = (DeciderId::Expiration, &Reason::Expired);
        if let Err(at) = self.outbox.end(input.now, claim, why, step) {
            return at;
        }
        self.not_before = Some(after(input.now, PACE_MS));
        self.going.insert(name.clone());
        let target = ObjectRef::Claim(name.clone());
        let node = input
            .snapshot
            .node_of_claim(name)
            .and_then(|state_node| state_node.node_name());
        let objects = std::iter::once(target).chain(node.map(ObjectRef::Node));
        let (by, verdict) = (DeciderId::Expiration, Verdict::Disrupted);
        step.announce(input, by, objects, verdict, vec![Reason::Expired]);
        None
    }
}

impl ExpirationDecider {
    /// When to look again at a claim whose node a pause protects.
    fn paused(
        &mut self,
        input: &StepInput<'_>,
        claim: &NodeClaim,
        step: &mut Step,
    ) -> Option<Timestamp> {
        let state_node = input.snapshot.node_of_claim(&claim.name())?;
        let pause = pause::of_node(input.snapshot, state_node, input.now)?;
        let again = pause::look_again(&pause, input.now);
        let target = ObjectRef::Claim(claim.name());
        let told = (input, DeciderId::Expiration);
        self.told.paused(told, target, (pause, KEPT_EVERY_MS), step);
        Some(again)
    }

    /// When to look again at a claim that a budget of its NodePool keeps; `None` if none does, or if the policy of the NodePool does
    /// not ask for budgets.
    fn over_budget(
        &mut self,
        input: &StepInput<'_>,
        claim: &NodeClaim,
        budgets: &StepBudgets,
        step: &mut Step,
    ) -> Option<Timestamp> {
        let pool = claim.pool()?;
        let policy = input.snapshot.policy_of(&pool)?;
        // A claim whose node does not work is disrupted already: it costs no budget.
        let is_counted = input
            .snapshot
            .node_of_claim(&claim.name())
            .is_some_and(|node| node.initialized && node.is_ready());
        if !policy.expires_within_budgets || !is_counted {
            return None;
        }
        let budgets = budgets.get_or_init(|| self.budgets(input.snapshot, input.now));
        let (allowed, remaining) = budgets.for_any_reason(&pool);
        if remaining > 0 {
            return None;
        }
        let target = ObjectRef::Claim(claim.name());
        if self
            .told
            .is_news(&target, "budget", &(), input.now, KEPT_EVERY_MS)
        {
            let reasons = vec![Reason::Budget { pool, allowed }, Reason::Expired];
            let by = DeciderId::Expiration;
            step.announce(input, by, [target], Verdict::Blocked, reasons);
        }
        Some(after(input.now, BUDGET_AGAIN_MS))
    }

    /// The budgets, with nodes that disruption and this decider are about to delete.
    fn budgets(&self, snapshot: &Snapshot, now: Timestamp) -> PoolBudgets {
        let mut taken = snapshot.fenced_nodes();
        let going = self.going.iter();
        let nodes = going.filter_map(|name| snapshot.node_of_claim(name));
        taken.extend(nodes.map(|node| node.key.clone()));
        PoolBudgets::new(snapshot, |key| taken.contains(key), now)
    }
}

impl Decider for ExpirationDecider {
    fn id(&self) -> DeciderId {
        DeciderId::Expiration
    }

    fn fresh(&self) -> Box<dyn Decider> {
        Box::new(Self::default())
    }

    fn is_interested(&self, changes: &Changes) -> bool {
        changes.everything || !changes.claims.is_empty()
    }

    fn step(&mut self, input: &StepInput<'_>, _stop: &dyn Fn() -> bool) -> Step {
        let mut step = Step::default();
        let mut todo: BTreeSet<ClaimName> = BTreeSet::new();
        for delivery in input.inbox {
            let InboxMessage::Outcome(outcome) = delivery else {
                continue;
            };
            self.outbox
                .answered(input.now, &outcome.effect, &outcome.result);
            if let Effect::Delete {
                target: ObjectRef::Claim(name),
                ..
            } = &*outcome.effect
            {
                if outcome.result.is_err() {
                    self.going.remove(name);
                }
                todo.insert(name.clone());
            }
        }
        self.going.retain(|name| {
            let claim = input.snapshot.claims.get(name);
            claim.is_some_and(|claim| claim.metadata.deletion_timestamp.is_none())
        });
        let budgets = StepBudgets::new();
        if input.changes.everything {
            todo.extend(input.snapshot.claims.iter().map(|(name, _)| name.clone()));
        }
        todo.extend(input.changes.claims.iter().cloned());
        // Oldest first, also of those that waited for a budget.
        let mut due = self.agenda.due(input.now);
        due.sort_by_key(|name| {
            let claim = input.snapshot.claims.get(name);
            claim.and_then(|claim| claim.expires_at())
        });
        let others: Vec<ClaimName> = todo
            .into_iter()
            .filter(|name| !due.contains(name))
            .collect();
        for name in due.iter().chain(&others) {
            let again = self.look(input, name, &budgets, &mut step);
            self.agenda.set(name, again);
        }
        self.told.sweep(input.now);
        self.outbox.sweep(input.now, input.snapshot);
        if let Some(at) = self.agenda.next() {
            step.wake_at(at);
        }
        step
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::tests::cluster;
    use mortise_sim::test_cluster::TestCluster;

    fn deleted(world: &TestCluster) -> Vec<&str> {
        let done = world.done.iter();
        done.filter_map(|each| each.strip_prefix("delete nodeclaim/"))
            .collect()
    }

    fn budgets(world: &mut TestCluster, budgets: &serde_json::Value) {
        let disruption = json!({ "spec": { "disruption": { "budgets": budgets, "consolidateAfter": "Never" } } });
        world.edit("NodePool/default", &disruption);
    }

    /// Claims that expire after an hour, the first first, each with a pod that only a person removes.
    fn held_up(claims: &[&str]) -> TestCluster {
        let mut world = cluster();
        for claim in claims {
            let node = world.up(claim, &json!({ "expireAfter": "1h" }));
            world.pass(1_000);
            let stays =
                json!({ "metadata": { "annotations": { "karpenter.sh/do-not-disrupt": "true" } } });
            world.pod(&format!("on-{claim}"), &node, &stays);
        }
        world.put(&json!({
            "kind": "NodePoolPolicy",
            "metadata": { "name": "team", "generation": 1, "creationTimestamp": "2025-01-01T00:00:00Z" },
            "spec": { "nodePools": ["default"], "disruption": { "expiration": { "withinBudgets": true } } },
        }));
        world
    }

    #[test]
    fn with_a_policy_expired_claims_wait_for_the_budgets_without_reasons() {
        let mut world = held_up(&["z-first", "a-second", "m-third"]);
        budgets(
            &mut world,
            &json!([{ "nodes": "0", "reasons": ["Drifted"] }, { "nodes": "1" }]),
        );
        world.pass(70 * 60_000);
        assert_eq!(deleted(&world), ["z-first"]);
        let said = world.event("DisruptionBlocked").unwrap();
        assert_eq!(said.message, "budget of pool default allows 1");
        world.restart();
        world.pass(5 * 60_000);
        assert_eq!(deleted(&world), ["z-first"]);
        world.erase("Pod/on-z-first");
        world.pass(60_000);
        assert_eq!(deleted(&world), ["z-first", "a-second"]);
        // A budget of nothing holds them all.
        budgets(&mut world, &json!([{ "nodes": "0" }]));
        world.erase("Pod/on-a-second");
        world.pass(30 * 60_000);
        assert_eq!(deleted(&world).len(), 2);
        budgets(&mut world, &json!([{ "nodes": "100%" }]));
        world.pass(15_000);
        assert_eq!(deleted(&world).len(), 3);
    }

    #[test]
    fn a_budget_with_a_schedule_is_a_window_for_expiry() {
        let mut world = held_up(&["a"]);
        // The budget of nothing holds from now on, for two hours.
        let now = world.now().to_zoned(jiff::tz::TimeZone::UTC);
        let schedule = format!("{} {} * * *", now.minute(), now.hour());
        budgets(
            &mut world,
            &json!([{ "nodes": "0", "schedule": schedule, "duration": "2h" }]),
        );
        world.pass(115 * 60_000);
        assert_eq!(deleted(&world), [""; 0]);
        world.pass(10 * 60_000);
        assert_eq!(deleted(&world), ["a"]);
    }

    #[test]
    fn claims_expire_one_a_second_oldest_first_also_after_a_restart() {
        let mut world = cluster();
        for claim in ["z-old", "b", "a"] {
            world.up(claim, &json!({ "expireAfter": "1h" }));
            world.pass(10);
        }
        world.up("unlimited", &json!({ "expireAfter": "Never" }));
        world.pod("web", "node-b", &json!({}));
        world.pass(30 * 60_000);
        world.restart();
        world.pass(30 * 60_000 - 1_000);
        assert_eq!(deleted(&world), [""; 0]);
        world.pass(1_100);
        assert_eq!(deleted(&world), ["z-old"]);
        world.pass(1_000);
        assert_eq!(deleted(&world).len(), 2);
        world.pass(60_000);
        assert_eq!(deleted(&world).len(), 3);
        assert!(world.has("NodeClaim/unlimited") && !world.has("NodeClaim/a"));
        assert_eq!(
            world.event("DisruptionTerminating").unwrap().message,
            "Disrupting NodeClaim: Expired"
        );
        let told: Vec<&str> = world
            .events()
            .filter(|event| event.reason == "Evicted")
            .map(|event| event.message.as_str())
            .collect();
        assert_eq!(
            told,
            ["Evicted pod: Forceful Termination; expiration: older than expireAfter"]
        );
    }
}
