//! Properties of all inputs, as functions of bytes: no panic, and invariants that need no expected output.
//!
//! `fuzz/run` runs them with libFuzzer (`just fuzz`); `fuzz/corpus` contains the inputs that reached new code, and
//! every test run checks those.

#![allow(
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "a target says what it found by panicking"
)]

mod cluster;
mod heavy;
mod json;
mod targets;

pub use heavy::{Heavy, heavy};
pub use json::mutated;
pub use targets::{admission, conversion, cron, duration, extender, manifest, quantity};

/// A target: checks an input, and panics if a property does not hold.
pub type Target = fn(&[u8]);

/// Every target by the name of its directory in the corpus.
pub const TARGETS: [(&str, Target); 7] = [
    ("admission", admission),
    ("conversion", conversion),
    ("cron", cron),
    ("duration", duration),
    ("extender", extender),
    ("manifest", manifest),
    ("quantity", quantity),
];
