//! A node on its way out: taint, drain, volumes, instance, finalizer.

use std::sync::Arc;

use jiff::Timestamp;

use super::objects::why;
use super::{
    ASK_AGAIN_MS, ConditionUpdate, LOOK_MS, NAMES_IN_EVENT, TerminationDecider, TerminationState,
};
use crate::tracking::timer_queue::{attempt, earlier};
use mortise_apis::k8s::Node;
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::labels;
use mortise_apis::names::ObjectRef;
use mortise_apis::schema::conditions;
use mortise_apis::values::{after, since};
use mortise_engine::condition_edits::passed_from_object_time;
use mortise_engine::decider::{Step, StepInput};
use mortise_engine::decider_id::DeciderId;
use mortise_engine::effect::Effect;
use mortise_engine::record::Verdict;
use mortise_engine::write::{NodeTaints, ObjectWrite, node_ref};
use mortise_planning::drain::groups::Drain;
use mortise_planning::drain::pdb::Pdbs;
use mortise_planning::drain::volumes::{self, Attached};
use mortise_planning::drain::{HandOverStep, hand_over_step};
use mortise_planning::pause;
use mortise_planning::reason::Reason;
use mortise_state::snapshot::Pod;

impl TerminationDecider {
    /// From the taint to the node's finalizer.
    pub(super) fn end_node(
        &mut self,
        input: &StepInput<'_>,
        going: &mut TerminationState<'_>,
        node: &Node,
        attached: &mut Attached,
        step: &mut Step,
    ) -> Option<Timestamp> {
        let target = node_ref(node);
        let id = going.state_node.provider_id();
        let known_gone = id.as_ref().is_some_and(|id| self.gone.contains(id));
        if !known_gone || going.state_node.is_ready() {
            if let Some(taints) = NodeTaints::terminating(node) {
                let write = ObjectWrite::set_taints(node, taints);
                return self.send(input.now, write, step);
            }
            if let Some(again) = self.outdated(input, &target, step) {
                return Some(again);
            }
            if let Some(id) = id.filter(|_| going.claim.is_some() && !going.state_node.is_ready()) {
                self.lost.insert(id);
            }
            if let Some(again) = self.drain(input, going, node, step) {
                return again;
            }
            if let Some(again) = self.detach(input, going, node, attached, step) {
                return again;
            }
            if let Some(claim) = going.claim {
                if let Some(again) = self.last_look(input, going, step) {
                    return again;
                }
                if let Some(again) = self.terminate_instance(input, claim, going, step) {
                    return again;
                }
            }
        }
        if self
            .told
            .is_news(&target, "removed", "", input.now, i64::MAX)
        {
            let reason = going
                .claim
                .map_or_else(|| Reason::Deleted, |claim| why(claim));
            step.record(
                input,
                DeciderId::Termination,
                target.clone(),
                Verdict::Removed,
                vec![reason],
            );
        }
        // Nothing is waited for any more, and the claim goes next.
        going.settings.clear();
        let write =
            ObjectWrite::remove_finalizer(target, &node.metadata, labels::TERMINATION_FINALIZER);
        self.send(input.now, write, step)
    }

