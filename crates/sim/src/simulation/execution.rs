//! From a request to its outcome: leadership, faults, the effect itself, and the invariants that it must satisfy.

use std::sync::Arc;

use mortise_engine::decider::Decider;
use mortise_engine::effect::{Effect, EffectError, EffectOutput, Outcome};
use mortise_engine::engine::EffectRequest;

use super::Simulation;
use crate::clock::Action;
use crate::cluster;
use crate::faults::{Fault, FaultTarget, PlannedFault};

/// A leader notices the loss of the lease within this time, in milliseconds.
const UNAWARE_MS: i64 = 3_000;
/// A replica acquires the lease within this time after that, in milliseconds.
const VACANT_MS: i64 = 40_000;

impl Simulation {
    /// Plans one fault, which replaces an earlier one that has not occurred; `skip` matching effects are executed without it.
    /// `deciders` are those of the process after a crash. Other requests in flight at a crash arrive or are lost, at random.
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

    /// No fault is planned, or it has occurred.
    #[must_use]
    pub const fn is_undisturbed(&self) -> bool {
        !self.faults.has_planned()
    }

    /// Executes a request of a replica, unless a fault prevents it.
    pub(super) fn execute(&mut self, replica: usize, request: EffectRequest) {
        let effects = &mut self.cluster.stats.effects;
        *effects.entry(request.effect.label()).or_default() += 1;
        // Without the lease no request is executed anyway.
        if self.replicas.has_lease()
            && let Some(planned) = self.faults.take_for(&request.effect)
            && self.inject(planned, replica, &request)
        {
            return;
        }
        let result = if self.replicas.may_write(replica, &request) {
            self.invariants
                .check_disruption(&request, &mut self.cluster, &mut self.replicas);
            self.perform_effect(replica, &request.effect)
        } else {
            let message = "lost leadership".to_owned();
            Err(EffectError::Unavailable(message))
        };
        self.return_outcome(replica, request, result);
    }

    /// Executes the effect; `writer` gets the written objects immediately.
    fn perform_effect(
        &mut self,
        writer: usize,
        effect: &Effect,
    ) -> Result<EffectOutput, EffectError> {
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

    fn return_outcome(
        &mut self,
        replica: usize,
        request: EffectRequest,
        result: Result<EffectOutput, EffectError>,
    ) {
        let outcome = Outcome {
            effect: Arc::clone(&request.effect),
            result,
        };
        let arrival = Action::Outcome(replica, request, Box::new(outcome));
        self.cluster.clock.in_ms(1, arrival);
    }

    /// Executes a fault. `true`: the request needs no further processing.
    fn inject(&mut self, planned: PlannedFault, replica: usize, request: &EffectRequest) -> bool {
        let deciders = planned.deciders;
        match planned.fault {
            Fault::CrashBefore => self.crash(replica, deciders),
            Fault::CrashAfter => {
                // No process gets the outcome.
                drop(self.perform_effect(replica, &request.effect));
                self.crash(replica, deciders);
            }
            Fault::LeaseLostBefore => {
                self.move_lease();
                return false;
            }
            Fault::LeaseLostAfter => {
                // The outcome may arrive before the leader notices the loss of the lease.
                let result = self.perform_effect(replica, &request.effect);
                self.return_outcome(replica, request.clone(), result);
                self.move_lease();
            }
            Fault::Twice => {
                for _ in 0..2 {
                    let result = self.perform_effect(replica, &request.effect);
                    self.return_outcome(replica, request.clone(), result);
                }
            }
        }
        true
    }

    /// The lease is lost now; the leader notices it later; then a random replica acquires it, often the same.
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

    /// Kills the service: its requests in flight may still be executed, and no process gets the outcome.
    fn crash(&mut self, replica: usize, deciders: Vec<Box<dyn Decider>>) {
        let requested = self.cluster.clock.planned();
        let requested: Vec<Arc<Effect>> = requested
            .filter_map(|action| match action {
                Action::Execute(_, request) => Some(Arc::clone(&request.effect)),
                _ => None,
            })
            .collect();
        for effect in requested {
            if self.cluster.clock.random.chance(500) {
                drop(self.perform_effect(replica, &effect));
            }
        }
        self.restart_engine(deciders);
    }
}
