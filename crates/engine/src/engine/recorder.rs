//! What a recorder of an engine gets: every call of the engine, in order.

use jiff::Timestamp;
use mortise_apis::values::money::MicroUsd;
use mortise_planning::disruption::command::DisruptionCommand;

use super::{EffectRequest, EngineInput};
use crate::decider_id::DeciderId;
use crate::metric_event::MetricEvent;
use crate::record::Record;

/// Gets everything that happens to an engine, in order. `at` is the time that the engine was given.
pub trait Recorder: Send {
    /// Takes an event in. It must be quick: the engine waits.
    fn record(&mut self, at: Timestamp, event: JournalEvent);
}

/// One call of the engine.
#[derive(Clone, Debug)]
pub enum JournalEvent {
    /// An input was applied.
    Input(EngineInput),
    /// A snapshot of this generation was frozen, outside of any other call.
    Frozen(u64),
    /// A decider was taken out for a step.
    Prepared(DeciderId),
    /// A step took effect.
    Committed(RecordedStep),
}

/// A step that took effect.
#[derive(Clone, Debug)]
pub struct RecordedStep {
    /// Whose step it was.
    pub decider: DeciderId,
    /// How often it asked whether to stop before the signal came; `None`: it did not.
    pub stopped_after: Option<u64>,
    /// When it wants to be stepped next although nothing changes.
    pub wake: Option<Timestamp>,
    /// What it requested, with the events of its records.
    pub requests: Vec<EffectRequest>,
    /// What it decided and why.
    pub records: Vec<Record>,
    /// What it counted.
    pub counted: Vec<MetricEvent>,
    /// Disruption commands that begin, as text.
    pub commands: Vec<String>,
}

/// A disruption command as text.
pub(super) fn command_text(command: &DisruptionCommand) -> String {
    let nodes: Vec<&str> = command.targets.iter().map(|target| &*target.node).collect();
    let price = |price: Option<MicroUsd>| {
        price.map_or_else(|| "unknown".to_owned(), |price| price.to_string())
    };
    format!(
        "{:?} {} for {} new nodes, {} -> {}",
        command.method,
        nodes.join(", "),
        command.moves.claims.len(),
        price(command.moves.old),
        price(command.moves.new),
    )
}
