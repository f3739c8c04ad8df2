//! Disturbances: the service is killed around an effect, or an effect is done twice.
//!
//! Every effect must be right when it is carried out again by somebody who remembers nothing; here that is put to the test.

use mortise_core::deciders::Decider;
use mortise_core::effect::Outcome;
use mortise_core::engine::Order;
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
}

/// A disturbance that waits for its effect.
pub(crate) struct Planned {
    effect: &'static str,
    /// So many effects of the kind pass unharmed first.
    skip: u64,
    fault: Fault,
    /// The deciders of the service that is started again.
    deciders: Vec<Box<dyn Decider>>,
}

impl Simulation {
    /// Plans one disturbance, in place of an earlier one that has not come yet. `effect` is a kind as
    /// [`Effect::label`](mortise_core::effect::Effect::label) spells it; `skip` of them pass unharmed. `deciders` serve
    /// after a crash.
    pub fn disturb(
        &mut self,
        effect: &'static str,
        skip: u64,
        fault: Fault,
        deciders: Vec<Box<dyn Decider>>,
    ) {
        self.planned = Some(Planned {
            effect,
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
    pub(crate) fn disturbed(&mut self, order: &Order) -> bool {
        match &mut self.planned {
            Some(planned) if planned.effect == order.effect.label() => {
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
        match fault {
            Fault::CrashBefore => self.restart_engine(deciders),
            Fault::CrashAfter => {
                // Nobody hears what became of it.
                drop(self.done(&order.effect));
                self.restart_engine(deciders);
            }
            Fault::Twice => {
                for _ in 0..2 {
                    let outcome = Outcome {
                        effect: Arc::clone(&order.effect),
                        result: self.done(&order.effect),
                    };
                    self.in_ms(1, Action::Answer(order.clone(), Box::new(outcome)));
                }
            }
        }
        true
    }
}
