//! The journal of an engine: everything that enters it, in order and with the time that it was given, and what its deciders decided.
//! Fed to another engine, the same journal gives the same decisions.
//!
//! | what | where |
//! |---|---|
//! | what a recorder gets | `../engine/recorder.rs` |
//! | a step, as it is compared and shown | `step_summary.rs` |
//! | an entry as a line of a file | `line.rs` |
//! | lines from events; what is left out of objects; requests by number | `encoder.rs` |
//! | the objects that a file in the middle of a recording begins with | `base.rs` |
//! | the file: header, compression, torn ends, errors | `file.rs`, `file_error.rs` |
//!
//! # Why this is all
//! The engine has no clock, no chance and no input or output. A step depends on its decider's memory, the snapshot, and the seed, which
//! follow from earlier entries, and on the stop signal: how often a step asked before the signal came is recorded with it.
//!
//! # Must never
//! Block the engine: what a recorder does is its own affair, but the engine waits for it.

mod base;
mod encoder;
mod file;
mod file_error;
mod line;
mod step_summary;

pub use encoder::JournalEncoder;
pub use file::{EXTENSION, FORMAT_VERSION, JournalHeader, JournalReader, JournalWriter};
pub use file_error::JournalFileError;
pub use line::{JournalLine, LineBody, RecordedObject, RecordedOutcome};
pub use step_summary::{RequestLine, StepSummary};
