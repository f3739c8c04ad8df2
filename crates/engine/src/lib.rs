//! The engine: effects, records and events of decisions, the contract of deciders, and the state machine that steps
//! them without input or output.
//!
//! ```text
//! events, outcomes ─► index ─► snapshot ─► deciders ─► effects, ledger changes, records
//! ```
//!
//! Time, seeds, settings and the stop signal are arguments; the service and the simulator drive the same [`engine::Engine`].

pub mod condition_edits;
pub mod decider;
pub mod decider_id;
pub mod effect;
pub mod engine;
pub mod events;
pub mod freshness;
pub mod journal;
pub mod metric_event;
pub mod record;
pub mod transitions;
pub mod write;
