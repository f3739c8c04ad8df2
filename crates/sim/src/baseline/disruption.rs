//! Disruption in Karpenter's way: one loop that looks for one command at a time, and a queue that executes what was found.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::new_node_claim::{self, ClaimNames};
use super::{BaselineProposals, prefix_search};
use mortise_apis::taints;
use mortise_apis::values::after;
use mortise_engine::decider::{Decider, Step, StepInput};
use mortise_engine::decider_id::DeciderId;
use mortise_engine::effect::Effect;
use mortise_engine::freshness;
use mortise_engine::write::{NodeTaints, ObjectWrite};
use mortise_planning::context::PlanningContext;
use mortise_planning::disruption::candidate::{Candidate, DisruptionClass};
use mortise_planning::disruption::command::{
    CommandPhase, DisruptedNode, DisruptionCommand, Method, RelocationPlan, ReplacementClaim,
};
use mortise_planning::disruption::disruption_view::DisruptionView;
use mortise_planning::disruption::refusals::Refusals;
use mortise_planning::disruption::search::{self, FoundCommand, SearchOutcome};
use mortise_planning::disruption::simulation::{SimulationRules, what_if};
use mortise_planning::disruption::static_drift;
use mortise_state::index::Changes;
use mortise_state::ledger::{Fence, FenceReason, LedgerOp};
use mortise_state::snapshot::{NodeKey, StateNode};

/// Time between two looks that find nothing.
const POLL_MS: i64 = 10_000;

/// Time from a command to the next look.
const NEXT_MS: i64 = 1_000;

/// Consolidation that found nothing is tried again after this, although nothing changed.
const STALE_MS: i64 = 5 * 60_000;

/// Replacements must be initialized within this.
const LAUNCH_MS: i64 = 10 * 60_000;

/// A write that does not show is sent again after this.
const RESEND_MS: i64 = 5_000;

/// The loop and the queue.
#[derive(Debug, Default)]
pub(super) struct BaselineDisruption {
    /// At most one of them is held; the others are executed.
    commands: BTreeMap<u64, DisruptionCommand>,
    next_id: u64,
    poll_at: Option<Timestamp>,
    /// Consolidation found nothing then, and nothing has changed since.
    nothing_since: Option<Timestamp>,
    /// When a node was last tainted, or its NodeClaim deleted.
    written: BTreeMap<(NodeKey, WriteKind), Timestamp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum WriteKind {
    Taint,
    Delete,
}

/// Whether a command goes on.
enum Progress {
    /// It waits.
    Waits,
    /// It is in this phase now.
    Phase(CommandPhase),
    /// It is done.
    Done,
    /// It is abandoned.
    Abandoned,
}

impl BaselineDisruption {
    fn advance(&mut self, input: &StepInput<'_>, step: &mut Step, stop: &dyn Fn() -> bool) {
        let ids: Vec<u64> = self.commands.keys().copied().collect();
        for id in ids {
            while let Some(command) = self.commands.get(&id).cloned() {
                let progress = match command.phase {
                    CommandPhase::Held(until) if input.now < until => {
                        step.wake_at(until);
                        Progress::Waits
                    }
                    CommandPhase::Held(_) => self.validate_and_start(&command, input, step, stop),
                    CommandPhase::Launching(since) => self.launch(&command, since, input, step),
                    _ => self.delete(&command, input, step),
                };
                match progress {
                    Progress::Waits => break,
                    Progress::Phase(phase) => {
                        if let Some(command) = self.commands.get_mut(&id) {
                            command.phase = phase;
                        }
                    }
                    Progress::Done => {
                        self.commands.remove(&id);
                    }
                    Progress::Abandoned => {
                        self.commands.remove(&id);
                        abandon(&command, step);
                    }
                }
            }
        }
    }

