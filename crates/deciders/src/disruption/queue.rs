//! Executing commands, a phase at a time. Nothing here waits: each step looks at the objects and goes as far as they
//! allow.
//!
//! ```text
//! Held ─► revalidate ─► Fencing ─► Grace ─► revalidate ─► Marking ─► Launching ─► last look ─► Deleting ─► done
//!   └──────────┴───────────┴─────────┴─────────┴────────────┴───────────┴────────────┘ abandoned: left-overs are cleaned
//! ```
//!
//! Phases go on when the *objects* show what was asked for, so a lost or doubled answer changes nothing.

use std::sync::Arc;

use jiff::Timestamp;

use super::reporter::{self, DisruptionReporter};
use super::validation::{self, InvalidatedCommand, revalidate};
use super::writes::{self, CommandWrite};
use super::{DisruptionDecider, RESUME_MS};
use crate::node_claim_request::{NameGenerator, NodeClaimRequest};
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::names::{ClaimName, ObjectRef};
use mortise_apis::values::after;
use mortise_engine::decider::{Step, StepInput};
use mortise_engine::decider_id::DeciderId;
use mortise_engine::effect::Effect;
use mortise_engine::record::Verdict;
use mortise_engine::write::{NodeTaints, ObjectWrite};
use mortise_planning::disruption::candidate::Candidate;
use mortise_planning::disruption::command::{
    CommandPhase, DisruptedNode, DisruptionCommand, DisruptionReason, Method, ReplacementClaim,
};
use mortise_planning::disruption::disruption_view::DisruptionView;
use mortise_planning::pause;
use mortise_state::ledger::{Fence, FenceReason, LedgerOp};
use mortise_state::snapshot::StateNode;

/// Writes on Nodes and claims may take this long with all retries; a command whose writes take longer is abandoned.
const WRITE_MS: i64 = 60_000;

/// Replacements must be ready after this (Karpenter: 10 minutes, more with very many commands at once).
const LAUNCH_MS: i64 = 10 * 60_000;

/// How a command goes on.
enum NextPhase {
    /// To this phase, at once.
    Phase(CommandPhase),
    /// It waits for the objects, or until a time that the step was told.
    Waits,
    /// It is done.
    Done,
    /// It is abandoned.
    Abandon(InvalidatedCommand),
}

impl DisruptionDecider {
    /// Takes every command as far as it goes.
    pub(super) fn advance(
        &mut self,
        input: &StepInput<'_>,
        step: &mut Step,
        stop: &dyn Fn() -> bool,
    ) {
        let ids: Vec<u64> = self.commands.keys().copied().collect();
        for id in ids {
            self.drop_vanished(id, input, step);
            while let Some(command) = self.commands.get(&id).cloned() {
                match self.next(&command, input, step, stop) {
                    NextPhase::Phase(phase) => {
                        if let Some(command) = self.commands.get_mut(&id) {
                            command.phase = phase;
                        }
                    }
                    NextPhase::Waits => break,
                    NextPhase::Done => {
                        self.finish(&command, input);
                        self.commands.remove(&id);
                    }
                    NextPhase::Abandon(stale) => self.abandon(id, &stale, input, step),
                }
            }
        }
    }

    fn next(
        &mut self,
        command: &DisruptionCommand,
        input: &StepInput<'_>,
        step: &mut Step,
        stop: &dyn Fn() -> bool,
    ) -> NextPhase {
        let now = input.now;
        match command.phase {
            CommandPhase::Held(until) | CommandPhase::Grace(until) if now < until => {
                step.wake_at(until);
                NextPhase::Waits
            }
            CommandPhase::Held(_) => match self.look_again(command.id, input, step, stop) {
                Ok(true) => NextPhase::Phase(CommandPhase::Fencing(after(now, WRITE_MS))),
                Ok(false) => NextPhase::Waits,
                Err(stale) => NextPhase::Abandon(stale),
            },
            CommandPhase::Fencing(until) => self.fence(command, until, input, step),
            CommandPhase::Grace(_) => match self.look_again(command.id, input, step, stop) {
                Ok(true) => {
                    if let Some(fresh) = self.commands.get(&command.id).cloned() {
                        self.told_words(input, step, |words| words.executed(&fresh));
                    }
                    NextPhase::Phase(CommandPhase::Marking(after(now, WRITE_MS)))
                }
                Ok(false) => NextPhase::Waits,
                Err(stale) => NextPhase::Abandon(stale),
            },
            CommandPhase::Marking(until) => self.mark(command, until, input, step),
            CommandPhase::Launching(since) => self.launch(command, since, input, step),
            CommandPhase::Deleting => self.delete(command, input, step),
        }
    }

