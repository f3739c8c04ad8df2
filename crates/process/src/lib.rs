//! mortise: what every program of it does as a process: logging, crypto provider, async runtime, output, durations on the command line.

mod millis;
mod setup;
mod terminal;

pub use self::millis::Millis;
pub use self::setup::{init_logging, install_crypto, runtime};
pub use self::terminal::{line, warning};
