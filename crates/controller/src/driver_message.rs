//! Messages between the parts of the service: inputs to the engine loop, and effects to their executor.

use std::fmt;
use std::time::Duration;

use mortise_engine::decider_id::DeciderId;
use mortise_engine::effect::Event;
use mortise_engine::engine::{CompletedStep, EffectRequest, EngineInput};

/// Input of the driver.
pub(crate) enum DriverMessage {
    /// Input of the engine.
    Input(EngineInput),
    /// A heavy step completed.
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

/// Input of the effect executor.
#[derive(Debug)]
pub(crate) enum ExecutorMessage {
    /// Execute this effect. `why` is the reason of a creation, for metrics.
    Order {
        order: EffectRequest,
        why: &'static str,
    },
    /// Send this event.
    Tell(Event),
    /// This process gained or lost leadership.
    Leading(bool),
}
