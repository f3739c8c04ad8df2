//! Claims and nodes that go: taint, drain, volumes, instance, finalizers.
//!
//! May: delete the claim of a node that is being deleted and the node of a claim that is; write the termination time;
//! taint the node; evict its pods group by group, or restart the Deployment of those that ask for it, and delete them
//! when the termination grace period ends; end the
//! instance; write the conditions `Drained`, `VolumesDetached`, `InstanceTerminating`; remove our finalizer from both
//! objects.
//!
//! Must never: begin a termination (without a deleted object nothing happens here); evict a protected pod, or
//! delete any pod before its deadline; end an instance before its node is drained and its volumes are detached; remove
//! a finalizer before the instance is known to be gone; touch nodes of other autoscalers; do more than taint while a
//! watch that tells of nodes, claims, pods or volumes is old.
//!
//! ```text
//! claim deleted ─► deadline ─► node deleted ─► taint ─► drain ─► hold 5 s ─► volumes ─► last look ─► instance ends ─┐
//! node deleted ──► claim deleted ─┘                                                                                 │
//! not registered: instance ends ─► claim's finalizer ◄─────────────────────────────────────── node's finalizer ◄────┘
//! ```
//!
//! The last look lists the node's pods from the API server: whatever the watch showed, no instance ends under a pod
//! that was bound to its node before.
//!
//! A blocker of more than half a minute is reported with its owner, its age and what would clear it
//! ([`mod@drain_blockers`]).
//!
//! Claims that never had an instance belong to lifecycle. Everything is decided from objects at each look; what is kept
//! here (back-offs, "the instance is gone") only saves repeated calls.
//!
//! Implements karpenter-core 6.1 to 6.3.

mod hand_overs;
mod node;
mod objects;
mod outcomes;
mod report;

#[cfg(test)]
mod drain_blocker_tests;
#[cfg(test)]
mod hand_over_tests;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use crate::tracking::event_throttle::EventThrottle;
use crate::tracking::request_tracker::RequestTracker;
use crate::tracking::timer_queue::{TimerQueue, attempt, earlier};
use crate::tracking::write_tracker::WriteTracker;
use mortise_apis::k8s::Node;
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::labels;
use mortise_apis::names::{NodeName, ObjectRef, PodKey, ProviderId, Uid};
use mortise_apis::schema::conditions::Conditions;
use mortise_apis::values::after;
use mortise_engine::condition_edits::edited_claim;
use mortise_engine::decider::{Decider, InboxMessage, Step, StepInput};
use mortise_engine::decider_id::DeciderId;
use mortise_engine::effect::{Effect, ProviderRef};
use mortise_engine::freshness;
use mortise_engine::record::Verdict;
use mortise_engine::write::{NodeClaimStatusEdit, NodeTaints, ObjectWrite};
use mortise_planning::drain::volumes::Attached;
use mortise_planning::reason::Reason;
use mortise_state::index::Changes;
use mortise_state::snapshot::{NodeKey, StateNode};

use hand_overs::HandOvers;
use mortise_apis::schema::finalizers::has_finalizer;
use mortise_planning::drain::DrainErrors;
use objects::{is_going, new_deadline, why};
use report::BlockerReports;

/// Back-off of evictions, per pod.
const EVICT_BACKOFF_MS: (i64, i64) = (100, 10_000);
const TERMINATE_BACKOFF_MS: (i64, i64) = (1_000, 30_000);
/// A last look at a node's pods is good for so long.
const LOOK_MS: i64 = 10_000;
/// A pod that was evicted and is still there without deletion time is evicted again after this.
const ASK_AGAIN_MS: i64 = 10_000;
/// A terminating instance is checked every second at first (kwok and tests end at once), then every 5 s.
const POLLS_MS: [i64; 6] = [1_000, 1_000, 1_000, 1_000, 1_000, 5_000];
/// How often the list of instances is asked for while nodes that are not ready are draining.
const LOST_EVERY_MS: i64 = 5_000;
/// Most names in an event.
const NAMES_IN_EVENT: usize = 5;

