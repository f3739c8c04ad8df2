//! Faults: the service is killed around an effect, an effect is executed twice, the lease is lost, a watch is disturbed.
//!
//! Every effect must be right when it is executed again by a process that remembers nothing; faults put that to the test.
//! Here stands what goes wrong and when; [`crate::Simulation`] makes it happen.

use mortise_engine::decider::Decider;
use mortise_engine::effect::Effect;
use mortise_engine::lifecycle_step::LifecycleStep;

/// What goes wrong around an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The service is killed before the effect is done.
    CrashBefore,
    /// The service is killed after the effect was done and before it learned of that.
    CrashAfter,
    /// The effect is done twice, and both outcomes arrive.
    Twice,
    /// The lease is lost before the effect is done, and comes back to whichever replica.
    LeaseLostBefore,
    /// The lease is lost after the effect was done, and comes back to whichever replica.
    LeaseLostAfter,
}

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

/// What is wrong with one watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchFault {
    /// It stands and shows nothing.
    Silent,
    /// Everything comes this many milliseconds later.
    Late(i64),
    /// It is too old whenever it begins (410); only lists come.
    Expired,
}

/// A fault that waits for its effect.
pub(crate) struct PlannedFault {
    pub(crate) target: FaultTarget,
    /// How many effects that are meant pass unharmed first.
    pub(crate) skip: u64,
    pub(crate) fault: Fault,
    /// The deciders of the service that is started again.
    pub(crate) deciders: Vec<Box<dyn Decider>>,
}

/// Waits for the effect around which something goes wrong.
#[derive(Default)]
pub(crate) struct FaultInjector {
    planned: Option<PlannedFault>,
}

impl FaultInjector {
    /// Plans a fault, in place of an earlier one that has not come yet.
    pub(crate) fn plan(&mut self, fault: PlannedFault) {
        self.planned = Some(fault);
    }

    /// A fault is planned and has not come yet.
    pub(crate) const fn has_planned(&self) -> bool {
        self.planned.is_some()
    }

    /// The planned fault, if it is this effect's turn.
    pub(crate) fn strike(&mut self, effect: &Effect) -> Option<PlannedFault> {
        self.planned.take_if(|planned| {
            if !planned.target.is_at(effect) {
                return false;
            }
            let is_due = planned.skip == 0;
            planned.skip = planned.skip.saturating_sub(1);
            is_due
        })
    }
}
