//! What must hold for any input, as functions of bytes: no panic, and a few laws that need no expected answer.
//!
//! `fuzz/run` feeds them from libFuzzer (`just fuzz`); `fuzz/corpus` holds the inputs that reached something new, and every
//! run of the tests feeds those.

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

/// A target: looks at an input and panics when something does not hold.
pub type Target = fn(&[u8]);

/// Every target by the name of its folder in the corpus.
pub const TARGETS: [(&str, Target); 7] = [
    ("admission", admission),
    ("conversion", conversion),
    ("cron", cron),
    ("duration", duration),
    ("extender", extender),
    ("manifest", manifest),
    ("quantity", quantity),
];
