//! Claims without machines and machines without claims.
//!
//! May: list the machines every two minutes; delete a registered claim whose machine is gone and whose node is gone or
//! not ready; end a machine that has no claim.
//!
//! Must never: conclude anything from the silence of a provider that could not be asked; take a machine that is younger
//! than 30 s for an orphan, nor one for which a launch may be under way; touch machines whose provider it cannot name.
//!
//! A provider's machines are told from others by their provider ids, which begin with the provider's name
//! (`aws:///...`, `kwok://...`).
//!
//! Implements karpenter-core 4.6 (garbage collection) and karpenter-aws 7 (instances without claims).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use super::agenda::attempt;
use super::outbox::Outbox;
use super::told::Told;
use super::writes;
use super::{Decider, DeciderId, Delivery, InFlight, Step, StepInput, after, since};
use crate::cloud::Instance;
use crate::effect::{Done, Effect, ObjectRef, Outcome};
use crate::index::Changes;
use crate::names::{ClaimName, NodeClassKey, ProviderId};
use crate::record::{Reason, Verdict};
use crate::snapshot::Snapshot;

/// A machine younger than this may belong to a claim that is not visible yet.
const ORPHAN_AGE_MS: i64 = 30_000;

/// The decider. See the module's documentation.
#[derive(Debug)]
pub struct GarbageCollection {
    next: Option<Timestamp>,
    list: InFlight<()>,
    outbox: Outbox,
    orphans: InFlight<ProviderId>,
    /// When machines without a creation time were first seen without a claim.
    first_seen: BTreeMap<ProviderId, Timestamp>,
    /// A node class of each provider, learned from claims: it tells the shell whom to ask.
    classes: BTreeMap<Arc<str>, NodeClassKey>,
    told: Told,
}

impl Default for GarbageCollection {
    fn default() -> Self {
        Self::new()
    }
}

impl GarbageCollection {
    /// A decider that knows nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            next: None,
            list: InFlight::new(5_000, 60_000),
            outbox: Outbox::new(),
            orphans: InFlight::new(1_000, 60_000),
            first_seen: BTreeMap::new(),
            classes: BTreeMap::new(),
            told: Told::default(),
        }
    }

    fn outcome(&mut self, input: &StepInput<'_>, outcome: &Outcome, step: &mut Step) {
        let result = &outcome.result;
        match &*outcome.effect {
            Effect::ListInstances => match result {
                Ok(Done::Instances(lists)) => {
                    self.list.succeeded(&());
                    self.next = Some(after(input.now, input.settings.garbage_collection_ms));
                    self.collect(input, lists, step);
                }
                _ => self.next = Some(self.list.failed(&(), input.now)),
            },
            // A deletion that failed is tried again after the next list: nothing is in a hurry here.
            Effect::Delete { .. } => drop(self.outbox.answered(input.now, &outcome.effect, result)),
            Effect::Terminate { provider_id, .. } => match result {
                Ok(_) => self.orphans.succeeded(provider_id),
                Err(_) => drop(self.orphans.failed(provider_id, input.now)),
            },
            _ => {}
        }
    }

    fn collect(
        &mut self,
        input: &StepInput<'_>,
        lists: &[(Arc<str>, Vec<Instance>)],
        step: &mut Step,
    ) {
        for (provider, instances) in lists {
            self.learn(input.snapshot, provider, lists.len());
            self.claims_without_machine(input, provider, instances, step);
            self.machines_without_claim(input, provider, instances, step);
        }
        let there: BTreeSet<&ProviderId> = lists
            .iter()
            .flat_map(|(_, instances)| instances)
            .map(|instance| &instance.provider_id)
            .collect();
        self.first_seen.retain(|id, _| there.contains(id));
        self.orphans.retain(|id| there.contains(id));
        self.outbox.sweep(input.now, input.snapshot);
        self.told.sweep(input.now);
    }

    /// Finds a node class of the provider: from a claim that has one of its machines, or the only kind there is.
    fn learn(&mut self, snapshot: &Snapshot, provider: &Arc<str>, providers: usize) {
        let prefix = prefix(provider);
        let claims = snapshot.claims.values().filter(|claim| {
            claim
                .provider_id()
                .is_some_and(|id| id.starts_with(&prefix))
        });
        let learned = claims.map(|claim| claim.node_class_key()).min();
        let kinds: BTreeSet<_> = snapshot
            .node_classes
            .keys()
            .map(|key| (&key.group, &key.kind))
            .collect();
        let only = || {
            snapshot
                .node_classes
                .keys()
                .next()
                .filter(|_| kinds.len() == 1 && providers == 1)
                .cloned()
        };
        if let Some(class) = learned.or_else(only) {
            self.classes.insert(Arc::clone(provider), class);
        }
    }

    fn claims_without_machine(
        &mut self,
        input: &StepInput<'_>,
        provider: &str,
        instances: &[Instance],
        step: &mut Step,
    ) {
        let prefix = prefix(provider);
        let there: BTreeSet<&str> = instances
            .iter()
            .filter(|each| !each.terminating)
            .map(|each| &*each.provider_id)
            .collect();
        for (name, claim) in input.snapshot.claims.sorted() {
            let Some(id) = claim
                .provider_id()
                .filter(|id| id.starts_with(&prefix) && !there.contains(id))
            else {
                continue;
            };
            let ready = input
                .snapshot
                .nodes
                .get(id)
                .is_some_and(|machine| machine.is_ready());
            if claim.metadata.deletion_timestamp.is_some() || !claim.is_true("Registered") || ready
            {
                continue;
            }
            let delete = writes::delete_claim(claim);
            if self.outbox.send(input.now, delete, step).is_err() {
                continue;
            }
            let target = ObjectRef::Claim(name.clone());
            let reasons = vec![Reason::Note {
                text: format!("garbage_collected: machine {id} is gone and its node is not ready"),
            }];
            step.record(
                input,
                DeciderId::GarbageCollection,
                target,
                Verdict::Disrupted,
                reasons,
            );
        }
    }

    fn machines_without_claim(
        &mut self,
        input: &StepInput<'_>,
        provider: &Arc<str>,
        instances: &[Instance],
        step: &mut Step,
    ) {
        let snapshot = input.snapshot;
        let known: BTreeSet<&str> = snapshot
            .claims
            .values()
            .filter_map(|claim| claim.provider_id())
            .collect();
        let launching = snapshot
            .claims
            .values()
            .any(|claim| claim.provider_id().is_none());
        for instance in instances
            .iter()
            .filter(|each| !each.terminating && !known.contains(&*each.provider_id))
        {
            let id = &instance.provider_id;
            let may_be_launching = match &instance.claim {
                Some(claim) => snapshot
                    .claims
                    .get(claim.as_str())
                    .is_some_and(|claim| claim.provider_id().is_none()),
                None => launching,
            };
            let seen = instance
                .created
                .unwrap_or_else(|| *self.first_seen.entry(id.clone()).or_insert(input.now));
            if may_be_launching || since(input.now, seen) < ORPHAN_AGE_MS {
                continue;
            }
            let claim = ClaimName::from(instance.claim.as_deref().unwrap_or_default());
            let subject = ObjectRef::Claim(claim.clone());
            let Some(class) = self.classes.get(provider) else {
                let text = format!(
                    "machine {id} has no claim, and no node class tells how to reach provider {provider}"
                );
                if self
                    .told
                    .is_news(&subject, "orphan", &text, input.now, i64::MAX)
                {
                    step.record(
                        input,
                        DeciderId::GarbageCollection,
                        subject,
                        Verdict::Refused,
                        vec![Reason::Note { text }],
                    );
                }
                continue;
            };
            if attempt(&mut self.orphans, id, input.now).is_err() {
                continue;
            }
            let text = format!("garbage_collected: machine {id} has no claim");
            step.record(
                input,
                DeciderId::GarbageCollection,
                subject,
                Verdict::Removed,
                vec![Reason::Note { text }],
            );
            step.effect(Effect::Terminate {
                class: class.clone(),
                provider_id: id.clone(),
                claim,
            });
        }
    }
}