/// The decider. See the module's documentation.
#[derive(Debug)]
pub struct TerminationDecider {
    agenda: TimerQueue<NodeKey>,
    outbox: WriteTracker,
    evictions: RequestTracker<EvictionRequest>,
    /// Whose pods were evicted and why: the pod may be gone when the answer comes.
    asking: BTreeMap<EvictionRequest, (Option<NodeName>, Reason)>,
    /// Pods that are handed over.
    hand_overs: HandOvers,
    /// When pods were last evicted with success.
    asked: BTreeMap<EvictionRequest, Timestamp>,
    terminations: RequestTracker<ProviderId>,
    /// When the cloud was first asked to end instances.
    begun: BTreeMap<ProviderId, Timestamp>,
    /// Instances that are ending: how often they were asked about, and when to ask again.
    ending: BTreeMap<ProviderId, (usize, Timestamp)>,
    gone: BTreeSet<ProviderId>,
    /// When the taint was first seen on nodes, for those without a claim that could tell.
    tainted: BTreeMap<NodeKey, Timestamp>,
    /// Instances behind nodes that are not ready, and those that the list in flight answers for.
    lost: BTreeSet<ProviderId>,
    lost_asked: BTreeSet<ProviderId>,
    lost_list: RequestTracker<()>,
    lost_next: Option<Timestamp>,
    /// Instances that the list leaves out are asked for one by one.
    finds: RequestTracker<ProviderId>,
    /// Nodes whose pods are asked for once more before their instances end, and when they last were.
    looks: RequestTracker<NodeName>,
    looked: BTreeMap<NodeKey, Timestamp>,
    hints: DrainErrors,
    reports: BlockerReports,
    told: EventThrottle,
    swept: Option<Timestamp>,
}

impl Default for TerminationDecider {
    fn default() -> Self {
        Self::new()
    }
}

/// A pod, and whether it is to be deleted rather than evicted.
type EvictionRequest = (PodKey, Uid, bool);

