//! Claims without instances and instances without claims.
//!
//! May: list the instances every two minutes; ask for the instance of a claim that the list leaves out; delete a
//! registered claim whose instance is gone and whose node is gone or not ready; terminate an instance that has no
//! claim, and delete its node; correct the labels of what left its capacity reservation.
//!
//! Must never: conclude anything from the silence of a provider that could not be asked; take an instance for gone
//! because a list leaves it out; take an instance that is younger than 30 s for an orphan, nor one for which a launch
//! may be under way, nor one whose node is ready, nor one whose claim may be among those that cannot be read; conclude
//! anything while a watch of claims or nodes is old.
//!
//! A claim's instance is searched in the list of the provider that serves the claim's node class, and nowhere else. The
//! list is cheap and may be wrong (it is filtered by tags, and clouds show tags late), so it only says whom to ask for.
//!
//! Implements karpenter-core 4.6 (garbage collection) and karpenter-aws 7 (instances without claims, capacity types).

mod capacity_type;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use crate::tracking::request_tracker::RequestTracker;
use crate::tracking::timer_queue::attempt;
use crate::tracking::write_tracker::WriteTracker;
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::labels;
use mortise_apis::names::{ClaimName, ObjectRef, ProviderId};
use mortise_apis::node_class::served::ServedNodeClasses;
use mortise_apis::values::{after, since};
use mortise_cloudprovider::Instance;
use mortise_engine::decider::{Decider, InboxMessage, Step, StepInput};
use mortise_engine::decider_id::DeciderId;
use mortise_engine::effect::{Effect, EffectOutput, InstanceListing, Outcome, ProviderRef};
use mortise_engine::freshness;
use mortise_engine::record::Verdict;
use mortise_planning::reason::Reason;
use mortise_state::index::Changes;
use mortise_state::resource_kinds::ObjectKey;
use mortise_state::snapshot::Snapshot;

/// An instance younger than this may belong to a claim that is not visible yet.
const ORPHAN_AGE_MS: i64 = 30_000;

/// The decider. See the module's documentation.
#[derive(Debug)]
pub struct GarbageCollectionDecider {
    next: Option<Timestamp>,
    list: RequestTracker<()>,
    finds: RequestTracker<ProviderId>,
    outbox: WriteTracker,
    orphans: RequestTracker<ProviderId>,
    /// When instances without a creation time were first seen without a claim.
    first_seen: BTreeMap<ProviderId, Timestamp>,
}

impl Default for GarbageCollectionDecider {
    fn default() -> Self {
        Self::new()
    }
}