fn prefix(provider: &str) -> String {
    format!("{provider}://")
}

impl Decider for GarbageCollection {
    fn id(&self) -> DeciderId {
        DeciderId::GarbageCollection
    }

    fn is_interested(&self, _changes: &Changes) -> bool {
        false // time alone wakes it
    }

    fn step(&mut self, input: &StepInput<'_>, _stop: &dyn Fn() -> bool) -> Step {
        let mut step = Step::default();
        for delivery in input.inbox {
            if let Delivery::Outcome(outcome) = delivery {
                self.outcome(input, outcome, &mut step);
            }
        }
        // The first list comes one period after the start, when claims that were left over have been launched.
        let next = *self
            .next
            .get_or_insert_with(|| after(input.now, input.settings.garbage_collection_ms));
        if next > input.now {
            step.wake_at(next);
        } else {
            match attempt(&mut self.list, &(), input.now) {
                Ok(()) => step.effect(Effect::ListInstances),
                Err(Some(at)) => step.wake_at(at),
                Err(None) => {}
            }
        }
        step
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::deciders::testing::World;
    use crate::record::Verdict;

    #[test]
    fn a_claim_whose_machine_is_gone_goes_once_its_node_is_not_ready() {
        let mut world = World::new();
        let node = world.up("c", &json!({}));
        world.claim("young", &json!({}));
        world.settle();
        world.machines.clear();
        world.pass(4 * 60_000);
        assert!(
            world.has("NodeClaim/c"),
            "a ready node proves the list wrong"
        );
        assert!(
            world.has("NodeClaim/young"),
            "not registered: liveness decides"
        );
        world.edit(
            &format!("Node/{node}"),
            &json!({ "status": { "conditions": [{ "type": "Ready", "status": "Unknown" }] } }),
        );
        world.pass(2 * 60_000 + 20_000);
        assert!(!world.has("NodeClaim/c"), "{:?}", world.done);
        assert!(world.verdicts("nodeclaim/c").contains(&Verdict::Disrupted));
    }

    #[test]
    fn a_machine_without_claim_is_ended() {
        let mut world = World::new();
        world.up("kept", &json!({}));
        world.claim("lost", &json!({}));
        world.settle();
        assert_eq!(world.machines.len(), 2);
        // Somebody removes the finalizer by force.
        world.edit(
            "NodeClaim/lost",
            &json!({ "metadata": { "finalizers": null } }),
        );
        world.delete("NodeClaim/lost");
        world.settle();
        assert!(!world.has("NodeClaim/lost"));
        world.pass(119_000);
        assert_eq!(world.machines.len(), 2);
        world.pass(2_000);
        assert!(
            world
                .machines
                .values()
                .any(|machine| machine.claim == "kept")
        );
        world.pass(2 * 60_000);
        assert_eq!(
            world
                .machines
                .values()
                .map(|machine| machine.claim.as_str())
                .collect::<Vec<_>>(),
            ["kept"]
        );
        assert!(world.done.contains(&"terminate nodeclaim/lost".to_owned()));
    }
}
