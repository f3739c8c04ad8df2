//! Output to the terminal; nothing else writes to it.

use std::io::Write as _;

/// Writes a line to standard output. A closed pipe ends the program silently, as for every Unix filter.
pub fn line(text: &str) {
    if writeln!(std::io::stdout().lock(), "{text}").is_err() {
        std::process::exit(0);
    }
}

/// Writes a line to standard error; a failure cannot be reported anywhere.
pub fn warning(text: &str) {
    drop(writeln!(std::io::stderr().lock(), "{text}"));
}
