//! Tags of instances that wait for the node: its name, and that of the claim.
//!
//! May: have the provider tag the instance of a claim whose node is known, and write on the claim that this is done.
//!
//! Must never: tag the instance of a claim that is being deleted, or one again of which the claim says that it is tagged;
//! keep a provider busy with tags: a limited number is under way at a time.
//!
//! What is done is stored in the claim's annotations, which are written after the tags: a crash between the two has the tags
//! checked again, and nothing changed that is there.
//!
//! Implements karpenter-aws 7 (tagging), without its pace of one instance a second.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::tracking::request_tracker::RequestTracker;
use crate::tracking::timer_queue::{TimerQueue, attempt};
use crate::tracking::write_tracker::WriteTracker;
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::names::{ClaimName, ObjectRef};
use mortise_engine::decider::{Decider, InboxMessage, Step, StepInput};
use mortise_engine::decider_id::DeciderId;
use mortise_engine::effect::{Effect, EffectOutput, Outcome};
use mortise_engine::record::Verdict;
use mortise_engine::write::ObjectWrite;
use mortise_planning::reason::Reason;
use mortise_planning::settings::Settings;
use mortise_state::index::Changes;

/// Back-off of a provider that fails, and of one that has nothing to say yet.
const RETRY_MS: (i64, i64) = (5_000, 5 * 60_000);
/// Instances that are tagged at once. Each waits for a slot of the provider's calls; those slots are the limit, not this.
const MAX_RUNNING: usize = 20;

/// The decider. See the module's documentation.
#[derive(Debug)]
pub struct InstanceTaggingDecider {
    agenda: TimerQueue<ClaimName>,
    outbox: WriteTracker,
    requests: RequestTracker<ClaimName>,
    running: BTreeSet<ClaimName>,
    /// Claims whose instance is to be tagged, in order of name.
    waiting: BTreeSet<ClaimName>,
    /// Annotations that the provider answered with and the claim does not show yet.
    tagged: BTreeMap<ClaimName, BTreeMap<String, String>>,
}

impl Default for InstanceTaggingDecider {
    fn default() -> Self {
        Self::new()
    }
}

/// Annotations that the claim has once its instance is tagged; `None` if nothing is to be done for it (yet).
fn lacking<'a>(settings: &'a Settings, claim: &NodeClaim) -> Option<&'a [&'static str]> {
    let node_name = claim.status.node_name.as_deref().unwrap_or_default();
    if claim.metadata.deletion_timestamp.is_some()
        || node_name.is_empty()
        || claim.provider_id().is_none()
    {
        return None;
    }
    let class = claim.node_class_key();
    let tagging = settings
        .tagging
        .iter()
        .find(|each| each.serves.covers(&class))?;
    let is_tagged = |key: &&str| claim.annotation(key).is_some();
    let is_done = tagging.annotations.iter().all(is_tagged);
    (!is_done).then_some(tagging.annotations)
}

