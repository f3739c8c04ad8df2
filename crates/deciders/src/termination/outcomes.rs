//! What became of what termination asked for.

use super::objects::key_of;
use super::{LOST_EVERY_MS, POLLS_MS, TerminationDecider};
use crate::tracking::timer_queue::attempt;
use mortise_apis::names::{ObjectRef, PodKey, ProviderId, Uid};
use mortise_apis::values::after;
use mortise_cloudprovider::TerminationStatus;
use mortise_engine::decider::{Step, StepInput};
use mortise_engine::decider_id::DeciderId;
use mortise_engine::effect::{
    Effect, EffectError, EffectOutput, Outcome, ProviderRef, instances_for,
};
use mortise_engine::record::Verdict;
use mortise_planning::drain::{EvictionError, EvictionFailure};
use mortise_planning::reason::Reason;
use mortise_state::pods::Selector;
use mortise_state::snapshot::NodeKey;

/// That a drain is held up by budgets is said again after this, as in Karpenter.
const BLOCKED_EVERY_MS: i64 = 2 * 60_000;

/// A failed eviction, as drain planning distinguishes it.
fn eviction_error(error: &EffectError) -> EvictionError {
    EvictionError {
        failure: match error {
            EffectError::Refused { code: 403, message } if message.contains("cannot create") => {
                EvictionFailure::Forbidden
            }
            EffectError::Refused { .. } => EvictionFailure::Denied,
            EffectError::Unavailable(_) => EvictionFailure::Unavailable,
            _ => EvictionFailure::Blocked,
        },
        message: error.to_string(),
    }
}

impl TerminationDecider {
    /// Remembers that the API server rejected a write, or forgets it.
    fn record_write(&mut self, target: &ObjectRef, result: &Result<EffectOutput, EffectError>) {
        match result {
            Err(error @ EffectError::Refused { .. }) => {
                self.hints.writes.insert(target.clone(), error.to_string());
            }
            _ => drop(self.hints.writes.remove(target)),
        }
    }

    /// Takes an outcome in and says which node it is about.
    pub(super) fn outcome(
        &mut self,
        input: &StepInput<'_>,
        outcome: &Outcome,
        step: &mut Step,
    ) -> Option<NodeKey> {
        let now = input.now;
        match &*outcome.effect {
            Effect::Write(write) => {
                self.record_write(&write.target, &outcome.result);
                self.outbox.answered(now, &outcome.effect, &outcome.result);
                self.hand_overs
                    .answered(input, write, &outcome.result, step)
                    .or_else(|| key_of(input.snapshot, &write.target))
            }
            Effect::Delete {
                target: ObjectRef::Pod(pod),
                uid: Some(uid),
                ..
            }
            | Effect::Evict { pod, uid } => {
                self.left(input, pod, uid, &outcome.effect, &outcome.result, step);
                let node = input.snapshot.pods.get(pod)?.node.clone()?;
                key_of(input.snapshot, &ObjectRef::Node(node))
            }
            Effect::Delete { target, .. } => {
                self.record_write(target, &outcome.result);
                self.outbox.answered(now, &outcome.effect, &outcome.result);
                key_of(input.snapshot, target)
            }
            Effect::Terminate {
                provider_id, claim, ..
            } => {
                self.terminated(
                    input,
                    provider_id,
                    &ObjectRef::Claim(claim.clone()),
                    &outcome.result,
                    step,
                );
                input
                    .snapshot
                    .nodes
                    .get(&**provider_id)
                    .map(|state_node| state_node.key.clone())
            }
            Effect::ListInstances => {
                self.listed(input, &outcome.result, step);
                None
            }
            Effect::ListPods(node) => {
                let key = key_of(input.snapshot, &ObjectRef::Node(node.clone()))?;
                if outcome.result.is_ok() {
                    self.looks.succeeded(node);
                    self.looked.insert(key.clone(), now);
                } else {
                    self.looks.failed(node, now);
                }
                Some(key)
            }
            Effect::FindInstance { provider_id, .. } => {
                self.found(input, provider_id, &outcome.result);
                let state_node = input.snapshot.nodes.get(&**provider_id);
                state_node.map(|state_node| state_node.key.clone())
            }
            _ => None,
        }
    }

    /// What became of asking a pod to leave.
    pub(super) fn left(
        &mut self,
        input: &StepInput<'_>,
        pod: &PodKey,
        uid: &Uid,
        effect: &Effect,
        result: &Result<EffectOutput, EffectError>,
        step: &mut Step,
    ) {
        let forced = matches!(effect, Effect::Delete { .. });
        let key = (pod.clone(), uid.clone(), forced);
        let (node, reason) = self.asking.remove(&key).unwrap_or((None, Reason::Deleted));
        match result {
            // 409 means that a pod of another UID has the name now: the one we meant is gone.
            Ok(_) | Err(EffectError::NotFound(_) | EffectError::Conflict(_)) => {
                self.evictions.succeeded(&key);
                self.hints.evictions.remove(pod);
                self.asked.insert(key, input.now);
                if result.is_ok() {
                    let target = ObjectRef::Pod(pod.clone());
                    let (by, verdict) = (DeciderId::Termination, Verdict::Evicted);
                    let ended = forced.then_some(Reason::GracePeriodEnded);
                    let reasons = std::iter::once(reason).chain(ended).collect();
                    step.announce(input, by, [target], verdict, reasons);
                }
            }
            Err(error) => {
                self.evictions.failed(&key, input.now);
                self.hints
                    .evictions
                    .insert(pod.clone(), (uid.clone(), eviction_error(error)));
                if let Some(node) = node {
                    self.blocked(input, ObjectRef::Node(node), pod, error, step);
                }
            }
        }
    }

