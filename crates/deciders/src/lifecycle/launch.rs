//! Launching: from a claim to the instance that its status names, or to a claim that is deleted or released.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;

use super::LifecycleDecider;
use super::breaker::LaunchDecision;
use super::launch_batches::{LaunchTurn, Members, current, launch_effect};
use super::launch_reason::{announce_missing, cut, launched_is, not_launched};
use super::launched_instance::{launched_from, missing_metadata};
use crate::launch_shape;
use crate::tracking::timer_queue::{attempt, earlier};
use mortise_apis::karpenter::nodeclaim::LAUNCH_PAUSED;
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::labels;
use mortise_apis::names::{ClaimName, ObjectRef, ProviderId, Uid};
use mortise_apis::schema::finalizers::has_finalizer;
use mortise_apis::values::after;
use mortise_cloudprovider::{Instance, LaunchBatch, LaunchError, LaunchRequest, LaunchedInstance};
use mortise_engine::condition_edits::edited_claim;
use mortise_engine::decider::{Step, StepInput};
use mortise_engine::decider_id::DeciderId;
use mortise_engine::effect::{
    Effect, EffectError, EffectOutput, Outcome, ProviderRef, instances_for,
};
use mortise_engine::record::Verdict;
use mortise_engine::write::{EditKind, InstanceStatus, NodeClaimStatusEdit, ObjectWrite};
use mortise_planning::reason::{LaunchTimeout, Reason};
use mortise_state::snapshot::Snapshot;

/// A Node that joins with its instance's launch is there within this. Whoever waits for a launch waits that much
/// longer.
const JOINS_MS: i64 = 1_000;
/// A Node that is there, and was waited for ([`mortise_planning::settings::Settings::join_grace_ms`]), is registered
/// within this, or status tells of the launch alone: a refused write must not hide an instance.
const REGISTERS_MS: i64 = 4_000;
/// How often a deleted claim looks whether the others of its batch have their instances.
const BATCH_SETTLES_MS: i64 = 1_000;

impl LifecycleDecider {
    /// What became of a launch.
    pub(super) fn launched(
        &mut self,
        input: &StepInput<'_>,
        request: &LaunchRequest,
        result: &Result<EffectOutput, EffectError>,
        step: &mut Step,
    ) {
        let Some(uid) = request.claim.uid() else {
            return;
        };
        let name = request.claim.name();
        match result {
            Ok(EffectOutput::Launched(launched)) => {
                self.launches.succeeded(&uid);
                self.failures.remove(&uid);
                self.empty.remove(&uid);
                if current(input.snapshot, &name, &uid).is_some() {
                    self.instances.insert(uid, (**launched).clone());
                } else {
                    // A user removed the finalizer by force: the instance has no object that termination could follow.
                    let class = request.claim.node_class_key();
                    step.effect(Effect::Terminate {
                        provider: ProviderRef::OfClass(class),
                        provider_id: launched.provider_id.clone(),
                        claim: name.clone(),
                    });
                    let instance = launched.provider_id.clone();
                    step.record(
                        input,
                        DeciderId::Lifecycle,
                        ObjectRef::Claim(name),
                        Verdict::Removed,
                        vec![Reason::InstanceOfDeletedClaim { instance }],
                    );
                }
            }
            Ok(_) => self.launches.succeeded(&uid),
            Err(error) => {
                self.launches.failed(&uid, input.now);
                self.launch_failed(input, &request.claim, uid, error, step);
            }
        }
    }

