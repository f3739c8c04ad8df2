//! How issues quote values and words.

use std::io::{self, Write};

use serde_json::Value;

/// Longest value that is quoted, in characters: enough to recognise it.
const QUOTED: usize = 80;

/// A value as it is quoted in a fault.
#[must_use]
pub fn quoted(value: &Value) -> String {
    let mut start = Start(Vec::new());
    // It ends early where there is more than is quoted.
    let whole = serde_json::to_writer(&mut start, value).is_ok();
    let text = String::from_utf8_lossy(&start.0);
    if whole && text.chars().count() <= QUOTED {
        return text.into_owned();
    }
    let mut short: String = text.chars().take(QUOTED - 3).collect();
    short.push_str("...");
    short
}

/// Takes the beginning of a text, enough for [`QUOTED`] characters, and refuses the rest.
struct Start(Vec<u8>);

impl Write for Start {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        const ENOUGH: usize = 4 * QUOTED;
        let room = ENOUGH.saturating_sub(self.0.len()).min(bytes.len());
        self.0.extend(bytes.iter().take(room));
        if room < bytes.len() {
            return Err(io::ErrorKind::WriteZero.into());
        }
        Ok(room)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// `a`, `a or b`, `a, b or c`.
#[must_use]
pub fn either<S: AsRef<str>>(words: &[S]) -> String {
    match words {
        [] => String::new(),
        [only] => only.as_ref().to_owned(),
        [most @ .., last] => {
            let most: Vec<&str> = most.iter().map(AsRef::as_ref).collect();
            format!("{} or {}", most.join(", "), last.as_ref())
        }
    }
}

/// The nearest of the allowed words as a fix, or else the advice given.
pub fn meant<S: AsRef<str>>(
    word: &str,
    allowed: impl IntoIterator<Item = S>,
    or: impl FnOnce() -> String,
) -> String {
    match crate::nearest::nearest(word, allowed) {
        Some(near) => format!("did you mean \"{near}\"?"),
        None => or(),
    }
}
