//! Writing to the terminal: the one place that does.

use std::io::Write as _;

/// Writes a line to standard output. A closed pipe ends the program quietly, as for every Unix filter.
pub fn line(text: &str) {
    if writeln!(std::io::stdout().lock(), "{text}").is_err() {
        std::process::exit(0);
    }
}

/// Writes a line to standard error; there is nowhere left to report a failure of that.
pub fn warning(text: &str) {
    drop(writeln!(std::io::stderr().lock(), "{text}"));
}
