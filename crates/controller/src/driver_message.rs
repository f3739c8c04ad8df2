//! What the parts of the service send each other: inputs to the engine loop, and effects to their executor.

use std::fmt;
use std::time::Duration;

use mortise_engine::decider_id::DeciderId;
use mortise_engine::effect::Event;
use mortise_engine::engine::{CompletedStep, EffectRequest, EngineInput};

/// What the driver is told.
pub(crate) enum DriverMessage {
    /// For the engine.
    Input(EngineInput),
    /// A heavy step has been run.
    Finished {
        id: DeciderId,
        finished: Box<CompletedStep>,
        took: Duration,
    },
    /// A heavy step panicked.
    Panicked { id: DeciderId, message: String },
}

impl fmt::Debug for DriverMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Input(input) => input.fmt(f),
            Self::Finished { id, .. } => write!(f, "Finished({id})"),
            Self::Panicked { id, message } => write!(f, "Panicked({id}, {message:?})"),
        }
    }
}

/// What the executor is told.
#[derive(Debug)]
pub(crate) enum ExecutorMessage {
    /// Carry this out. `why` is the reason of a creation, for metrics.
    Order {
        order: EffectRequest,
        why: &'static str,
    },
    /// Tell this.
    Tell(Event),
    /// This process may act, or may not any more.
    Leading(bool),
}