    /// Looks at the premises of a command again. `Ok(false)`: time ran out.
    fn look_again(
        &mut self,
        id: u64,
        input: &StepInput<'_>,
        step: &mut Step,
        stop: &dyn Fn() -> bool,
    ) -> Result<bool, InvalidatedCommand> {
        let world = DisruptionView::new(input.context(), &self.commands, Some(id));
        let Some(command) = self.commands.get(&id) else {
            return Ok(false);
        };
        match revalidate(command, &world, &self.received, stop) {
            Ok(fresh) => {
                for (target, reasons) in &fresh.dropped {
                    self.suspects.leaves(&target.key);
                    step.ledger.push(LedgerOp::Unfence(target.claim.clone()));
                    step.record(
                        input,
                        mortise_engine::decider_id::DeciderId::Disruption,
                        ObjectRef::Node(target.node.clone()),
                        mortise_engine::record::Verdict::Abandoned,
                        reasons.clone(),
                    );
                }
                if let Some(command) = self.commands.get_mut(&id) {
                    command.targets = fresh.targets;
                    command.moves = Arc::new(fresh.moves);
                }
                Ok(true)
            }
            Err(stale) if stale.is_stopped() => {
                step.wake_in(input.now, RESUME_MS);
                Ok(false)
            }
            Err(stale) => Err(stale),
        }
    }

    fn fence(
        &mut self,
        command: &DisruptionCommand,
        until: Timestamp,
        input: &StepInput<'_>,
        step: &mut Step,
    ) -> NextPhase {
        let mut done = true;
        for target in &command.targets {
            let Some(claim) = input.snapshot.claims.get(&*target.claim) else {
                continue; // seen when it is validated again
            };
            if input.snapshot.ledger.fence(&target.claim).is_none() {
                step.ledger.push(LedgerOp::Fence(Fence {
                    claim: target.claim.clone(),
                    reason: FenceReason::Disruption,
                    from: input.now,
                }));
            }
            done &= self.say_why(claim, target, command.reason(), input, step);
        }
        if done {
            return NextPhase::Phase(CommandPhase::Grace(after(
                input.now,
                input.settings.bind_grace_period_ms,
            )));
        }
        give_up_after(until, "failed to write the fence", input, step)
    }

    /// Fences a node by the condition that says why it goes. `true`: the claim has it.
    fn say_why(
        &mut self,
        claim: &NodeClaim,
        target: &DisruptedNode,
        reason: DisruptionReason,
        input: &StepInput<'_>,
        step: &mut Step,
    ) -> bool {
        let is_told = writes::is_marked(claim, Some(reason));
        if !is_told {
            let effect = || writes::condition(claim, Some(reason), input.now);
            self.write(
                claim_ref(target),
                CommandWrite::Condition,
                effect,
                input,
                step,
            );
        }
        is_told
    }

    fn mark(
        &mut self,
        command: &DisruptionCommand,
        until: Timestamp,
        input: &StepInput<'_>,
        step: &mut Step,
    ) -> NextPhase {
        let mut done = true;
        for target in &command.targets {
            let state_node = input.snapshot.nodes.get(&*target.key);
            let Some(StateNode {
                node: Some(node),
                claim: Some(claim),
                ..
            }) = state_node.map(|state_node| &**state_node)
            else {
                return NextPhase::Abandon(InvalidatedCommand::vanished(target));
            };
            if !writes::is_tainted(node) {
                done = false;
                let waits = !command.moves.claims.is_empty();
                let taints = if waits {
                    NodeTaints::disrupted(node)
                } else {
                    NodeTaints::disrupted_and_excluded(node)
                };
                let effect = || ObjectWrite::set_taints(node, taints);
                let subject = ObjectRef::Node(target.node.clone());
                self.write(subject, CommandWrite::Taint, effect, input, step);
            }
            // It was there before the grace began; another client may have removed it.
            done &= self.say_why(claim, target, command.reason(), input, step);
        }
        if !done {
            return give_up_after(until, "failed to write taint and condition", input, step);
        }
        if let Err(stale) = self.order_replacements(command, input, step) {
            return NextPhase::Abandon(stale);
        }
        self.nominate(command, after(input.now, LAUNCH_MS), input, step);
        NextPhase::Phase(CommandPhase::Launching(input.now))
    }