impl GarbageCollectionDecider {
    /// A decider that knows nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            next: None,
            list: RequestTracker::new(5_000, 60_000),
            finds: RequestTracker::new(5_000, 60_000),
            outbox: WriteTracker::new(),
            orphans: RequestTracker::new(1_000, 60_000),
            first_seen: BTreeMap::new(),
        }
    }

    fn outcome(&mut self, input: &StepInput<'_>, outcome: &Outcome, step: &mut Step) {
        let result = &outcome.result;
        match &*outcome.effect {
            Effect::ListInstances => match result {
                Ok(EffectOutput::Instances(listings)) => {
                    self.list.succeeded(&());
                    self.next = Some(after(
                        input.now,
                        input.settings.garbage_collection_interval_ms,
                    ));
                    self.collect(input, listings, step);
                }
                _ => self.next = Some(self.list.failed(&(), input.now)),
            },
            Effect::FindInstance { provider_id, .. } => match result {
                Ok(EffectOutput::Found(found)) => {
                    self.finds.succeeded(provider_id);
                    if found.as_ref().is_none_or(|found| found.terminating) {
                        self.instance_gone(input, provider_id, step);
                    }
                }
                // It is asked for again after the next list.
                _ => drop(self.finds.failed(provider_id, input.now)),
            },
            // A deletion that failed is tried again after the next list: nothing is in a hurry here.
            Effect::Delete { .. } | Effect::Write(_) => {
                self.outbox.answered(input.now, &outcome.effect, result);
            }
            Effect::Terminate { provider_id, .. } => match result {
                Ok(_) => self.orphans.succeeded(provider_id),
                Err(_) => drop(self.orphans.failed(provider_id, input.now)),
            },
            _ => {}
        }
    }

    fn collect(&mut self, input: &StepInput<'_>, listings: &[InstanceListing], step: &mut Step) {
        if input.held_by(DeciderId::GarbageCollection).is_some() {
            // What seems to have no claim may have one that the watch has not shown yet.
            self.next = Some(after(input.now, freshness::RECHECK_MS));
            return;
        }
        let mut there: BTreeSet<&ProviderId> = BTreeSet::new();
        for listing in listings {
            // Silence says nothing about any instance.
            let Ok(instances) = &listing.instances else {
                continue;
            };
            self.ask_for_missing(input, &listing.serves, instances, step);
            self.instances_without_claim(input, listing, instances, step);
            self.correct_capacity_types(input, listing, instances, step);
            there.extend(instances.iter().map(|instance| &instance.provider_id));
        }
        if listings.iter().all(|listing| listing.instances.is_ok()) {
            self.first_seen.retain(|id, _| there.contains(id));
            self.orphans.retain(|id| there.contains(id));
            self.finds.retain(|id| !there.contains(id));
        }
        self.outbox.sweep(input.now, input.snapshot);
    }

    /// Asks by id for the instances of claims that a list leaves out.
    fn ask_for_missing(
        &mut self,
        input: &StepInput<'_>,
        serves: &ServedNodeClasses,
        instances: &[Instance],
        step: &mut Step,
    ) {
        let there: BTreeSet<&str> = instances
            .iter()
            .filter(|each| !each.terminating)
            .map(|each| &*each.provider_id)
            .collect();
        for (_, claim) in input.snapshot.claims.sorted() {
            let class = claim.node_class_key();
            let Some(id) = claim
                .provider_id()
                .filter(|id| !there.contains(id) && serves.covers(&class))
            else {
                continue;
            };
            let id = ProviderId::from(id);
            if may_end(input, claim, &id) && attempt(&mut self.finds, &id, input.now).is_ok() {
                step.effect(Effect::FindInstance {
                    provider: ProviderRef::OfClass(class),
                    provider_id: id,
                });
            }
        }
    }

    /// The cloud said of this instance that it is gone, or about to be.
    fn instance_gone(&mut self, input: &StepInput<'_>, id: &ProviderId, step: &mut Step) {
        let state_node = input.snapshot.nodes.get(&**id);
        let Some(claim) = state_node.and_then(|state_node| state_node.claim.as_ref()) else {
            return;
        };
        if claim.provider_id() != Some(&**id) || !may_end(input, claim, id) {
            return;
        }
        let gone = Reason::InstanceGone {
            instance: id.clone(),
        };
        let why = (DeciderId::GarbageCollection, &gone);
        if self.outbox.end(input.now, claim, why, step).is_ok() {
            step.record(
                input,
                DeciderId::GarbageCollection,
                ObjectRef::Claim(claim.name()),
                Verdict::Disrupted,
                vec![gone],
            );
        }
    }

    fn instances_without_claim(
        &mut self,
        input: &StepInput<'_>,
        listing: &InstanceListing,
        instances: &[Instance],
        step: &mut Step,
    ) {
        let snapshot = input.snapshot;
        let known: BTreeSet<&str> = snapshot
            .claims
            .values()
            .filter_map(|claim| claim.provider_id())
            .collect();
        let launching = snapshot.claims.values().any(|claim| {
            claim.provider_id().is_none() && listing.serves.covers(&claim.node_class_key())
        });
        for instance in instances
            .iter()
            .filter(|each| !each.terminating && !known.contains(&*each.provider_id))
        {
            let id = &instance.provider_id;
            let may_be_launching = match (&instance.claim, &instance.batch) {
                (Some(claim), _) => snapshot
                    .claims
                    .get(claim.as_str())
                    .is_some_and(|claim| claim.provider_id().is_none()),
                (None, Some(token)) => is_launching(snapshot, token),
                (None, None) => launching,
            };
            let seen = instance
                .created
                .unwrap_or_else(|| *self.first_seen.entry(id.clone()).or_insert(input.now));
            if may_be_launching || since(input.now, seen) < ORPHAN_AGE_MS {
                continue;
            }
            if let Some(why) = spared(input, instance) {
                step.record(
                    input,
                    DeciderId::GarbageCollection,
                    ObjectRef::Claim(instance.claim.as_deref().unwrap_or_default().into()),
                    Verdict::Blocked,
                    vec![
                        Reason::NoClaim {
                            instance: id.clone(),
                        },
                        why,
                    ],
                );
                continue;
            }
            if attempt(&mut self.orphans, id, input.now).is_err() {
                continue;
            }
            let claim = ClaimName::from(instance.claim.as_deref().unwrap_or_default());
            step.record(
                input,
                DeciderId::GarbageCollection,
                ObjectRef::Claim(claim.clone()),
                Verdict::Removed,
                vec![Reason::NoClaim {
                    instance: id.clone(),
                }],
            );
            step.effect(Effect::Terminate {
                provider: ProviderRef::Named(Arc::clone(&listing.provider)),
                provider_id: id.clone(),
                claim,
            });
            let state_node = snapshot.nodes.get(&**id);
            let node = state_node.and_then(|state_node| state_node.node.as_deref());
            if let Some(node) = node.filter(|node| node.metadata.deletion_timestamp.is_none()) {
                // Pods on it are gone with the instance. One that must wait goes after the next list, or with its instance.
                self.outbox
                    .send(input.now, Effect::delete_node(node), step)
                    .ok();
            }
        }
    }
}