    pub(super) fn blocked(
        &mut self,
        input: &StepInput<'_>,
        node: ObjectRef,
        pod: &PodKey,
        error: &EffectError,
        step: &mut Step,
    ) {
        let reason = match error {
            EffectError::Blocked(_) => {
                budget_of(input, pod).unwrap_or_else(|| Reason::EvictionRejected {
                    pod: pod.clone(),
                    error: error.to_string(),
                })
            }
            EffectError::MultipleBudgets(_) => Reason::MultiplePdbs {
                pod: pod.clone(),
                pdbs: Vec::new(),
            },
            other => Reason::Failed {
                error: format!("pod {pod}: {other}"),
            },
        };
        // Several pods that wait for their budgets take turns being asked: one of them is named, not each at every
        // turn.
        let kind = std::mem::discriminant(&reason);
        let (facts, every) = ((&kind, &reason), (BLOCKED_EVERY_MS, BLOCKED_EVERY_MS));
        if self
            .told
            .is_news_of(&node, "evict", facts, input.now, every)
        {
            let (by, verdict) = (DeciderId::Termination, Verdict::Blocked);
            let reasons = vec![reason, Reason::Eviction { pod: pod.clone() }];
            step.announce(input, by, [node], verdict, reasons);
        }
    }

    pub(super) fn terminated(
        &mut self,
        input: &StepInput<'_>,
        id: &ProviderId,
        claim: &ObjectRef,
        result: &Result<EffectOutput, EffectError>,
        step: &mut Step,
    ) {
        match result {
            Ok(EffectOutput::Terminated(TerminationStatus::Gone)) => {
                self.terminations.succeeded(id);
                self.hints.instances.remove(id);
                self.ending.remove(id);
                self.gone.insert(id.clone());
            }
            Ok(_) => {
                self.terminations.succeeded(id);
                self.hints.instances.remove(id);
                let polls = self.ending.get(id).map_or(0, |(polls, _)| polls + 1);
                let wait = POLLS_MS
                    .get(polls)
                    .or(POLLS_MS.last())
                    .copied()
                    .unwrap_or(5_000);
                self.ending
                    .insert(id.clone(), (polls, after(input.now, wait)));
            }
            Err(error) => {
                self.terminations.failed(id, input.now);
                let text = error.to_string();
                self.hints.instances.insert(id.clone(), text.clone());
                let reason = Reason::Failed { error: text };
                if self
                    .told
                    .is_news(claim, "terminate", &reason, input.now, 120_000)
                {
                    step.record(
                        input,
                        DeciderId::Termination,
                        claim.clone(),
                        Verdict::Blocked,
                        vec![reason],
                    );
                }
            }
        }
    }

    /// Which of the instances behind nodes that are not ready may be gone: those that the list leaves out are asked for
    /// by id. As long as the provider that serves the claim's class does not answer, the list is asked for again.
    pub(super) fn listed(
        &mut self,
        input: &StepInput<'_>,
        result: &Result<EffectOutput, EffectError>,
        step: &mut Step,
    ) {
        let asked = std::mem::take(&mut self.lost_asked);
        self.lost_next = Some(after(input.now, LOST_EVERY_MS));
        let Ok(EffectOutput::Instances(listings)) = result else {
            self.lost_list.failed(&(), input.now);
            return;
        };
        self.lost_list.succeeded(&());
        for id in asked {
            self.lost.remove(&id);
            let state_node = input.snapshot.nodes.get(&*id);
            let Some(claim) = state_node.and_then(|state_node| state_node.claim.as_ref()) else {
                continue;
            };
            let class = claim.node_class_key();
            let left_out = instances_for(listings, &class)
                .is_some_and(|all| !all.iter().any(|each| each.provider_id == id));
            if left_out && attempt(&mut self.finds, &id, input.now).is_ok() {
                step.effect(Effect::FindInstance {
                    provider: ProviderRef::OfClass(class),
                    provider_id: id,
                });
            }
        }
    }

    /// What the provider says of one instance.
    fn found(
        &mut self,
        input: &StepInput<'_>,
        id: &ProviderId,
        result: &Result<EffectOutput, EffectError>,
    ) {
        let Ok(EffectOutput::Found(found)) = result else {
            self.finds.failed(id, input.now);
            return;
        };
        self.finds.succeeded(id);
        if found.is_none() {
            self.gone.insert(id.clone());
        }
    }
}

/// The budget that allows no eviction of the pod, if the snapshot shows one.
fn budget_of(input: &StepInput<'_>, pod: &PodKey) -> Option<Reason> {
    let pod = input.snapshot.pods.get(pod)?;
    let of_pod = input
        .snapshot
        .pdbs
        .iter()
        .filter(|(name, _)| name.namespace == pod.key.namespace);
    let selects = |selector| Selector::new(selector).matches_labels(&pod.labels);
    let (pdb, _) = of_pod.into_iter().find(|(_, pdb)| {
        pdb.status.disruptions_allowed <= 0 && pdb.spec.selector.as_ref().is_some_and(selects)
    })?;
    Some(Reason::Pdb { pdb: pdb.clone() })
}