impl InstanceTaggingDecider {
    /// A decider that knows nothing yet.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            agenda: TimerQueue::new(),
            outbox: WriteTracker::new(),
            requests: RequestTracker::new(RETRY_MS.0, RETRY_MS.1),
            running: BTreeSet::new(),
            waiting: BTreeSet::new(),
            tagged: BTreeMap::new(),
        }
    }

    /// Takes an outcome in. Returns the claim that it is about.
    fn outcome(
        &mut self,
        input: &StepInput<'_>,
        outcome: &Outcome,
        step: &mut Step,
    ) -> Option<ClaimName> {
        let now = input.now;
        match &*outcome.effect {
            Effect::TagInstance(claim) => {
                let name = claim.name();
                self.running.remove(&name);
                match &outcome.result {
                    Ok(EffectOutput::Tagged(annotations)) if !annotations.is_empty() => {
                        self.requests.succeeded(&name);
                        self.tagged.insert(name.clone(), annotations.clone());
                        let (by, subject) = (self.id(), ObjectRef::Claim(name.clone()));
                        let reasons = vec![Reason::InstanceTagged];
                        step.record(input, by, subject, Verdict::Observed, reasons);
                    }
                    // Nothing is known of the instance yet, or any more.
                    _ => drop(self.requests.failed(&name, now)),
                }
                Some(name)
            }
            Effect::Write(write) => {
                self.outbox.answered(now, &outcome.effect, &outcome.result);
                match &write.target {
                    ObjectRef::Claim(name) => Some(name.clone()),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// Writes what is done, or queues what is to do.
    fn look(&mut self, input: &StepInput<'_>, name: &ClaimName, step: &mut Step) {
        let claim = input.snapshot.claims.get(name);
        let Some(claim) = claim.filter(|claim| lacking(input.settings, claim).is_some()) else {
            self.forget(name);
            return;
        };
        if let Some(annotations) = self.tagged.get(name) {
            let write = ObjectWrite::set_tagged(claim, annotations.clone());
            if let Err(Some(at)) = self.outbox.send(input.now, write, step) {
                self.agenda.sooner(name, at);
            }
            return;
        }
        if self.running.contains(name) {
            return;
        }
        match self.requests.waits_until(name).filter(|at| *at > input.now) {
            Some(at) => self.agenda.sooner(name, at),
            None => drop(self.waiting.insert(name.clone())),
        }
    }

    fn forget(&mut self, name: &ClaimName) {
        self.agenda.set(name, None);
        self.waiting.remove(name);
        self.tagged.remove(name);
        self.requests.retain(|each| each != name);
    }

    /// Has as many instances tagged as may be under way.
    fn send(&mut self, input: &StepInput<'_>, step: &mut Step) {
        while self.running.len() < MAX_RUNNING
            && let Some(name) = self.waiting.pop_first()
        {
            let Some(claim) = input.snapshot.claims.get(&name) else {
                continue;
            };
            match attempt(&mut self.requests, &name, input.now) {
                Ok(()) => {
                    self.running.insert(name);
                    step.effect(Effect::TagInstance(Arc::clone(claim)));
                }
                Err(Some(at)) => self.agenda.sooner(&name, at),
                Err(None) => {}
            }
        }
    }
}

impl Decider for InstanceTaggingDecider {
    fn id(&self) -> DeciderId {
        DeciderId::InstanceTagging
    }

    fn fresh(&self) -> Box<dyn Decider> {
        Box::new(Self::default())
    }

    fn is_interested(&self, changes: &Changes) -> bool {
        changes.everything || !changes.claims.is_empty()
    }

    fn step(&mut self, input: &StepInput<'_>, _stop: &dyn Fn() -> bool) -> Step {
        let mut step = Step::default();
        let mut todo: BTreeSet<ClaimName> = self.agenda.due(input.now).into_iter().collect();
        for delivery in input.inbox {
            if let InboxMessage::Outcome(outcome) = delivery {
                todo.extend(self.outcome(input, outcome, &mut step));
            }
        }
        if input.changes.everything {
            todo.extend(input.snapshot.claims.iter().map(|(name, _)| name.clone()));
        } else {
            todo.extend(input.changes.claims.iter().cloned());
        }
        for name in &todo {
            self.look(input, name, &mut step);
        }
        self.send(input, &mut step);
        if let Some(at) = self.agenda.next() {
            step.wake_at(at);
        }
        step
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::tests::{cluster, cluster_with};
    use mortise_engine::record::Verdict;
    use mortise_planning::settings::{InstanceTagging, Settings};
    use mortise_sim::TAGGED;
    use mortise_sim::test_cluster::{TestCluster, served};

    fn settings() -> Settings {
        Settings {
            tagging: vec![InstanceTagging {
                serves: served(),
                annotations: &[TAGGED],
            }],
            ..Settings::default()
        }
    }

    fn taggings(world: &TestCluster) -> usize {
        let done = world.done.iter();
        done.filter(|each| each.starts_with("tag_instance")).count()
    }

    #[test]
    fn an_instance_is_tagged_once_its_node_is_known_and_never_again() {
        let mut world = cluster_with(settings());
        world.claim("c", &json!({}));
        world.settle();
        assert_eq!(
            taggings(&world),
            0,
            "there is no node yet: {:?}",
            world.done
        );
        let node = world.up("d", &json!({}));
        world.settle();
        assert_eq!(taggings(&world), 1, "{:?}", world.done);
        let names: Vec<_> = world
            .instances()
            .iter()
            .map(|each| each.tagged_node.clone())
            .collect();
        assert!(names.contains(&Some(node.to_string())), "{names:?}");
        let observed = |world: &TestCluster| {
            let claims = world.verdicts("nodeclaim/d").into_iter();
            claims.filter(|each| *each == Verdict::Observed).count()
        };
        assert_eq!(observed(&world), 1, "the decision log says so");
        world.pass(60 * 60_000);
        world.restart();
        world.pass(60 * 60_000);
        assert_eq!(taggings(&world), 1, "{:?}", world.done);
    }

    #[test]
    fn claims_that_go_and_clouds_that_tag_nothing_are_left_alone() {
        let mut world = cluster();
        world.up("c", &json!({}));
        world.pass(60_000);
        assert_eq!(taggings(&world), 0);
        let mut world = cluster_with(settings());
        world.claim("c", &json!({}));
        world.settle();
        world.delete("NodeClaim/c");
        world.edit("NodeClaim/c", &json!({ "status": { "nodeName": "n" } }));
        world.pass(60_000);
        assert_eq!(taggings(&world), 0, "{:?}", world.done);
    }

    #[test]
    fn a_provider_that_fails_is_asked_again_later() {
        let mut world = cluster_with(settings());
        world.answers.tag_errors = 2;
        world.up("c", &json!({}));
        world.pass(1_000);
        assert_eq!(taggings(&world), 1, "{:?}", world.done);
        world.pass(30_000);
        assert_eq!(taggings(&world), 3, "{:?}", world.done);
        assert!(
            world
                .instances()
                .iter()
                .all(|each| each.tagged_node.is_some())
        );
    }
}