    fn order_replacements(
        &mut self,
        command: &DisruptionCommand,
        input: &StepInput<'_>,
        step: &mut Step,
    ) -> Result<(), InvalidatedCommand> {
        let mut namer = NameGenerator::new(input.seed ^ command.id);
        let replaces: Vec<ClaimName> = command
            .targets
            .iter()
            .map(|each| each.claim.clone())
            .collect();
        let mut replacements = Vec::new();
        let mut orders = Step::default();
        let mut planned_claims = Vec::new();
        for planned in &command.moves.claims {
            let Some(pool) = input.snapshot.pools.get(&planned.pool) else {
                return Err(InvalidatedCommand::scheduling(format!(
                    "NodePool {} was deleted",
                    planned.pool
                )));
            };
            let claim = NodeClaimRequest {
                planned,
                pool,
                name: namer.claim(&planned.pool, input.snapshot),
                replaces: &replaces,
            };
            claim.order(input, &mut orders);
            let mut reasons = claim.reasons();
            reasons.push(reporter::cause(command.reason()));
            planned_claims.push((ObjectRef::Claim(claim.name.clone()), reasons));
            replacements.push(ReplacementClaim {
                claim: claim.name,
                seen: false,
            });
        }
        step.effects.append(&mut orders.effects);
        step.ledger.append(&mut orders.ledger);
        for (claim, reasons) in planned_claims {
            let (by, verdict) = (DeciderId::Disruption, Verdict::NodePlanned);
            step.announce(input, by, [claim], verdict, reasons);
        }
        if let Some(command) = self.commands.get_mut(&command.id) {
            command.replacements = replacements;
        }
        Ok(())
    }

    /// Nominates the pods to where they will land. A change of a pod withdraws its nomination, so each step does this
    /// again.
    fn nominate(
        &self,
        command: &DisruptionCommand,
        until: Timestamp,
        input: &StepInput<'_>,
        step: &mut Step,
    ) {
        for placement in &command.moves.placements {
            let pod = input.snapshot.pods.get(&placement.pod.key);
            let Some(pod) = pod.filter(|pod| pod.uid == placement.pod.uid && pod.is_active())
            else {
                continue;
            };
            if input.snapshot.ledger.nomination(&pod.uid).is_none() {
                let place = placement.place.clone();
                let nomination = pod.nomination(place, input.now, until);
                step.ledger.push(LedgerOp::Nominate(nomination));
            }
        }
    }

    fn launch(
        &mut self,
        command: &DisruptionCommand,
        since: Timestamp,
        input: &StepInput<'_>,
        step: &mut Step,
    ) -> NextPhase {
        let until = after(since, LAUNCH_MS);
        let mut replacements = command.replacements.clone();
        let mut ready = true;
        for replacement in &mut replacements {
            let claim = input.snapshot.claims.get(&*replacement.claim);
            let gone = claim.map_or(replacement.seen, |claim| {
                claim.metadata.deletion_timestamp.is_some()
            });
            if gone {
                return NextPhase::Abandon(InvalidatedCommand::replacement(
                    "replacement was deleted",
                ));
            }
            replacement.seen = claim.is_some();
            let initialized = claim.is_some_and(|claim| claim.is_true("Initialized"));
            let launched = claim.is_some_and(|claim| claim.provider_id().is_some());
            if launched && !initialized {
                let name = &replacement.claim;
                self.told_words(input, step, |words| words.waits(name));
            }
            ready &= initialized;
        }
        if let Some(command) = self.commands.get_mut(&command.id) {
            command.replacements = replacements;
        }
        // A pod that kube-scheduler bound just before the taint may not be seen yet; without the extender nothing else kept it away.
        let seen = after(since, input.settings.bind_grace_period_ms);
        let look_at = if ready { seen } else { until };
        if input.now < look_at {
            step.wake_at(look_at);
            self.nominate(command, until, input, step);
            return NextPhase::Waits;
        }
        if !ready {
            return NextPhase::Abandon(InvalidatedCommand::replacement(
                "replacements were not ready in time",
            ));
        }
        match validation::last_look(command, input) {
            Ok(()) => NextPhase::Phase(CommandPhase::Deleting),
            Err(stale) => NextPhase::Abandon(stale),
        }
    }

    fn delete(
        &mut self,
        command: &DisruptionCommand,
        input: &StepInput<'_>,
        step: &mut Step,
    ) -> NextPhase {
        let mut done = true;
        for target in &command.targets {
            let claim = input.snapshot.claims.get(&*target.claim);
            let Some(claim) = claim.filter(|claim| {
                claim.uid() == target.uid && claim.metadata.deletion_timestamp.is_none()
            }) else {
                continue;
            };
            done = false;
            let node = input.snapshot.nodes.get(&*target.key);
            let pause = node.and_then(|node| pause::of_node(input.snapshot, node, input.now));
            if let Some(pause) = pause {
                step.wake_at(pause::look_again(&pause, input.now));
                continue;
            }
            let uid = claim.uid();
            let effect = || Effect::Delete {
                target: claim_ref(target),
                uid,
                grace_seconds: None,
            };
            if self.write(claim_ref(target), CommandWrite::Delete, effect, input, step) {
                let reason = command.reason();
                self.told_words(input, step, |words| words.terminating(target, reason));
            }
        }
        if done {
            NextPhase::Done
        } else {
            NextPhase::Waits
        }
    }