    /// Validates a command at the end of its delay; marks its nodes and orders its replacements.
    fn validate_and_start(
        &mut self,
        command: &DisruptionCommand,
        input: &StepInput<'_>,
        step: &mut Step,
        stop: &dyn Fn() -> bool,
    ) -> Progress {
        let view =
            DisruptionView::new(input.context(), &self.commands, Some(command.id)).without_bound();
        let Some((targets, moves)) = validate(command, &view, stop) else {
            return Progress::Abandoned;
        };
        let mut names = ClaimNames::new(input.seed ^ command.id);
        let mut replacements = Vec::new();
        for planned in &moves.claims {
            let by = DeciderId::Disruption;
            let claim = new_node_claim::create(planned, &mut names, by, input, step);
            let Some(claim) = claim else {
                return Progress::Abandoned;
            };
            replacements.push(ReplacementClaim { claim, seen: false });
        }
        for target in &targets {
            step.ledger.push(LedgerOp::Fence(Fence {
                claim: target.claim.clone(),
                reason: FenceReason::Disruption,
                from: input.now,
            }));
        }
        if let Some(command) = self.commands.get_mut(&command.id) {
            command.targets = targets;
            command.moves = Arc::new(moves);
            command.replacements = replacements;
        }
        Progress::Phase(CommandPhase::Launching(input.now))
    }

    fn launch(
        &mut self,
        command: &DisruptionCommand,
        since: Timestamp,
        input: &StepInput<'_>,
        step: &mut Step,
    ) -> Progress {
        let until = after(since, LAUNCH_MS);
        let mut is_ready = true;
        for target in &command.targets {
            let node = input.snapshot.nodes.get(&*target.key);
            let Some(node) = node.and_then(|node| node.node.as_ref()) else {
                continue;
            };
            let taint = taints::disrupted();
            if node.has_taint(&taint.key, &taint.effect) {
                continue;
            }
            is_ready = false;
            if self.may_write(&target.key, WriteKind::Taint, input, step) {
                let write = ObjectWrite::set_taints(node, NodeTaints::disrupted(node));
                step.effect(write.into());
            }
        }
        let mut replacements = command.replacements.clone();
        for replacement in &mut replacements {
            let claim = input.snapshot.claims.get(&*replacement.claim);
            let is_gone = claim.map_or(replacement.seen, |claim| {
                claim.metadata.deletion_timestamp.is_some()
            });
            if is_gone {
                return Progress::Abandoned;
            }
            replacement.seen = claim.is_some();
            is_ready &= claim.is_some_and(|claim| claim.is_true("Initialized"));
        }
        if let Some(command) = self.commands.get_mut(&command.id) {
            command.replacements = replacements;
        }
        if is_ready {
            return Progress::Phase(CommandPhase::Deleting);
        }
        if until <= input.now {
            return Progress::Abandoned;
        }
        step.wake_at(until);
        Progress::Waits
    }

    fn delete(
        &mut self,
        command: &DisruptionCommand,
        input: &StepInput<'_>,
        step: &mut Step,
    ) -> Progress {
        let mut is_done = true;
        for target in &command.targets {
            let claim = input.snapshot.claims.get(&*target.claim);
            let there = claim.filter(|claim| {
                claim.uid() == target.uid && claim.metadata.deletion_timestamp.is_none()
            });
            let Some(claim) = there else { continue };
            is_done = false;
            if self.may_write(&target.key, WriteKind::Delete, input, step) {
                step.effect(Effect::delete_claim(claim));
            }
        }
        if is_done {
            Progress::Done
        } else {
            Progress::Waits
        }
    }

    /// Whether a write on the node may be sent; the last one of the same kind does not show, or there was none.
    fn may_write(
        &mut self,
        node: &NodeKey,
        kind: WriteKind,
        input: &StepInput<'_>,
        step: &mut Step,
    ) -> bool {
        let key = (node.clone(), kind);
        let last = self.written.get(&key);
        let next = last.map(|at| after(*at, RESEND_MS));
        if let Some(next) = next.filter(|next| *next > input.now) {
            step.wake_at(next);
            return false;
        }
        self.written.insert(key, input.now);
        step.wake_in(input.now, RESEND_MS);
        true
    }

