//! Disruption: nodes that are empty, drifted or more expensive than their pods need are deleted, and no others.
//!
//! # Problem
//! Every node costs money, and every move costs its pods. Each node is either left alone for a reason that people can
//! read, or goes as part of a command that keeps every invariant.
//!
//! # How
//! - [`candidate`]: what may be disrupted, and what blocks the rest.
//! - [`search`]: emptiness, drift, consolidation; [`simulation`] asks the solver unless [`feasibility_bound`] knows the
//!   answer, [`price`] makes sure of the saving, [`cost`] weighs it.
//! - [`queue`]: a command is held, validated, fenced, validated again after pods on their way have arrived, marked,
//!   replaced, and only then deleted. Several go on at once, under the budgets.
//! - [`cleanup_queue`]: what a command left behind is cleaned, also after a restart.
//!
//! # Invariants (Law 9)
//! - Nodes of a command count against the budget from its decision to their end.
//! - A command that moves pods for money never raises the bill: each type that its replacement may become costs less,
//!   at its worst, than what goes. An equal price never moves. (Drift replaces at any price.)
//! - Pods that a budget or an annotation protects block their node, when it is chosen and twice again before the taint;
//!   an annotation also right before the deletion. Draining is termination's, by the Eviction API.
//! - A node launched for a move, or one that moved pods came to, rests before it is moved itself: no A -> B -> A.
//!
//! # Never
//! It never deletes Nodes or pods, and never touches nodes without a claim.
//!
//! # Source
//! karpenter-core 5; extender 8.2 rule 8 (the fence). The 15 s hold blocks nothing but its own command.

mod change_filter;
mod cleanup_queue;
mod methods;
mod queue;
mod reporter;
mod validation;
mod writes;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use crate::launch_shape::batch_new_claims;
use crate::tracking::event_throttle::EventThrottle;
use crate::tracking::request_tracker::RequestTracker;
use change_filter::{ChangeFilter, RelevantChange};
use cleanup_queue::CleanupQueue;
use methods::{Look, Methods, RESUME_MS};
use mortise_apis::names::{ClaimName, NamespacedName, ObjectRef, PoolName};
use mortise_apis::values::after;
use mortise_engine::decider::{Decider, InboxMessage, Step, StepInput};
use mortise_engine::decider_id::DeciderId;
use mortise_engine::effect::{Effect, EffectError};
use mortise_engine::freshness;
use mortise_planning::disruption::candidate::{Candidate, Policy};
use mortise_planning::disruption::command::{CommandPhase, DisruptionCommand, DisruptionReason};
use mortise_planning::disruption::disruption_view::DisruptionView;
use mortise_planning::disruption::search::FoundCommand;
use mortise_planning::disruption::simulation;
use mortise_planning::reason::BalancedScore;
use mortise_state::index::Changes;
use mortise_state::snapshot::BufferDemand;
use reporter::DisruptionReporter;
use validation::InvalidatedCommand;
use writes::CommandWrite;

/// Most time between two looks while things change. Karpenter's poll.
const POLL_MS: i64 = 10_000;

/// Least time between two looks.
const SOON_MS: i64 = 1_000;

/// A look that found nothing is repeated after this although nothing changed: budgets have schedules, prices and
/// protections have times. Karpenter's bound is the same.
const RECHECK_MS: i64 = 5 * 60_000;

/// Most commands at a time. Budgets bound them much earlier; this bounds the memory of a cluster without budgets.
const MOST_COMMANDS: usize = 100;

/// The disruption decider with its memory.
#[derive(Debug)]
pub struct DisruptionDecider {
    commands: BTreeMap<u64, DisruptionCommand>,
    next_id: u64,
    methods: Methods,
    /// Something changed since the last fresh look.
    changed: bool,
    standing: ChangeFilter,
    /// When a fresh look is wanted, whatever changes.
    look_at: Option<Timestamp>,
    /// When a method goes on that had no time left, or is to ask again for what it was refused.
    resume_at: Option<Timestamp>,
    /// When the last fresh look was, and the last one at all.
    begun_at: Option<Timestamp>,
    evaluated_at: Option<Timestamp>,
    suspects: CleanupQueue,
    /// Until when nodes rest that moved pods came to.
    received: BTreeMap<ClaimName, Timestamp>,
    flights: RequestTracker<(ObjectRef, CommandWrite)>,
    /// Pools whose replacements failed.
    failures: RequestTracker<PoolName>,
    told: EventThrottle,
    /// What buffers asked for at the last step.
    demand: Arc<BTreeMap<NamespacedName, Arc<BufferDemand>>>,
}

impl Default for DisruptionDecider {
    fn default() -> Self {
        Self::new()
    }
}