/// A condition to be written.
type Setting = (&'static str, ConditionUpdate);

#[derive(Debug)]
enum ConditionUpdate {
    True,
    Unknown(&'static str, String),
    False(&'static str, String),
}

/// What is going, with everything that was found out about it in this look.
struct TerminationState<'a> {
    key: &'a NodeKey,
    state_node: &'a StateNode,
    claim: Option<&'a Arc<NodeClaim>>,
    deadline: Option<Timestamp>,
    settings: Vec<Setting>,
    /// The cloud is being asked to end the instance, and its answer is waited for so long before conditions are
    /// written.
    answer_due: Option<Timestamp>,
}

impl TerminationDecider {
    /// A decider that knows nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            agenda: TimerQueue::new(),
            outbox: WriteTracker::new(),
            evictions: RequestTracker::new(EVICT_BACKOFF_MS.0, EVICT_BACKOFF_MS.1),
            asking: BTreeMap::new(),
            hand_overs: HandOvers::default(),
            asked: BTreeMap::new(),
            terminations: RequestTracker::new(TERMINATE_BACKOFF_MS.0, TERMINATE_BACKOFF_MS.1),
            begun: BTreeMap::new(),
            ending: BTreeMap::new(),
            gone: BTreeSet::new(),
            tainted: BTreeMap::new(),
            lost: BTreeSet::new(),
            lost_asked: BTreeSet::new(),
            lost_list: RequestTracker::new(LOST_EVERY_MS, 30_000),
            lost_next: None,
            finds: RequestTracker::new(LOST_EVERY_MS, 30_000),
            looks: RequestTracker::new(TERMINATE_BACKOFF_MS.0, TERMINATE_BACKOFF_MS.1),
            looked: BTreeMap::new(),
            hints: DrainErrors::default(),
            reports: BlockerReports::default(),
            told: EventThrottle::default(),
            swept: None,
        }
    }

    /// Does the next thing for a node, and says what blocks it. Returns when to look again although nothing changes.
    fn look(
        &mut self,
        input: &StepInput<'_>,
        key: &NodeKey,
        attached: &mut Attached,
        step: &mut Step,
    ) -> Option<Timestamp> {
        let again = self.advance(input, key, attached, step);
        let drain = (&self.hints, attached);
        earlier(again, self.reports.report(input, key, drain, step))
    }

    fn advance(
        &mut self,
        input: &StepInput<'_>,
        key: &NodeKey,
        attached: &mut Attached,
        step: &mut Step,
    ) -> Option<Timestamp> {
        let Some(state_node) = input.snapshot.nodes.get(key) else {
            self.forget(key);
            return None;
        };
        let claim = state_node.claim.as_ref();
        let node = state_node.node.as_ref();
        let claim_going =
            claim.filter(|claim| is_going(&claim.metadata) && claim.provider_id().is_some());
        let node_going = node.filter(|node| {
            is_going(&node.metadata) && (claim.is_some() || input.snapshot.has_served_class(node))
        });
        if claim_going.is_none() && node_going.is_none() {
            return None;
        }
        if let (Some(claim), Some(_)) = (claim, node_going)
            && claim.metadata.deletion_timestamp.is_none()
        {
            return self.send(input.now, Effect::delete_claim(claim), step);
        }
        if let Some(claim) = claim_going
            && let Some(deadline) = new_deadline(claim)
        {
            return self.set_deadline(input, state_node, claim, deadline, step);
        }
        let registered = |node: &Node| {
            claim.is_some_and(|claim| claim.is_true("Registered"))
                || has_finalizer(&node.metadata, labels::TERMINATION_FINALIZER)
        };
        let deadline = claim.and_then(|claim| claim.termination_deadline());
        let mut going = TerminationState {
            key,
            state_node,
            claim,
            deadline,
            settings: Vec::new(),
            answer_due: None,
        };
        let again = match (node_going, claim_going, node) {
            (Some(node), ..) => self.end_node(input, &mut going, node, attached, step),
            (None, Some(_), Some(node))
                if registered(node) && node.metadata.deletion_timestamp.is_none() =>
            {
                // The taint first: the node is closed at once, however many go at the same time.
                let write = match NodeTaints::terminating(node) {
                    Some(taints) => ObjectWrite::set_taints(node, taints).into(),
                    None => Effect::delete_node(node),
                };
                self.send(input.now, write, step)
            }
            // Another controller's finalizer keeps the node; its pods may still be there.
            (None, Some(_), Some(node)) if registered(node) => None,
            (None, Some(claim), _) => self.end_claim(input, &mut going, claim, step),
            (None, None, _) => None,
        };
        earlier(again, self.write_conditions(input.now, going, step))
    }

    fn forget(&mut self, key: &NodeKey) {
        let id = ProviderId::from(&**key);
        self.begun.remove(&id);
        self.ending.remove(&id);
        self.gone.remove(&id);
        self.lost.remove(&id);
        self.hints.instances.remove(&id);
        self.reports.forget(key);
        self.tainted.remove(key);
        self.looked.remove(key);
    }

    /// Sends a write; returns when to come back if it must wait.
    fn send(
        &mut self,
        now: Timestamp,
        effect: impl Into<Effect>,
        step: &mut Step,
    ) -> Option<Timestamp> {
        self.outbox.send(now, effect, step).err().flatten()
    }

    /// Holds while a watch that matters is old, and says so. Returns when to look again.
    fn outdated(
        &mut self,
        input: &StepInput<'_>,
        subject: &ObjectRef,
        step: &mut Step,
    ) -> Option<Timestamp> {
        let old = input.held_by(DeciderId::Termination)?;
        let told = (input, DeciderId::Termination);
        self.told.outdated(told, subject, old, step);
        Some(after(input.now, freshness::RECHECK_MS))
    }

    fn set_deadline(
        &mut self,
        input: &StepInput<'_>,
        state_node: &StateNode,
        claim: &NodeClaim,
        deadline: Timestamp,
        step: &mut Step,
    ) -> Option<Timestamp> {
        let target = ObjectRef::Claim(claim.name());
        let write = ObjectWrite::set_deadline(claim, deadline, None);
        if let Err(at) = self.outbox.send(input.now, write, step) {
            return at;
        }
        let objects = std::iter::once(target).chain(state_node.node_name().map(ObjectRef::Node));
        let (by, verdict) = (DeciderId::Termination, Verdict::Terminating);
        let reasons = vec![Reason::TerminationDeadline { deadline }];
        step.announce(input, by, objects, verdict, reasons);
        None
    }

    /// Ends the instance. `None` = it is gone.
    #[expect(
        clippy::option_option,
        reason = "the outer option says whether to wait, the inner one until when, if that is known"
    )]
    fn terminate_instance(
        &mut self,
        input: &StepInput<'_>,
        claim: &NodeClaim,
        going: &mut TerminationState<'_>,
        step: &mut Step,
    ) -> Option<Option<Timestamp>> {
        let (now, grace_ms) = (input.now, input.settings.end_grace_ms);
        let id = ProviderId::from(claim.instance_id()?);
        if self.gone.contains(&id) {
            return None;
        }
        if let Some((_, at)) = self.ending.get(&id) {
            going
                .settings
                .push(("InstanceTerminating", ConditionUpdate::True));
            if *at > now {
                return Some(Some(*at));
            }
        }
        Some(match attempt(&mut self.terminations, &id, now) {
            Ok(()) => {
                let first = *self.begun.entry(id.clone()).or_insert(now);
                going.answer_due = Some(after(first, grace_ms));
                step.effect(Effect::Terminate {
                    provider: ProviderRef::OfClass(claim.node_class_key()),
                    provider_id: id,
                    claim: claim.name(),
                });
                None
            }
            Err(None) => {
                let first = self.begun.get(&id).copied();
                going.answer_due = first.map(|first| after(first, grace_ms));
                None
            }
            Err(at) => at,
        })
    }

    /// The node is gone or was never ours: the instance, then the claim's finalizer.
    fn end_claim(
        &mut self,
        input: &StepInput<'_>,
        going: &mut TerminationState<'_>,
        claim: &NodeClaim,
        step: &mut Step,
    ) -> Option<Timestamp> {
        if let Some(again) = self.outdated(input, &ObjectRef::Claim(claim.name()), step) {
            return Some(again);
        }
        if let Some(again) = self.terminate_instance(input, claim, going, step) {
            return again;
        }
        going.settings.clear();
        let target = ObjectRef::Claim(claim.name());
        if self.told.is_news(
            &target,
            "removed",
            claim.uid().as_deref().unwrap_or_default(),
            input.now,
            i64::MAX,
        ) {
            step.record(
                input,
                DeciderId::Termination,
                target.clone(),
                Verdict::Removed,
                vec![why(claim)],
            );
        }
        let write =
            ObjectWrite::remove_finalizer(target, &claim.metadata, labels::TERMINATION_FINALIZER);
        self.send(input.now, write, step)
    }

    /// Writes the conditions that this look found out, all at once, and with what the cloud says if that comes in a
    /// moment.
    fn write_conditions(
        &mut self,
        now: Timestamp,
        going: TerminationState<'_>,
        step: &mut Step,
    ) -> Option<Timestamp> {
        let claim = going.claim.filter(|_| !going.settings.is_empty())?;
        if let Some(due) = going.answer_due.filter(|due| *due > now) {
            return Some(due);
        }
        let list = edited_claim(claim, now, |conditions: &mut Conditions<'_>| {
            for (type_, wanted) in &going.settings {
                match wanted {
                    ConditionUpdate::True => conditions.set_true(type_),
                    ConditionUpdate::Unknown(reason, message) => {
                        conditions.set_unknown(type_, reason, message)
                    }
                    ConditionUpdate::False(reason, message) => {
                        conditions.set_false(type_, reason, message)
                    }
                };
            }
        })?;
        let edit = NodeClaimStatusEdit {
            conditions: Some(list),
            ..NodeClaimStatusEdit::default()
        };
        self.send(now, ObjectWrite::claim_status(claim, edit), step)
    }

    /// Asks for the list of instances if some node that is being deleted is not ready.
    fn search_lost(&mut self, now: Timestamp, step: &mut Step) {
        if self.lost.is_empty() {
            return;
        }
        if let Some(at) = self.lost_next.filter(|at| *at > now) {
            step.wake_at(at);
            return;
        }
        match attempt(&mut self.lost_list, &(), now) {
            Ok(()) => {
                self.lost_asked.clone_from(&self.lost);
                step.effect(Effect::ListInstances);
            }
            Err(Some(at)) => step.wake_at(at),
            Err(None) => {}
        }
    }

    /// Forgets pods that are gone, once a minute.
    fn sweep(&mut self, input: &StepInput<'_>) {
        if self
            .swept
            .is_some_and(|at| mortise_apis::values::since(input.now, at) < 60_000)
        {
            return;
        }
        self.swept = Some(input.now);
        let there = |(key, uid, _): &EvictionRequest| {
            input
                .snapshot
                .pods
                .get(key)
                .is_some_and(|pod| pod.uid == *uid)
        };
        self.hints.prune(input.snapshot);
        self.asked.retain(|key, _| there(key));
        self.hand_overs.sweep(input.snapshot);
        let evictions = &self.evictions;
        self.asking
            .retain(|key, _| there(key) || evictions.is_running(key));
        self.evictions.retain(there);
        self.told.sweep(input.now);
        self.reports.sweep(input.now);
    }
}