/// A claim whose instance is gone may be ended: it is registered, stays so far, and no node that is ready proves that
/// its instance is there, nor is what is known of them old.
fn may_end(input: &StepInput<'_>, claim: &NodeClaim, id: &ProviderId) -> bool {
    input.held_by(DeciderId::GarbageCollection).is_none()
        && claim.metadata.deletion_timestamp.is_none()
        && claim.is_true("Registered")
        && !is_ready(input, id)
}

/// A claim of the batch has no instance yet.
fn is_launching(snapshot: &Snapshot, token: &str) -> bool {
    let mut claims = snapshot.claims.values();
    claims.any(|claim| {
        claim.provider_id().is_none() && claim.annotation(labels::LAUNCH_BATCH) == Some(token)
    })
}

fn is_ready(input: &StepInput<'_>, id: &ProviderId) -> bool {
    let state_node = input.snapshot.nodes.get(&**id);
    state_node.is_some_and(|state_node| state_node.is_ready())
}

/// Why an instance that seems to have no claim is not terminated all the same.
fn spared(input: &StepInput<'_>, instance: &Instance) -> Option<Reason> {
    if is_ready(input, &instance.provider_id) {
        return Some(Reason::NodeIsReady);
    }
    let unreadable = &input.snapshot.unreadable;
    let of_claims = unreadable.iter().filter_map(|key| match key {
        ObjectKey::Claim(name) => Some(name),
        _ => None,
    });
    // An instance that does not remember its claim may belong to any of them.
    let may_be = |name: &&ClaimName| {
        let own = instance.claim.as_deref();
        own.is_none_or(|own| own == name.as_str())
    };
    let claim = of_claims.into_iter().find(may_be)?;
    Some(Reason::Unreadable {
        object: ObjectRef::Claim(claim.clone()),
    })
}

impl Decider for GarbageCollectionDecider {
    fn id(&self) -> DeciderId {
        DeciderId::GarbageCollection
    }

    fn fresh(&self) -> Box<dyn Decider> {
        Box::new(Self::default())
    }

    fn is_interested(&self, _changes: &Changes) -> bool {
        false // time alone wakes it
    }