impl DisruptionDecider {
    /// A decider that has seen nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            commands: BTreeMap::new(),
            next_id: 0,
            methods: Methods::default(),
            changed: true,
            standing: ChangeFilter::default(),
            look_at: None,
            resume_at: None,
            begun_at: None,
            evaluated_at: None,
            suspects: CleanupQueue::all(),
            received: BTreeMap::new(),
            flights: flights(),
            // A launch that failed is likely to fail again for a while: 1 min, doubling to 30 min.
            failures: RequestTracker::new(60_000, 30 * 60_000),
            told: EventThrottle::default(),
            demand: Arc::default(),
        }
    }

    fn read_outcomes(&mut self, input: &StepInput<'_>, step: &mut Step) {
        for delivery in input.inbox {
            let InboxMessage::Outcome(outcome) = delivery else {
                continue;
            };
            if let Some(key) = CommandWrite::from_effect(&outcome.effect) {
                match &outcome.result {
                    // A conflict or a missing object is no failure: the fresh object says what is to be done.
                    Ok(_) | Err(EffectError::Conflict(_) | EffectError::NotFound(_)) => {
                        self.flights.succeeded(&key);
                    }
                    Err(_) => {
                        let at = self.flights.failed(&key, input.now);
                        step.wake_at(at);
                    }
                }
            }
            if let (Effect::CreateClaim(claim), Err(error)) = (&*outcome.effect, &outcome.result) {
                let name = claim.name();
                let of = |command: &&DisruptionCommand| {
                    let mut replacements = command.replacements.iter();
                    replacements.any(|replacement| replacement.claim == name)
                };
                if let Some(id) = self.commands.values().find(of).map(|command| command.id) {
                    self.abandon(
                        id,
                        &InvalidatedCommand::replacement(&error.to_string()),
                        input,
                        step,
                    );
                }
            }
        }
    }

    fn read_changes(&mut self, input: &StepInput<'_>) {
        let Changes {
            everything,
            pods,
            nodes,
            claims,
            pools: _,
            node_classes: _,
            cluster_objects: surroundings,
            demand: _,
            requests: _,
            ledger: _,
            pod_events: _,
        } = input.changes;
        self.suspects.see(input.changes);
        if *everything {
            // After a time without leading, answers may have been lost. What is asked for twice is done once.
            self.flights = flights();
        }
        let news = self.standing.takes(input.changes, input.snapshot);
        if news == RelevantChange::Supply {
            self.methods.empty.forget();
            self.methods.drift.forget();
        }
        self.methods.outdated |= *surroundings || news == RelevantChange::Supply;
        // Less room for buffers is more room for pods, and may leave a node empty.
        let is_demand_changed = !Arc::ptr_eq(&self.demand, &input.snapshot.demand);
        if is_demand_changed {
            self.demand = Arc::clone(&input.snapshot.demand);
            self.methods.empty.forget();
            self.methods.drift.forget();
            self.methods.outdated = true;
        }
        if news != RelevantChange::None || is_demand_changed {
            self.look_soon();
            let soon = self.evaluated_at.map_or(input.now, |at| after(at, SOON_MS));
            self.look_no_later_than(soon);
        } else if *surroundings || !(pods.is_empty() && nodes.is_empty() && claims.is_empty()) {
            self.look_soon();
        }
    }

    /// Something changed: what was examined is to be examined again, at the next look.
    fn look_soon(&mut self) {
        self.changed = true;
    }

    fn look_no_later_than(&mut self, at: Timestamp) {
        self.look_at = Some(self.look_at.map_or(at, |known| known.min(at)));
    }

    /// When the next look is due that takes up what changed.
    fn fresh_at(&self, now: Timestamp) -> Timestamp {
        let poll = self.begun_at.map_or(now, |at| {
            after(at, if self.changed { POLL_MS } else { RECHECK_MS })
        });
        self.look_at.map_or(poll, |at| at.min(poll))
    }

    /// When the next look is due.
    fn due_at(&self, now: Timestamp) -> Timestamp {
        let fresh = self.fresh_at(now);
        let wanted = self.resume_at.map_or(fresh, |at| at.min(fresh));
        // Resumed and repeated looks say when; a fresh one keeps its distance.
        let last = self.evaluated_at;
        wanted.max(last.map_or(now, |at| after(at, RESUME_MS)))
    }

    fn resume_no_later_than(&mut self, at: Timestamp) {
        self.resume_at = Some(self.resume_at.map_or(at, |known| known.min(at)));
    }

    fn look(&mut self, input: &StepInput<'_>, step: &mut Step, stop: &dyn Fn() -> bool) {
        let is_fresh = self.fresh_at(input.now) <= input.now;
        self.evaluated_at = Some(input.now);
        self.resume_at = None;
        let others = &self.commands;
        let (world, is_same) =
            DisruptionView::resumed(input.context(), others, &mut self.methods.assumed);
        let world = world.waiting_for_others();
        if is_fresh || !is_same {
            self.methods.refresh(&world);
        }
        // What consolidation has begun it ends first; the other methods begin again at each look.
        if is_fresh && !self.methods.unfinished {
            self.begun_at = Some(input.now);
            self.look_at = None;
            self.changed = false;
            self.methods.restart_consolidation(input.now);
        }
        if self.commands.len() >= MOST_COMMANDS {
            return;
        }
        self.received.retain(|_, until| *until > input.now);
        let mut words = DisruptionReporter {
            told: &mut self.told,
            input,
            step,
        };
        tell_budgets(&world, &mut words);
        let mut look = Look {
            world: &world,
            received: &self.received,
            failures: &self.failures,
            words,
            wakes: None,
            stop,
        };
        let (found, resume) = self.methods.find(&mut look);
        let wakes = look.wakes;
        if let Some(at) = resume {
            self.resume_no_later_than(at);
        }
        if !self.methods.unfinished && self.commands.is_empty() && found.is_none() {
            self.methods.assumed = None; // it would keep a whole cluster until the next look
        }
        if let Some(found) = found {
            self.start(*found, input, step);
            self.changed = true;
            self.look_at = Some(after(input.now, RESUME_MS));
        } else if let Some(at) = wakes {
            self.changed = true; // a rest is over then
            self.look_no_later_than(at);
        }
    }

    fn start(&mut self, found: FoundCommand, input: &StepInput<'_>, step: &mut Step) {
        let id = self.next_id;
        self.next_id += 1;
        let candidates: Vec<&Candidate> = found.candidates.iter().collect();
        let mut policies = candidates.iter().map(|each| each.policy());
        let approvals: Vec<(PoolName, BalancedScore)> =
            if found.method.is_consolidation() && policies.any(|each| each == Policy::Balanced) {
                let world = DisruptionView::new(input.context(), &self.commands, None);
                simulation::scores(&found.moves, &candidates, &world)
            } else {
                Vec::new()
            };
        let command = DisruptionCommand {
            id,
            method: found.method,
            targets: queue::targets(&found.candidates),
            moves: Arc::new(found.moves),
            decided: input.now,
            phase: queue::first_phase(found.method, input),
            replacements: Vec::new(),
        };
        self.told_words(input, step, |words| {
            for (pool, score) in &approvals {
                words.approved(&command, pool, *score);
            }
            words.considered(&command);
        });
        if let CommandPhase::Held(until) = command.phase {
            step.wake_at(until);
        }
        step.commands.push(command.clone());
        self.commands.insert(id, command);
    }
}

