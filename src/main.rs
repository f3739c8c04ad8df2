//! The `mortise` binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    mortise::cli::run()
}