    /// Removes the taint from nodes that no command removes: what a killed process or an abandoned command left.
    fn clean(&self, input: &StepInput<'_>, step: &mut Step) {
        let taint = taints::disrupted();
        for (key, state) in input.snapshot.nodes.sorted() {
            let StateNode {
                node: Some(node),
                claim: Some(claim),
                ..
            } = &**state
            else {
                continue;
            };
            let is_marked = node.has_taint(&taint.key, &taint.effect);
            let is_going = claim.metadata.deletion_timestamp.is_some();
            let is_taken = self.commands.values().any(|command| command.has(key));
            if is_marked && !is_going && !is_taken {
                let write = ObjectWrite::set_taints(node, NodeTaints::restored(node));
                step.effect(write.into());
            }
        }
    }

    /// Looks for one command, method after method.
    fn look(&mut self, input: &StepInput<'_>, step: &mut Step, stop: &dyn Fn() -> bool) {
        self.clean(input, step);
        let view = DisruptionView::new(input.context(), &self.commands, None).without_bound();
        let since = self.nothing_since;
        let is_consolidated = since.is_some_and(|at| input.now < after(at, STALE_MS));
        let found = find(&view, !is_consolidated, stop);
        let Some(FoundCommand {
            method,
            candidates,
            moves,
        }) = found
        else {
            self.nothing_since = Some(since.filter(|_| is_consolidated).unwrap_or(input.now));
            self.poll_at = Some(after(input.now, POLL_MS));
            return;
        };
        let delay = match method {
            Method::Drift => 0,
            _ => input.settings.disruption_validation_delay_ms,
        };
        let command = DisruptionCommand {
            id: self.next_id,
            method,
            targets: candidates.iter().map(DisruptedNode::from).collect(),
            moves: Arc::new(moves),
            decided: input.now,
            phase: CommandPhase::Held(after(input.now, delay)),
            replacements: Vec::new(),
        };
        self.next_id += 1;
        step.commands.push(command.clone());
        self.commands.insert(command.id, command);
        self.poll_at = Some(after(input.now, NEXT_MS));
    }
}

/// What the two methods of consolidation find.
pub(super) fn proposals(context: PlanningContext<'_>) -> BaselineProposals {
    let view = DisruptionView::new(context, &BTreeMap::new(), None).without_bound();
    let candidates: Vec<Candidate> = view
        .nodes()
        .into_iter()
        .filter_map(|node| Candidate::new(node, &view, DisruptionClass::Graceful).ok())
        .collect();
    let eligible = eligible(&candidates, &view);
    BaselineProposals {
        multi: prefix_search::several(&eligible, &view, &|| false),
        single: prefix_search::one(&eligible, &view, &|| false),
    }
}

/// Nodes that may be consolidated, in the order in which they are tried.
fn eligible<'c>(candidates: &'c [Candidate], view: &DisruptionView<'_>) -> Vec<&'c Candidate> {
    let may = |each: &&Candidate| search::eligible(each, view, &BTreeMap::new()).is_ok();
    search::best_first(candidates.iter().filter(may).collect())
}

/// The first command that a method finds.
fn find(
    view: &DisruptionView<'_>,
    consolidates: bool,
    stop: &dyn Fn() -> bool,
) -> Option<FoundCommand> {
    let (mut graceful, mut eventual) = (Vec::new(), Vec::new());
    for node in view.nodes() {
        graceful.extend(Candidate::new(node, view, DisruptionClass::Graceful));
        eventual.extend(Candidate::new(node, view, DisruptionClass::Eventual));
    }
    let found = |outcome: SearchOutcome| match outcome {
        SearchOutcome::Found(found) => Some(*found),
        SearchOutcome::Unfinished | SearchOutcome::Waiting(_) | SearchOutcome::Nothing => None,
    };
    let empty = || search::empty(&graceful, view, &mut Refusals::default(), stop);
    let of_static = || static_drift::drifted(&eventual, view, |_| false, |_, _| {});
    let drifted = || {
        let mut none = Refusals::default();
        search::drifted(&eventual, view, |_| false, &mut none, |_, _| {}, stop)
    };
    if let Some(command) = found(empty())
        .or_else(|| found(of_static()))
        .or_else(|| found(drifted()))
    {
        return Some(command);
    }
    if !consolidates {
        return None;
    }
    let eligible = eligible(&graceful, view);
    prefix_search::several(&eligible, view, stop)
        .or_else(|| prefix_search::one(&eligible, view, stop))
}

/// The nodes and moves of a command as they are now; `None` if it does not hold any more.
fn validate(
    command: &DisruptionCommand,
    view: &DisruptionView<'_>,
    stop: &dyn Fn() -> bool,
) -> Option<(Vec<DisruptedNode>, RelocationPlan)> {
    let class = command.method.candidate_class();
    let candidate = |target: &DisruptedNode| {
        let node = view.snapshot().nodes.get(&*target.key)?;
        let candidate = Candidate::new(node, view, class).ok()?;
        (candidate.claim.uid() == target.uid).then_some(candidate)
    };
    let candidates: Vec<Candidate> = command.targets.iter().filter_map(candidate).collect();
    let is_whole = candidates.len() == command.targets.len();
    match command.method {
        Method::Drift => is_whole.then(|| (command.targets.clone(), (*command.moves).clone())),
        Method::Emptiness => {
            let none = &mut Refusals::default();
            match search::empty(&candidates, view, none, stop) {
                SearchOutcome::Found(found) => {
                    let targets = found.candidates.iter().map(DisruptedNode::from);
                    Some((targets.collect(), found.moves))
                }
                _ => None,
            }
        }
        Method::Multi | Method::Single | Method::Repack => {
            let reason = command.method.reason();
            let mut allocation = view.budgets.allocation(reason);
            let is_allowed = |each: &Candidate| {
                search::eligible(each, view, &BTreeMap::new()).is_ok()
                    && allocation.allocate(&each.pool_name)
            };
            if !is_whole || !candidates.iter().all(is_allowed) {
                return None;
            }
            let all: Vec<&Candidate> = candidates.iter().collect();
            let moves = what_if(&all, SimulationRules::Cheaper, view, stop).ok()?;
            let is_same = moves.claims.len() == command.moves.claims.len();
            is_same.then(|| (command.targets.clone(), moves))
        }
    }
}

fn abandon(command: &DisruptionCommand, step: &mut Step) {
    if command.phase.is_marked() {
        for target in &command.targets {
            step.ledger.push(LedgerOp::Unfence(target.claim.clone()));
        }
    }
}

impl Decider for BaselineDisruption {
    fn id(&self) -> DeciderId {
        DeciderId::Disruption
    }