/// Writes that fail are tried again after 1 s, doubling to 30 s.
const fn flights() -> RequestTracker<(ObjectRef, CommandWrite)> {
    RequestTracker::new(1_000, 30_000)
}

fn tell_budgets(world: &DisruptionView<'_>, words: &mut DisruptionReporter<'_, '_>) {
    for (pool, object) in &*world.snapshot().pools {
        if object.is_static() || world.budgets.nodes(pool) == 0 {
            continue;
        }
        for reason in DisruptionReason::ALL {
            if world.budgets.allowed(pool, reason) == Some(0) {
                words.no_budget(pool, reason);
            }
        }
    }
}

impl Decider for DisruptionDecider {
    fn id(&self) -> DeciderId {
        DeciderId::Disruption
    }

    fn fresh(&self) -> Box<dyn Decider> {
        Box::new(Self::default())
    }

    fn is_interested(&self, changes: &Changes) -> bool {
        let Changes {
            everything,
            pods,
            nodes,
            claims,
            pools,
            node_classes,
            cluster_objects: surroundings,
            demand,
            requests: _,
            ledger: _,
            pod_events: _,
        } = changes;
        // Nodes change with their pods. Pods without a Node matter to what-ifs only, and only at the next look.
        *everything
            || *surroundings
            || *demand
            || !(nodes.is_empty() && claims.is_empty() && pools.is_empty())
            || !node_classes.is_empty()
            || (!pods.is_empty() && !self.changed)
    }

    fn step(&mut self, input: &StepInput<'_>, stop: &dyn Fn() -> bool) -> Step {
        let mut step = Step::default();
        self.told.sweep(input.now);
        self.read_outcomes(input, &mut step);
        self.read_changes(input);
        if let Some(old) = input.held_by(DeciderId::Disruption) {
            self.told_words(input, &mut step, |words| words.outdated(&old));
            step.wake_in(input.now, freshness::RECHECK_MS);
            return step;
        }
        self.advance(input, &mut step, stop);
        self.clean_leftovers(input, &mut step);
        if self.due_at(input.now) <= input.now {
            self.look(input, &mut step, stop);
            // A command that is not held goes on at once.
            self.advance(input, &mut step, stop);
        }
        step.wake_at(self.due_at(input.now));
        batch_new_claims(input, &mut step);
        step
    }
}
