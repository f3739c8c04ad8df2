//! Disturbances: the service is killed around an effect, or an effect is done twice.
//!
//! Every effect must be right when it is carried out again by somebody who remembers nothing; here that is put to the test.

use mortise_core::deciders::Decider;
use mortise_core::effect::{Effect, Outcome};
use mortise_core::engine::EffectRequest;
use mortise_core::lifecycle_step::LifecycleStep;
use std::sync::Arc;

use crate::simulation::{Action, Simulation};

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The service is killed before the effect is done.
    CrashBefore,
    /// The service is killed after the effect was done and before anybody heard of it.
    CrashAfter,
    /// The effect is done twice, and both outcomes arrive.
    Twice,
    /// The lease is lost before the effect is done, and comes back to whichever replica.
    LeaseLostBefore,
    /// The lease is lost after the effect was done, and comes back to whichever replica.
    LeaseLostAfter,
}

/// A leader that has lost the lease hears of it within this, in milliseconds.
const HEARS_MS: i64 = 3_000;
/// And within this somebody has it again.
const VACANT_MS: i64 = 40_000;

/// Which effects are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultTarget {
    /// Every effect of a kind, as [`Effect::label`] spells it.
    Kind(&'static str),
    /// Every effect that takes this step of a node's life.
    Step(LifecycleStep),
}

impl FaultTarget {
    fn is_at(self, effect: &Effect) -> bool {
        match self {
            Self::Kind(label) => effect.label() == label,
            Self::Step(step) => LifecycleStep::of(effect) == Some(step),
        }
    }
}

/// A disturbance that waits for its effect.
pub(crate) struct Planned {
    aim: FaultTarget,
    /// So many effects of the kind pass unharmed first.
    skip: u64,
    fault: Fault,
    /// The deciders of the service that is started again.
    deciders: Vec<Box<dyn Decider>>,
}

impl Simulation {
    /// Plans one disturbance, in place of an earlier one that has not come yet; `skip` effects that are aimed at pass
    /// unharmed. `deciders` serve after a crash. What else is on its way at a crash arrives or is lost, as chance has it.
    pub fn disturb(
        &mut self,
        aim: FaultTarget,
        skip: u64,
        fault: Fault,
        deciders: Vec<Box<dyn Decider>>,
    ) {
        self.planned = Some(Planned {
            aim,
            skip,
            fault,
            deciders,
        });
    }

    /// No disturbance is waited for: it has come, or none was planned.
    #[must_use]
    pub const fn is_undisturbed(&self) -> bool {
        self.planned.is_none()
    }

    /// Does the planned disturbance if this order is the one. `true`: the order was dealt with.
    pub(crate) fn disturbed(&mut self, replica: usize, order: &EffectRequest) -> bool {
        if !self.has_lease {
            return false; // nothing is done anyway
        }
        match &mut self.planned {
            Some(planned) if planned.aim.is_at(&order.effect) => {
                if planned.skip > 0 {
                    planned.skip -= 1;
                    return false;
                }
            }
            Some(_) | None => return false,
        }
        let Some(Planned {
            fault, deciders, ..
        }) = self.planned.take()
        else {
            return false;
        };
        if fault == Fault::LeaseLostAfter {
            // The answer may come before the leader hears that it is none.
            let outcome = Outcome {
                effect: Arc::clone(&order.effect),
                result: self.done(&order.effect),
            };
            let answer = Action::Answer(replica, order.clone(), Box::new(outcome));
            self.in_ms(1, answer);
        }
        match fault {
            Fault::CrashBefore => self.crash(deciders),
            Fault::CrashAfter => {
                // Nobody hears what became of it.
                drop(self.done(&order.effect));
                self.crash(deciders);
            }
            Fault::LeaseLostBefore => {
                self.lease_moves();
                return false;
            }
            Fault::LeaseLostAfter => self.lease_moves(),
            Fault::Twice => {
                for _ in 0..2 {
                    let outcome = Outcome {
                        effect: Arc::clone(&order.effect),
                        result: self.done(&order.effect),
                    };
                    let answer = Action::Answer(replica, order.clone(), Box::new(outcome));
                    self.in_ms(1, answer);
                }
            }
        }
        true
    }

    /// The lease is lost now; the leader hears of it; some replica gets it, often the same.
    fn lease_moves(&mut self) {
        let hears = self.rng.millis(0, HEARS_MS);
        let vacant = self.rng.millis(1, VACANT_MS);
        let next = self.rng.below(self.replicas.len() as u64);
        self.lose_lease(hears);
        let next = usize::try_from(next).unwrap_or(0);
        self.in_ms(hears + vacant, Action::LeaseWon(next));
    }

    /// The service is killed: requests that had left it may still be carried out, and nobody hears of that.
    fn crash(&mut self, deciders: Vec<Box<dyn Decider>>) {
        for effect in self.on_their_way() {
            if self.rng.chance(500) {
                drop(self.done(&effect));
            }
        }
        self.restart_engine(deciders);
    }
}