    pub(super) fn launch_failed(
        &mut self,
        input: &StepInput<'_>,
        claim: &NodeClaim,
        uid: Uid,
        error: &EffectError,
        step: &mut Step,
    ) {
        let target = ObjectRef::Claim(claim.name());
        let (by, verdict) = (DeciderId::Lifecycle, Verdict::LaunchFailed);
        let why = match error {
            EffectError::Launch(LaunchError::InsufficientCapacity { missing, .. }) => {
                self.give_up(uid);
                if let Some(what) = *missing {
                    announce_missing(what, claim, input, step);
                }
                // Events show all of it.
                let error = error.to_string();
                let why = not_launched(LaunchTimeout::InsufficientCapacity);
                let reasons = vec![why, Reason::Failed { error }];
                return step.announce(input, by, [target], verdict, reasons);
            }
            EffectError::Launch(LaunchError::NodeClassNotReady { .. }) => {
                self.give_up(uid);
                not_launched(LaunchTimeout::NodeClassNotReady)
            }
            EffectError::Launch(LaunchError::Create { reason, message }) => {
                self.health.ended(&uid);
                self.empty.insert(uid.clone());
                self.batches.answered(claim, &uid);
                self.failures.insert(uid, (reason.clone(), cut(message)));
                launched_is("False", reason.clone())
            }
            // Whether there is an instance is not known: the call may have failed on its way back.
            _ => {
                self.empty.remove(&uid);
                self.failures
                    .insert(uid, ("LaunchFailed".to_owned(), cut(&error.to_string())));
                launched_is("False", "LaunchFailed".to_owned())
            }
        };
        let reasons = vec![
            why,
            Reason::Failed {
                error: cut(&error.to_string()),
            },
        ];
        step.record(input, by, target, verdict, reasons);
    }

    /// There is no instance, and the claim is deleted.
    fn give_up(&mut self, uid: Uid) {
        self.health.ended(&uid);
        self.empty.insert(uid.clone());
        self.claims_to_delete.insert(uid);
    }

    /// Finds the instances of claims that were deleted before their status named one.
    pub(super) fn listed(
        &mut self,
        input: &StepInput<'_>,
        result: &Result<EffectOutput, EffectError>,
        todo: &mut BTreeSet<ClaimName>,
    ) {
        let asked = std::mem::take(&mut self.asked);
        let Ok(EffectOutput::Instances(listings)) = result else {
            self.search.failed(&(), input.now);
            return;
        };
        let mut unanswered = false;
        for (uid, name) in asked {
            let Some(claim) = current(input.snapshot, &name, &uid) else {
                self.wanted.remove(&uid); // gone in the meantime
                continue;
            };
            let Some(instances) = instances_for(listings, &claim.node_class_key()) else {
                unanswered = true;
                continue;
            };
            self.wanted.remove(&uid);
            let found = self.instance_among(input.snapshot, instances, claim);
            match found.map(launched_from) {
                Some(instance) => drop(self.instances.insert(uid, instance)),
                None => drop(self.empty.insert(uid)),
            }
            todo.insert(name);
        }
        if unanswered {
            self.search.failed(&(), input.now);
        } else {
            self.search.succeeded(&());
        }
    }

