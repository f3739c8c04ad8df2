//! Faults: the service is killed around an effect, an effect is executed twice, the lease is lost, a watch is disturbed.
//!
//! Every effect must be correct when a process without memory executes it again; fault injection tests that.
//! This module decides which fault occurs when; [`crate::Simulation`] executes it.

use mortise_engine::decider::Decider;
use mortise_engine::effect::Effect;
use mortise_engine::write::lifecycle_step::LifecycleStep;

/// A fault around an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The service is killed before the effect is executed.
    CrashBefore,
    /// The service is killed after the effect is executed and before the outcome arrives.
    CrashAfter,
    /// The effect is executed twice, and both outcomes arrive.
    Twice,
    /// The lease is lost before the effect is executed; a random replica acquires it.
    LeaseLostBefore,
    /// The lease is lost after the effect is executed; a random replica acquires it.
    LeaseLostAfter,
}

/// The effects that a fault applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultTarget {
    /// Every effect of a kind, as in [`Effect::label`].
    Kind(&'static str),
    /// Every effect that executes this lifecycle step of a node.
    Step(LifecycleStep),
}

impl FaultTarget {
    fn has_effect(self, effect: &Effect) -> bool {
        match self {
            Self::Kind(label) => effect.label() == label,
            Self::Step(step) => effect.lifecycle_step() == Some(step),
        }
    }
}

/// A fault of one watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchFault {
    /// It is established and delivers nothing.
    Silent,
    /// Every event is delayed by this many milliseconds.
    Late(i64),
    /// It expires whenever it starts (410); only lists succeed.
    Expired,
}

/// A fault that has not occurred yet.
pub(crate) struct PlannedFault {
    pub(crate) target: FaultTarget,
    /// Number of matching effects that are executed without a fault first.
    pub(crate) skip: u64,
    pub(crate) fault: Fault,
    /// The deciders of the restarted service.
    pub(crate) deciders: Vec<Box<dyn Decider>>,
}

/// Injects the planned fault into the matching effect.
#[derive(Default)]
pub(crate) struct FaultInjector {
    planned: Option<PlannedFault>,
}

impl FaultInjector {
    /// Plans a fault; replaces an earlier one that has not occurred.
    pub(crate) fn plan(&mut self, fault: PlannedFault) {
        self.planned = Some(fault);
    }

    /// A fault is planned and has not occurred.
    pub(crate) const fn has_planned(&self) -> bool {
        self.planned.is_some()
    }

    /// Takes the planned fault if it applies to this effect.
    pub(crate) fn take_for(&mut self, effect: &Effect) -> Option<PlannedFault> {
        self.planned.take_if(|planned| {
            if !planned.target.has_effect(effect) {
                return false;
            }
            let is_due = planned.skip == 0;
            planned.skip = planned.skip.saturating_sub(1);
            is_due
        })
    }
}
