//! Claims that are older than their `expireAfter`.
//!
//! May: delete a claim at its creation time plus `expireAfter`, whatever budgets and protecting annotations say; the
//! drain that follows honours disruption budgets of pods and protected pods until the termination grace period ends.
//!
//! Must never: delete more than one claim a second, act on a node that a pause protects, or touch a claim whose `expireAfter` is `Never` or cannot be read.
//!
//! So that a fleet that was made together does not go together, each claim is born with an `expireAfter` of its own
//! ([`mortise_planning::settings::Settings::expiration_jitter_percent`]).
//!
//! The only state is when the last claim was deleted, so a restart changes nothing.
//!
//! Implements karpenter-core 4.6 (expiration).

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
use mortise_planning::pause;
use mortise_planning::reason::Reason;
use mortise_state::index::Changes;

/// At most one claim expires in this time.
const PACE_MS: i64 = 1_000;
/// That a pause keeps a claim is said again after this.
const PAUSED_EVERY_MS: i64 = 15 * 60_000;

/// The decider. See the module's documentation.
#[derive(Debug)]
pub struct ExpirationDecider {
    agenda: TimerQueue<ClaimName>,
    outbox: WriteTracker,
    not_before: Option<Timestamp>,
    told: EventThrottle,
}

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
            told: EventThrottle::default(),
        }
    }

    /// Deletes the claim if it is its time and the pace allows. Returns when to look again.
    fn look(
        &mut self,
        input: &StepInput<'_>,
        name: &ClaimName,
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
        let why = (DeciderId::Expiration, &Reason::Expired);
        if let Err(at) = self.outbox.end(input.now, claim, why, step) {
            return at;
        }
        self.not_before = Some(after(input.now, PACE_MS));
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
        self.told
            .paused(told, target, (pause, PAUSED_EVERY_MS), step);
        Some(again)
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
                todo.insert(name.clone());
            }
        }
        if input.changes.everything {
            todo.extend(input.snapshot.claims.iter().map(|(name, _)| name.clone()));
        }
        todo.extend(input.changes.claims.iter().cloned());
        // Oldest first: what the agenda gives is in order of time.
        let due = self.agenda.due(input.now);
        let others: Vec<ClaimName> = todo
            .into_iter()
            .filter(|name| !due.contains(name))
            .collect();
        for name in due.iter().chain(&others) {
            let again = self.look(input, name, &mut step);
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
        let deleted = |world: &TestCluster| {
            world
                .done
                .iter()
                .filter(|each| each.starts_with("delete nodeclaim/"))
                .cloned()
                .collect::<Vec<_>>()
        };
        assert_eq!(deleted(&world), [""; 0]);
        world.pass(1_100);
        assert_eq!(deleted(&world), ["delete nodeclaim/z-old"]);
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