    /// Asks for a write unless it is on its way, or failed a moment ago. Returns whether it was asked for.
    pub(super) fn write<E: Into<Effect>>(
        &mut self,
        subject: ObjectRef,
        write: CommandWrite,
        effect: impl FnOnce() -> E,
        input: &StepInput<'_>,
        step: &mut Step,
    ) -> bool {
        let key = (subject, write);
        let begins = self.flights.begin(&key, input.now);
        if begins {
            step.effect(effect().into());
        } else if let Some(at) = self.flights.waits_until(&key) {
            step.wake_at(at);
        }
        begins
    }

    fn finish(&mut self, command: &DisruptionCommand, input: &StepInput<'_>) {
        let until = after(input.now, input.settings.disruption_cooldown_ms);
        for placement in &command.moves.placements {
            let state_node = input.snapshot.nodes.get(&*placement.node);
            if let Some(claim) = state_node.and_then(|state_node| state_node.claim_name()) {
                self.received.insert(claim, until);
            }
        }
        for target in &command.targets {
            self.failures.succeeded(&target.pool);
            self.suspects.leaves(&target.key);
        }
        self.look_soon();
    }

    pub(super) fn abandon(
        &mut self,
        id: u64,
        stale: &InvalidatedCommand,
        input: &StepInput<'_>,
        step: &mut Step,
    ) {
        let Some(command) = self.commands.remove(&id) else {
            return;
        };
        self.told_words(input, step, |words| {
            words.abandoned(&command, stale.word, &stale.reasons);
        });
        for target in &command.targets {
            self.suspects.leaves(&target.key);
            if !matches!(command.phase, CommandPhase::Held(_)) {
                step.ledger.push(LedgerOp::Unfence(target.claim.clone()));
            }
            if stale.is_of_replacement() {
                self.failures.failed(&target.pool, input.now);
            }
        }
        if command.phase.is_nominated() {
            for placement in &command.moves.placements {
                step.ledger
                    .push(LedgerOp::Withdraw(placement.pod.uid.clone()));
            }
        }
        self.look_soon();
    }

    /// Nodes that go by themselves leave their command; a command that depended on them is abandoned.
    fn drop_vanished(&mut self, id: u64, input: &StepInput<'_>, step: &mut Step) {
        let Some(command) = self.commands.get_mut(&id) else {
            return;
        };
        if command.phase == CommandPhase::Deleting {
            return;
        }
        let going = |target: &DisruptedNode| {
            input
                .snapshot
                .claims
                .get(&*target.claim)
                .is_none_or(|claim| {
                    claim.uid() != target.uid || claim.metadata.deletion_timestamp.is_some()
                })
        };
        let Some(first) = command.targets.iter().find(|target| going(target)).cloned() else {
            return;
        };
        let goes_on = command.method == Method::Emptiness || command.phase.is_nominated();
        if goes_on {
            command.targets.retain(|target| {
                let goes = going(target);
                if goes {
                    self.suspects.leaves(&target.key);
                }
                !goes
            });
        }
        if !goes_on || command.targets.is_empty() {
            self.abandon(id, &InvalidatedCommand::vanished(&first), input, step);
        }
    }

    pub(super) fn told_words<'b>(
        &mut self,
        input: &StepInput<'b>,
        step: &mut Step,
        say: impl FnOnce(&mut DisruptionReporter<'_, 'b>),
    ) {
        say(&mut DisruptionReporter {
            told: &mut self.told,
            input,
            step,
        });
    }
}

fn claim_ref(target: &DisruptedNode) -> ObjectRef {
    ObjectRef::Claim(target.claim.clone())
}

fn give_up_after(
    until: Timestamp,
    what: &str,
    input: &StepInput<'_>,
    step: &mut Step,
) -> NextPhase {
    if until <= input.now {
        return NextPhase::Abandon(InvalidatedCommand::new("unknown", what));
    }
    step.wake_at(until);
    NextPhase::Waits
}

/// Where a command begins.
pub(super) fn first_phase(method: Method, input: &StepInput<'_>) -> CommandPhase {
    match method {
        // Drift saves no money, so there is nothing that a moment's change could make untrue.
        Method::Drift => CommandPhase::Held(input.now),
        Method::Emptiness | Method::Multi | Method::Single | Method::Repack => CommandPhase::Held(
            after(input.now, input.settings.disruption_validation_delay_ms),
        ),
    }
}

/// Nodes of a command.
pub(super) fn targets(candidates: &[Candidate]) -> Vec<DisruptedNode> {
    candidates.iter().map(DisruptedNode::from).collect()
}
