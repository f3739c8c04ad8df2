//! From a request to its outcome: leadership, faults, the effect itself, and what invariants say of it.

use std::sync::Arc;

use mortise_engine::decider::Decider;
use mortise_engine::effect::{Effect, EffectError, EffectOutput, Outcome};
use mortise_engine::engine::EffectRequest;

use super::Simulation;
use crate::clock::Action;
use crate::cluster;
use crate::faults::{Fault, FaultTarget, PlannedFault};

/// A leader that has lost the lease learns of it within this, in milliseconds.
const UNAWARE_MS: i64 = 3_000;
/// And within this some replica has it again.
const VACANT_MS: i64 = 40_000;

impl Simulation {
    /// Plans one fault, in place of an earlier one that has not come yet; `skip` effects that are meant pass unharmed.
    /// `deciders` serve after a crash. What else is on its way at a crash arrives or is lost, by chance.
    pub fn disturb(
        &mut self,
        target: FaultTarget,
        skip: u64,
        fault: Fault,
        deciders: Vec<Box<dyn Decider>>,
    ) {
        self.faults.plan(PlannedFault {
            target,
            skip,
            fault,
            deciders,
        });
    }

    /// No fault is waited for: it has come, or none was planned.
    #[must_use]
    pub const fn is_undisturbed(&self) -> bool {
        !self.faults.has_planned()
    }

    /// Executes what a replica requested, unless a fault intervenes.
    pub(super) fn execute(&mut self, replica: usize, order: EffectRequest) {
        let effects = &mut self.cluster.stats.effects;
        *effects.entry(order.effect.label()).or_default() += 1;
        // Without the lease nothing is done anyway.
        if self.replicas.has_lease()
            && let Some(planned) = self.faults.strike(&order.effect)
            && self.strike(planned, replica, &order)
        {
            return;
        }
        let result = if self.replicas.may_write(replica, &order) {
            self.invariants
                .check_disruption(&order, &mut self.cluster, &mut self.replicas);
            self.done(replica, &order.effect)
        } else {
            let message = "lost leadership".to_owned();
            Err(EffectError::Unavailable(message))
        };
        self.answer(replica, order, result);
    }

    /// The effect itself; `writer` sees what it wrote at once.
    fn done(&mut self, writer: usize, effect: &Effect) -> Result<EffectOutput, EffectError> {
        if let Effect::Event(event) = effect {
            self.invariants.check_event(event, &mut self.cluster);
        }
        let executed = cluster::execute(effect, &mut self.cluster);
        for (key, object) in executed.returned {
            self.replicas
                .show_write(writer, &key, object, &mut self.cluster);
        }
        executed.result
    }

    fn answer(
        &mut self,
        replica: usize,
        order: EffectRequest,
        result: Result<EffectOutput, EffectError>,
    ) {
        let outcome = Outcome {
            effect: Arc::clone(&order.effect),
            result,
        };
        let answer = Action::Answer(replica, order, Box::new(outcome));
        self.cluster.clock.in_ms(1, answer);
    }

    /// Makes a fault happen. `true`: the request was dealt with.
    fn strike(&mut self, planned: PlannedFault, replica: usize, order: &EffectRequest) -> bool {
        let deciders = planned.deciders;
        match planned.fault {
            Fault::CrashBefore => self.crash(replica, deciders),
            Fault::CrashAfter => {
                // No process learns what became of it.
                drop(self.done(replica, &order.effect));
                self.crash(replica, deciders);
            }
            Fault::LeaseLostBefore => {
                self.move_lease();
                return false;
            }
            Fault::LeaseLostAfter => {
                // The answer may come before the leader learns that it is none.
                let result = self.done(replica, &order.effect);
                self.answer(replica, order.clone(), result);
                self.move_lease();
            }
            Fault::Twice => {
                for _ in 0..2 {
                    let result = self.done(replica, &order.effect);
                    self.answer(replica, order.clone(), result);
                }
            }
        }
        true
    }

    /// The lease is lost now; the leader learns of it; some replica gets it, often the same.
    fn move_lease(&mut self) {
        let clock = &mut self.cluster.clock;
        let unaware = clock.random.between(0, UNAWARE_MS);
        let vacant = clock.random.between(1, VACANT_MS);
        let next = clock.random.below(self.replicas.count() as u64);
        self.replicas.lose_lease(unaware, &mut self.cluster);
        let next = usize::try_from(next).unwrap_or(0);
        let won = Action::LeaseWon(next);
        self.cluster.clock.in_ms(unaware + vacant, won);
    }

    /// The service is killed: requests that had left it may still be executed, and no process learns of that.
    fn crash(&mut self, replica: usize, deciders: Vec<Box<dyn Decider>>) {
        let requested = self.cluster.clock.planned();
        let requested: Vec<Arc<Effect>> = requested
            .filter_map(|action| match action {
                Action::Execute(_, order) => Some(Arc::clone(&order.effect)),
                _ => None,
            })
            .collect();
        for effect in requested {
            if self.cluster.clock.random.chance(500) {
                drop(self.done(replica, &effect));
            }
        }
        self.restart_engine(deciders);
    }
}