    fn step(&mut self, input: &StepInput<'_>, _stop: &dyn Fn() -> bool) -> Step {
        let mut step = Step::default();
        for delivery in input.inbox {
            if let InboxMessage::Outcome(outcome) = delivery {
                self.outcome(input, outcome, &mut step);
            }
        }
        // The first list comes one period after the start, when claims that were left over have been launched.
        let next = *self
            .next
            .get_or_insert_with(|| after(input.now, input.settings.garbage_collection_interval_ms));
        if next > input.now {
            step.wake_at(next);
        } else if input.held_by(DeciderId::GarbageCollection).is_some() {
            step.wake_in(input.now, freshness::RECHECK_MS);
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

    use crate::tests::cluster;
    use mortise_engine::freshness::WatchState;
    use mortise_engine::record::Verdict;
    use mortise_planning::reason::Reason;
    use mortise_state::resource_kinds::{ObjectEvent, ObjectKey, ObjectKind};

    #[test]
    fn a_claim_whose_instance_is_gone_goes_once_its_node_is_not_ready() {
        let mut world = cluster();
        let node = world.up("c", &json!({}));
        world.claim("young", &json!({}));
        world.settle();
        world.lose_instances();
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
    fn a_list_that_leaves_an_instance_out_ends_nothing() {
        let mut world = cluster();
        let node = world.up("c", &json!({}));
        world.edit(
            &format!("Node/{node}"),
            &json!({ "status": { "conditions": [{ "type": "Ready", "status": "Unknown" }] } }),
        );
        world.unlist_instances();
        world.pass(10 * 60_000);
        assert!(world.has("NodeClaim/c"), "{:?}", world.done);
        let asked = world.done.iter().filter(|each| each.starts_with("find"));
        assert!(asked.count() >= 4, "after every list: {:?}", world.done);
        world.lose_instances();
        world.pass(2 * 60_000 + 20_000);
        assert!(!world.has("NodeClaim/c"), "{:?}", world.done);
    }

    #[test]
    fn nothing_is_collected_while_a_watch_of_claims_or_nodes_is_old() {
        for kind in [ObjectKind::Claim, ObjectKind::Node] {
            let mut world = cluster();
            let node = world.up("c", &json!({}));
            world.edit(
                &format!("Node/{node}"),
                &json!({ "status": { "conditions": [{ "type": "Ready", "status": "Unknown" }] } }),
            );
            world.lose_instances();
            world.report_watch(kind.clone(), WatchState::Stands);
            world.report_watch(kind.clone(), WatchState::Broke);
            world.pass(10 * 60_000);
            assert!(world.has("NodeClaim/c"), "{kind}: {:?}", world.done);
            world.report_watch(kind.clone(), WatchState::Stands);
            world.report_watch(kind.clone(), WatchState::Bookmark(Some(u64::MAX)));
            world.pass(30_000);
            assert!(!world.has("NodeClaim/c"), "{kind}: {:?}", world.done);
        }
    }

    #[test]
    fn an_instance_without_claim_stays_while_its_node_is_ready() {
        let mut world = cluster();
        let node = world.up("lost", &json!({}));
        let finalizers = json!({ "metadata": { "finalizers": null } });
        world.edit("NodeClaim/lost", &finalizers);
        world.delete("NodeClaim/lost");
        world.settle();
        assert!(!world.has("NodeClaim/lost"));
        world.pass(10 * 60_000);
        assert_eq!(world.instances().len(), 1, "{:?}", world.done);
        let told = world.records.iter().filter(|record| {
            record.verdict == Verdict::Blocked && record.reasons.contains(&Reason::NodeIsReady)
        });
        assert!(told.count() >= 4, "{:?}", world.records);
        world.edit(
            &format!("Node/{node}"),
            &json!({ "status": { "conditions": [{ "type": "Ready", "status": "Unknown" }] } }),
        );
        world.pass(5 * 60_000);
        assert_eq!(world.instances().len(), 0, "{:?}", world.done);
    }

    #[test]
    fn an_instance_stays_while_its_claim_may_be_one_that_cannot_be_read() {
        let mut world = cluster();
        world.claim("lost", &json!({}));
        world.settle();
        let finalizers = json!({ "metadata": { "finalizers": null } });
        world.edit("NodeClaim/lost", &finalizers);
        world.delete("NodeClaim/lost");
        world.settle();
        assert_eq!(world.instances().len(), 1);
        let key = || ObjectKey::Claim("lost".into());
        world.deliver_event(ObjectEvent::Unreadable(key()));
        world.pass(10 * 60_000);
        assert_eq!(world.instances().len(), 1, "{:?}", world.done);
        world.deliver_event(ObjectEvent::Deleted(key(), None));
        world.pass(5 * 60_000);
        assert_eq!(world.instances().len(), 0, "{:?}", world.done);
    }

    #[test]
    fn a_list_that_failed_says_nothing_about_instances() {
        let mut world = cluster();
        let node = world.up("c", &json!({}));
        world.edit(
            &format!("Node/{node}"),
            &json!({ "status": { "conditions": [{ "type": "Ready", "status": "Unknown" }] } }),
        );
        world.lose_instances();
        world.answers.mute = true;
        world.pass(10 * 60_000);
        assert!(world.has("NodeClaim/c"), "{:?}", world.done);
        assert!(world.done.iter().any(|each| each.starts_with("list")));
        world.answers.mute = false;
        world.pass(2 * 60_000 + 20_000);
        assert!(!world.has("NodeClaim/c"), "{:?}", world.done);
    }

    #[test]
    fn an_instance_without_claim_is_ended() {
        let mut world = cluster();
        world.up("kept", &json!({}));
        world.claim("lost", &json!({}));
        world.settle();
        assert_eq!(world.instances().len(), 2);
        // A user removes the finalizer by force.
        world.edit(
            "NodeClaim/lost",
            &json!({ "metadata": { "finalizers": null } }),
        );
        world.delete("NodeClaim/lost");
        world.settle();
        assert!(!world.has("NodeClaim/lost"));
        world.pass(119_000);
        assert_eq!(world.instances().len(), 2);
        world.pass(2_000);
        assert!(
            world
                .instances()
                .iter()
                .any(|instance| instance.claim == "kept")
        );
        world.pass(2 * 60_000);
        assert_eq!(
            world
                .instances()
                .iter()
                .map(|instance| instance.claim.as_str())
                .collect::<Vec<_>>(),
            ["kept"]
        );
        assert!(world.done.contains(&"terminate nodeclaim/lost".to_owned()));
    }
}