    /// The instance of a claim, or one that was launched in its batch and that no claim has.
    fn instance_among<'a>(
        &self,
        snapshot: &Snapshot,
        instances: &'a [Instance],
        claim: &NodeClaim,
    ) -> Option<&'a Instance> {
        let name = claim.name();
        let mut there = instances.iter().filter(|instance| !instance.terminating);
        let own = there
            .clone()
            .find(|instance| instance.claim.as_deref() == Some(name.as_str()));
        let token = claim.annotation(labels::LAUNCH_BATCH);
        own.or_else(|| {
            let token = token?;
            let taken = self.taken(snapshot, token);
            there.find(|instance| {
                instance.claim.is_none()
                    && instance.batch.as_deref() == Some(token)
                    && !taken.contains(&instance.provider_id)
            })
        })
    }

    /// Instances of a batch that claims have.
    fn taken(&self, snapshot: &Snapshot, token: &str) -> Vec<ProviderId> {
        let of_batch = snapshot
            .claims
            .values()
            .filter(|claim| claim.annotation(labels::LAUNCH_BATCH) == Some(token));
        let instance_of = |claim: &Arc<NodeClaim>| {
            let unwritten = || self.instances.get(&claim.uid()?);
            let known = claim.instance_id().map(ProviderId::from);
            known.or_else(|| Some(unwritten()?.provider_id.clone()))
        };
        of_batch.filter_map(instance_of).collect()
    }

    /// A token was not written: the claim gets another one.
    pub(super) fn note_refused_token(
        &mut self,
        input: &StepInput<'_>,
        name: &ClaimName,
        outcome: &Outcome,
    ) {
        let is_token = matches!(&*outcome.effect, Effect::Write(write) if write.edit.kind() == EditKind::LaunchBatch);
        let claim = input.snapshot.claims.get(name);
        if let (true, Err(_), Some(uid)) = (
            is_token,
            &outcome.result,
            claim.and_then(|claim| claim.uid()),
        ) {
            self.batches.refused(&uid);
        }
    }

    /// Gives the claims of windows that are over their tokens; launches those alone that no other one joined.
    pub(super) fn announce_batches(&mut self, input: &StepInput<'_>, step: &mut Step) {
        for members in self.batches.close(input.now) {
            let claims: Vec<&Arc<NodeClaim>> = members
                .iter()
                .filter_map(|(uid, name)| self.launchable(input.snapshot, name, uid))
                .collect();
            if let [claim] = claims.as_slice()
                && claim.annotation(labels::LAUNCH_BATCH).is_none()
            {
                let name = claim.name();
                claim
                    .uid()
                    .iter()
                    .for_each(|uid| self.batches.leave_alone(uid));
                let again = self.look(input, &name, step);
                self.agenda.set(&name, again);
                continue;
            }
            let parts: Vec<_> = claims
                .iter()
                .map(|claim| (claim.uid(), claim.annotation(labels::LAUNCH_BATCH)))
                .collect();
            let token = launch_shape::token(parts);
            let mut announced = Members::new();
            for claim in claims {
                let write = ObjectWrite::set_launch_batch(claim, Arc::clone(&token));
                match (self.outbox.send(input.now, write, step), claim.uid()) {
                    (Ok(()), Some(uid)) => drop(announced.insert(uid, claim.name())),
                    (Err(Some(at)), _) => self.agenda.sooner(&claim.name(), at),
                    // An earlier write is under way: its outcome is the next occasion.
                    _ => {}
                }
            }
            if !announced.is_empty() {
                self.batches.announce(&token, announced, input.now);
            }
        }
    }

    /// Launches claims whose token is written, together with the others of their batch.
    pub(super) fn launch_batches(&mut self, input: &StepInput<'_>, step: &mut Step) {
        let now = input.now;
        for (token, members) in self.batches.take_due(now) {
            let mut claims = Vec::new();
            for (uid, name) in &members {
                let claim = self
                    .launchable(input.snapshot, name, uid)
                    .filter(|claim| claim.annotation(labels::LAUNCH_BATCH) == Some(&token));
                let Some(claim) = claim.cloned() else {
                    self.agenda.sooner(name, now);
                    continue;
                };
                match attempt(&mut self.launches, uid, now) {
                    Ok(()) => {
                        self.health.unregistered(&claim, uid, now);
                        claims.push(claim);
                    }
                    Err(Some(at)) => self.agenda.sooner(name, at),
                    Err(None) => {}
                }
            }
            self.batches.launched(&token, &claims, now);
            let batch = Arc::new(LaunchBatch {
                taken: self.taken(input.snapshot, &token),
                token,
                claims: claims.clone(),
            });
            for claim in claims {
                let batch = Some(Arc::clone(&batch));
                step.effect(launch_effect(input.snapshot, claim, batch));
            }
        }
    }

    /// The claim of that name and UID, if it stays and has no instance.
    fn launchable<'a>(
        &self,
        snapshot: &'a Snapshot,
        name: &ClaimName,
        uid: &Uid,
    ) -> Option<&'a Arc<NodeClaim>> {
        current(snapshot, name, uid).filter(|claim| {
            claim.metadata.deletion_timestamp.is_none()
                && claim.provider_id().is_none()
                && !self.instances.contains_key(uid)
                && !self.claims_to_delete.contains(uid)
        })
    }

    /// Finalizer, then launch.
    pub(super) fn launch(
        &mut self,
        input: &StepInput<'_>,
        claim: &Arc<NodeClaim>,
        uid: Uid,
        step: &mut Step,
    ) -> Option<Timestamp> {
        let now = input.now;
        let target = ObjectRef::Claim(claim.name());
        if !self.launches.is_running(&uid) {
            if !self.claims_to_delete.contains(&uid)
                && let Some(again) = self.hold_back(input, claim, &uid, step)
            {
                return again;
            }
            let deadline = match self.await_condition(input, claim, &uid, "Launched", step) {
                Ok(deadline) => deadline,
                Err(at) => return at,
            };
            let waits = self.launches.waits_until(&uid).filter(|at| *at > now);
            let turn = match waits {
                Some(_) => LaunchTurn::Wait,
                None => self.batches.turn(input.settings, claim, &uid, now),
            };
            if turn != LaunchTurn::Alone {
                let noted = self.note_failure(now, claim, &uid, step);
                return earlier(deadline, earlier(waits, noted));
            }
            if !has_finalizer(&claim.metadata, labels::TERMINATION_FINALIZER) {
                let write = ObjectWrite::add_finalizer(
                    target,
                    &claim.metadata,
                    labels::TERMINATION_FINALIZER,
                );
                let sent = self.outbox.send(now, write, step);
                return earlier(deadline, sent.err().flatten());
            }
            let again = match attempt(&mut self.launches, &uid, now) {
                Ok(()) => {
                    self.health.unregistered(claim, &uid, now);
                    step.effect(launch_effect(input.snapshot, Arc::clone(claim), None));
                    None
                }
                Err(at) => at,
            };
            let noted = self.note_failure(now, claim, &uid, step);
            return earlier(deadline, earlier(again, noted));
        }
        self.note_failure(now, claim, &uid, step)
    }

    /// Keeps the claim from being launched while instances of its pool do not register, or deletes it. `None` = go on.
    #[expect(
        clippy::option_option,
        reason = "the outer option says whether to wait, the inner one until when, if that is known"
    )]
    fn hold_back(
        &mut self,
        input: &StepInput<'_>,
        claim: &NodeClaim,
        uid: &Uid,
        step: &mut Step,
    ) -> Option<Option<Timestamp>> {
        match self.health.gate(input, claim, uid) {
            LaunchDecision::Allow => {
                if self.health.release(claim) {
                    self.released.insert(uid.clone(), input.now);
                }
                None
            }
            LaunchDecision::Wait(why, at) => {
                let since = self.health.hold(claim, input.now);
                let told_at = after(since, input.settings.held_grace_ms);
                if told_at > input.now {
                    return Some(earlier(at, Some(told_at)));
                }
                self.failures
                    .insert(uid.clone(), (LAUNCH_PAUSED.to_owned(), why));
                let noted = self.note_failure(input.now, claim, uid, step);
                Some(earlier(at, noted))
            }
            LaunchDecision::Reject(why) => {
                self.health.release(claim);
                self.claims_to_delete.insert(uid.clone());
                step.record(
                    input,
                    DeciderId::Lifecycle,
                    ObjectRef::Claim(claim.name()),
                    Verdict::LaunchFailed,
                    vec![launched_is("Unknown", LAUNCH_PAUSED.to_owned()), why],
                );
                None
            }
        }
    }

    /// Writes why the last launch failed into the condition.
    pub(super) fn note_failure(
        &mut self,
        now: Timestamp,
        claim: &NodeClaim,
        uid: &Uid,
        step: &mut Step,
    ) -> Option<Timestamp> {
        let (reason, message) = self.failures.get(uid)?.clone();
        let list = edited_claim(claim, now, |conditions| {
            conditions.set_unknown("Launched", &reason, &message);
        });
        let Some(list) = list else {
            self.failures.remove(uid);
            return None;
        };
        let edit = NodeClaimStatusEdit {
            conditions: Some(list),
            ..NodeClaimStatusEdit::default()
        };
        let sent = self
            .outbox
            .send(now, ObjectWrite::claim_status(claim, edit), step);
        sent.err().flatten()
    }

    /// The instance is known, the claim does not say so yet: labels and annotations first, so that capacity is never
    /// seen without the labels that tell where it is; then status.
    pub(super) fn adopt(
        &mut self,
        input: &StepInput<'_>,
        claim: &NodeClaim,
        launched: &LaunchedInstance,
        deleting: bool,
        step: &mut Step,
    ) -> Option<Timestamp> {
        let metadata = missing_metadata(claim, launched);
        let complete = metadata.labels.is_empty() && metadata.annotations.is_empty();
        if !deleting && !complete {
            let deadline = claim
                .uid()
                .and_then(|uid| self.check_deadline(input, claim, &uid, "Launched", step));
            if deadline.is_none() {
                let delete = Effect::delete_claim(claim);
                return self.outbox.send(input.now, delete, step).err().flatten();
            }
            let write = ObjectWrite::set_instance(claim, metadata);
            let sent = self.outbox.send(input.now, write, step);
            return earlier(deadline, sent.err().flatten());
        }
        if !deleting && let Some(again) = self.launched_and_there(input, claim, launched, step) {
            return again;
        }
        let list = edited_claim(claim, input.now, |conditions| {
            conditions.set_true("Launched");
            if !conditions.is_true("Registered") {
                conditions.set_unknown("Registered", "NodeNotFound", "node has not registered yet");
            }
        });
        let edit = NodeClaimStatusEdit {
            instance: Some(InstanceStatus::from(launched)),
            conditions: Some(list.unwrap_or_else(|| claim.status.conditions.clone())),
            ..NodeClaimStatusEdit::default()
        };
        let write = ObjectWrite::claim_status(claim, edit);
        let sent = self.outbox.send(input.now, write, step);
        sent.err().flatten()
    }

    /// An instance whose Node joins in a moment is registered first, so that status tells of its launch and its
    /// registration at once. `None` = nothing is to be waited for.
    #[expect(
        clippy::option_option,
        reason = "the outer option says whether to wait, the inner one until when, if that is known"
    )]
    fn launched_and_there(
        &mut self,
        input: &StepInput<'_>,
        claim: &NodeClaim,
        launched: &LaunchedInstance,
        step: &mut Step,
    ) -> Option<Option<Timestamp>> {
        // Only a claim that says which instance it has is one with its Node before status tells.
        let uid = claim
            .uid()
            .filter(|_| claim.annotation(labels::PROVIDER_ID) == Some(&launched.provider_id))?;
        let known = *self.labelled.entry(uid.clone()).or_insert(input.now);
        let is_there = input
            .snapshot
            .nodes
            .get(&*launched.provider_id)
            .and_then(|state_node| state_node.node.as_deref())
            .is_some_and(|node| node.metadata.deletion_timestamp.is_none());
        let join_grace_ms = input.settings.join_grace_ms;
        let patience = if is_there {
            join_grace_ms.saturating_add(REGISTERS_MS)
        } else {
            join_grace_ms.min(JOINS_MS)
        };
        let until = Some(after(known, patience)).filter(|until| *until > input.now)?;
        let again = is_there
            .then(|| self.update_progress(input, claim, uid, Some(launched), step))
            .flatten();
        Some(earlier(again, Some(until)))
    }

    /// Deleted before it had an instance, as far as status says. A process that was killed may have launched one.
    pub(super) fn abandon(
        &mut self,
        input: &StepInput<'_>,
        claim: &NodeClaim,
        uid: Uid,
        step: &mut Step,
    ) -> Option<Timestamp> {
        if self.launches.is_running(&uid)
            || !has_finalizer(&claim.metadata, labels::TERMINATION_FINALIZER)
        {
            return None;
        }
        if !self.empty.contains(&uid) {
            if self.batch_is_launching(input.snapshot, claim) {
                return Some(after(input.now, BATCH_SETTLES_MS));
            }
            self.wanted.insert(uid, claim.name());
            return None;
        }
        let target = ObjectRef::Claim(claim.name());
        let write = ObjectWrite::remove_finalizer(
            target.clone(),
            &claim.metadata,
            labels::TERMINATION_FINALIZER,
        );
        if let Err(at) = self.outbox.send(input.now, write, step) {
            return at;
        }
        step.record(
            input,
            DeciderId::Lifecycle,
            target,
            Verdict::Removed,
            vec![Reason::Deleted],
        );
        None
    }

    /// Claims of the same batch that stay are still to get their instances: what is left then may be the one of this claim.
    fn batch_is_launching(&self, snapshot: &Snapshot, claim: &NodeClaim) -> bool {
        let Some(token) = claim.annotation(labels::LAUNCH_BATCH) else {
            return false;
        };
        let lacks_instance =
            |uid: &Uid| !self.instances.contains_key(uid) && !self.empty.contains(uid);
        snapshot.claims.values().any(|other| {
            other.annotation(labels::LAUNCH_BATCH) == Some(token)
                && other.metadata.deletion_timestamp.is_none()
                && other.instance_id().is_none()
                && other.uid().is_some_and(|uid| lacks_instance(&uid))
        })
    }

    /// Asks for the list of instances if a deleted claim waits for it.
    pub(super) fn search(&mut self, now: Timestamp, step: &mut Step) {
        if self.wanted.is_empty() {
            return;
        }
        match attempt(&mut self.search, &(), now) {
            Ok(()) => {
                self.asked.clone_from(&self.wanted);
                step.effect(Effect::ListInstances);
            }
            Err(Some(at)) => step.wake_at(at),
            Err(None) => {}
        }
    }
}