impl Decider for TerminationDecider {
    fn id(&self) -> DeciderId {
        DeciderId::Termination
    }

    fn fresh(&self) -> Box<dyn Decider> {
        Box::new(Self::default())
    }

    fn is_interested(&self, changes: &Changes) -> bool {
        changes.everything
            || !changes.nodes.is_empty()
            // Budgets and attachments matter while some node is being drained.
            || (changes.cluster_objects && !self.tainted.is_empty())
    }

    fn step(&mut self, input: &StepInput<'_>, _stop: &dyn Fn() -> bool) -> Step {
        let mut step = Step::default();
        let mut todo: BTreeSet<NodeKey> = self.agenda.due(input.now).into_iter().collect();
        for delivery in input.inbox {
            if let InboxMessage::Outcome(outcome) = delivery {
                todo.extend(self.outcome(input, outcome, &mut step));
                if matches!(&*outcome.effect, Effect::ListInstances) {
                    todo.extend(self.tainted.keys().cloned());
                }
            }
        }
        if input.changes.everything {
            // What was true when this process last led may not be now.
            self.gone.clear();
            self.ending.clear();
            self.outbox.forgive();
            self.evictions.forgive();
            self.terminations.forgive();
            self.lost_list.forgive();
            self.finds.forgive();
            self.looks.forgive();
            self.looked.clear();
            todo.extend(
                input
                    .snapshot
                    .nodes
                    .iter()
                    .filter(|(_, state_node)| state_node.deleting)
                    .map(|(key, _)| key.clone()),
            );
        }
        if input.changes.everything || input.changes.cluster_objects {
            todo.extend(self.tainted.keys().cloned());
        }
        todo.extend(input.changes.nodes.iter().cloned());
        let mut attached = None;
        for key in todo {
            let again = self.look(input, &key, &mut attached, &mut step);
            self.agenda.set(&key, again);
        }
        self.search_lost(input.now, &mut step);
        self.sweep(input);
        self.outbox.sweep(input.now, input.snapshot);
        if let Some(at) = self.agenda.next() {
            step.wake_at(at);
        }
        step
    }
}