    /// Empties the node. `None` = it is empty and was for long enough; else when to look again.
    #[expect(
        clippy::option_option,
        reason = "the outer option says whether to wait, the inner one until when, if that is known"
    )]
    pub(super) fn drain(
        &mut self,
        input: &StepInput<'_>,
        going: &mut TerminationState<'_>,
        node: &Node,
        step: &mut Step,
    ) -> Option<Option<Timestamp>> {
        let now = input.now;
        let since = *self.tainted.entry(going.key.clone()).or_insert(now);
        let drain = Drain::new(&going.state_node.pods, now, going.deadline);
        if drain.waiting.is_empty() {
            let drained = going
                .claim
                .map(|claim| conditions::find(&claim.status.conditions, "Drained"));
            let hold = match drained {
                Some(Some(condition)) if condition.status == conditions::ConditionStatus::True => {
                    None
                }
                Some(Some(condition)) => {
                    let drains = condition.last_transition_time.as_ref().map(|time| time.0);
                    let from = tainted_before(going.claim, node).or(drains);
                    from.map(|at| passed_from_object_time(at, input.settings.min_drain_ms))
                }
                // Nothing blocks, so no condition tells since when: a node whose claim went first was tainted before
                // it was deleted, another one when it was first seen.
                Some(None) | None => Some(match tainted_before(going.claim, node) {
                    Some(at) => passed_from_object_time(at, input.settings.min_drain_ms),
                    None => after(since, input.settings.min_drain_ms),
                }),
            };
            if let Some(hold) = hold.filter(|hold| *hold > now) {
                return Some(Some(hold));
            }
            going.settings.push(("Drained", ConditionUpdate::True));
            let target = node_ref(node);
            if self.told.is_news(&target, "drained", "", now, i64::MAX) {
                let reason = Reason::ConditionIs {
                    condition: "Drained".to_owned(),
                    status: "True".to_owned(),
                    why: "Drained".to_owned(),
                };
                step.record(
                    input,
                    DeciderId::Termination,
                    target,
                    Verdict::Condition,
                    vec![reason],
                );
            }
            return None;
        }
        self.looked.remove(going.key);
        going.settings.push((
            "Drained",
            ConditionUpdate::Unknown("Draining", String::new()),
        ));
        let target = node_ref(node);
        if self.told.is_news(&target, "drain", "", now, 120_000) {
            let (by, verdict) = (DeciderId::Termination, Verdict::Waiting);
            let count = drain.waiting.len();
            step.announce(
                input,
                by,
                [target],
                verdict,
                vec![Reason::PodsWaiting { count }],
            );
        }
        if let Some(pause) = pause::of_drain(input.snapshot, going.state_node, now) {
            return Some(Some(pause::look_again(&pause, now)));
        }
        let mut again = drain.changes;
        let reason = &going
            .claim
            .map_or_else(|| Reason::Deleted, |claim| why(claim));
        for (pod, grace) in &drain.force {
            let effect = Effect::Delete {
                target: ObjectRef::Pod(pod.key.clone()),
                uid: Some(pod.uid.clone()),
                grace_seconds: Some(*grace),
            };
            again = earlier(again, self.ask(now, pod, effect, reason, step));
        }
        let mut pdbs = None;
        for pod in &drain.evict {
            if pod.hand_over.is_some() {
                let pdbs = pdbs.get_or_insert_with(|| Pdbs::new(input.snapshot));
                let step_of = hand_over_step((input.snapshot, pdbs), going.state_node, pod, now);
                if let Some(next) = step_of {
                    again = earlier(again, self.hand_over(now, pod, next, reason, step));
                    continue;
                }
            }
            let effect = Effect::Evict {
                pod: pod.key.clone(),
                uid: pod.uid.clone(),
            };
            again = earlier(again, self.ask(now, pod, effect, reason, step));
        }
        Some(again)
    }

    /// Restarts the Deployment of a pod, or waits for it. Returns when to look again.
    fn hand_over(
        &mut self,
        now: Timestamp,
        pod: &Pod,
        next: HandOverStep<'_>,
        reason: &Reason,
        step: &mut Step,
    ) -> Option<Timestamp> {
        let HandOverStep {
            hand_over,
            is_begun,
            until,
        } = next;
        if is_begun {
            return Some(until);
        }
        let deployment = hand_over.deployment;
        self.hand_overs
            .begin(pod, deployment, until, reason.clone());
        let version = hand_over.rollout.resource_version.as_deref();
        let write = ObjectWrite::hand_over(deployment.clone(), version, pod.uid.clone());
        let again = self.send(now, write, step);
        earlier(again, Some(until))
    }

    /// Asks the API server for the pods of a node whose instance is about to end. What it answers is in the snapshot
    /// when the node is checked again. `None` = it was asked a moment ago, or the instance is ending already.
    #[expect(
        clippy::option_option,
        reason = "the outer option says whether to wait, the inner one until when, if that is known"
    )]
    fn last_look(
        &mut self,
        input: &StepInput<'_>,
        going: &mut TerminationState<'_>,
        step: &mut Step,
    ) -> Option<Option<Timestamp>> {
        let now = input.now;
        let id = going.state_node.provider_id()?;
        let name = going.state_node.node_name()?;
        let looked = self.looked.get(going.key);
        let is_over = self.ending.contains_key(&id) || self.gone.contains(&id);
        if is_over || looked.is_some_and(|at| since(now, *at) < LOOK_MS) {
            return None;
        }
        // The conditions wait for the cloud's answer, which comes soon after this one.
        let first = *self.begun.entry(id).or_insert(now);
        going.answer_due = Some(after(first, input.settings.end_grace_ms));
        Some(match attempt(&mut self.looks, &name, now) {
            Ok(()) => {
                step.effect(Effect::ListPods(name));
                None
            }
            Err(at) => at,
        })
    }

    /// Asks a pod to leave, unless that was done a moment ago and only its deletion time is not visible yet.
    pub(super) fn ask(
        &mut self,
        now: Timestamp,
        pod: &Pod,
        effect: Effect,
        reason: &Reason,
        step: &mut Step,
    ) -> Option<Timestamp> {
        let key = (
            pod.key.clone(),
            pod.uid.clone(),
            matches!(effect, Effect::Delete { .. }),
        );
        if let Some(asked) = self.asked.get(&key) {
            let again = after(*asked, ASK_AGAIN_MS);
            if again > now {
                return Some(again);
            }
        }
        match attempt(&mut self.evictions, &key, now) {
            Ok(()) => {
                self.asking.insert(key, (pod.node.clone(), reason.clone()));
                step.effect(effect);
                None
            }
            Err(at) => at,
        }
    }

    /// Waits for volumes. `None` = nothing is attached that must not be, or the deadline has passed.
    #[expect(
        clippy::option_option,
        reason = "the outer option says whether to wait, the inner one until when, if that is known"
    )]
    pub(super) fn detach(
        &mut self,
        input: &StepInput<'_>,
        going: &mut TerminationState<'_>,
        node: &Node,
        attached: &mut Attached,
        step: &mut Step,
    ) -> Option<Option<Timestamp>> {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let attached = attached.get_or_insert_with(|| volumes::by_node(input.snapshot));
        let pending = attached
            .get(name)
            .map(|attached| volumes::pending(input.snapshot, attached, &going.state_node.pods))
            .unwrap_or_default();
        if pending.is_empty() {
            going
                .settings
                .push(("VolumesDetached", ConditionUpdate::True));
            return None;
        }
        let volumes: Vec<String> = pending
            .iter()
            .take(NAMES_IN_EVENT)
            .map(|name| name.to_string())
            .collect();
        let names = volumes.join(", ");
        if going.deadline.is_some_and(|deadline| deadline <= input.now) {
            going.settings.push((
                "VolumesDetached",
                ConditionUpdate::False(
                    "TerminationGracePeriodElapsed",
                    format!("still attached: {names}"),
                ),
            ));
            return None;
        }
        going.settings.push((
            "VolumesDetached",
            ConditionUpdate::Unknown("AwaitingVolumeDetachment", format!("attached: {names}")),
        ));
        let target = node_ref(node);
        if self
            .told
            .is_news(&target, "volumes", "", input.now, 120_000)
        {
            let (by, verdict) = (DeciderId::Termination, Verdict::Waiting);
            let reasons = vec![Reason::VolumesAttached { volumes }];
            step.announce(input, by, [target], verdict, reasons);
        }
        // A detachment wakes this decider; only the deadline comes by itself.
        Some(going.deadline)
    }
}

/// The deletion of a node that we deleted because its claim goes, which is after its taint.
fn tainted_before(claim: Option<&Arc<NodeClaim>>, node: &Node) -> Option<Timestamp> {
    let claim = claim?.metadata.deletion_timestamp.as_ref()?.0;
    let node = node.metadata.deletion_timestamp.as_ref()?.0;
    (claim <= node).then_some(node)
}