    fn fresh(&self) -> Box<dyn Decider> {
        Box::new(Self::default())
    }

    fn is_interested(&self, changes: &Changes) -> bool {
        changes.everything
            || changes.cluster_objects
            || !(changes.pods.is_empty()
                && changes.nodes.is_empty()
                && changes.claims.is_empty()
                && changes.pools.is_empty()
                && changes.node_classes.is_empty())
    }

    fn step(&mut self, input: &StepInput<'_>, stop: &dyn Fn() -> bool) -> Step {
        let mut step = Step::default();
        if self.is_interested(input.changes) {
            self.nothing_since = None;
        }
        self.written
            .retain(|_, at| after(*at, RESEND_MS) > input.now);
        if input.held_by(DeciderId::Disruption).is_some() {
            step.wake_in(input.now, freshness::RECHECK_MS);
            return step;
        }
        self.advance(input, &mut step, stop);
        let is_held = |command: &DisruptionCommand| matches!(command.phase, CommandPhase::Held(_));
        let poll_at = self.poll_at.unwrap_or(input.now);
        if !self.commands.values().any(is_held) {
            if poll_at <= input.now {
                self.look(input, &mut step, stop);
                self.advance(input, &mut step, stop);
            }
            step.wake_at(self.poll_at.unwrap_or(input.now).max(after(input.now, 1)));
        }
        step
    }
}
