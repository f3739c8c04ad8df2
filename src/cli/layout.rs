//! Text for a terminal: wrapped to a width, tables, spans of time, amounts.

use std::io::IsTerminal as _;
use std::process::{Command, Stdio};

use jiff::Timestamp;
use mortise_apis::values::{since, span_text};
use serde_json::{Map, Value};

/// Width of output that is not to a terminal.
const WIDTH: usize = 100;
/// Narrower terminals are written to as if they had this width.
const LEAST: usize = 40;

/// Columns of the terminal, or a common width where there is none.
pub(super) fn width() -> usize {
    known_width().unwrap_or(WIDTH)
}

/// Columns of the terminal: `COLUMNS`, or what `stty` knows of it; `None` where neither is.
pub(super) fn known_width() -> Option<usize> {
    let stated = std::env::var("COLUMNS")
        .ok()
        .and_then(|text| text.parse().ok());
    let columns = stated.or_else(columns_of_terminal)?;
    Some(columns.max(LEAST))
}

fn columns_of_terminal() -> Option<usize> {
    if !std::io::stdout().is_terminal() {
        return None;
    }
    let terminal = std::fs::File::open("/dev/tty").ok()?;
    let size = Command::new("stty")
        .arg("size")
        .stdin(terminal)
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let text = String::from_utf8(size.stdout).ok()?;
    let columns = text.split_whitespace().nth(1)?.parse().ok()?;
    (columns > 0).then_some(columns)
}

/// Words in lines of at most this width, with this indent; a word that is longer has a line of its own.
pub(super) fn wrapped(text: &str, indent: usize, width: usize) -> Vec<String> {
    let space = " ".repeat(indent);
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        let length = line.chars().count() + 1 + word.chars().count();
        if !line.is_empty() && indent + length > width {
            lines.push(format!("{space}{line}"));
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    if !line.is_empty() {
        lines.push(format!("{space}{line}"));
    }
    lines
}

/// `name  value` lines with aligned values, wrapped below themselves.
pub(super) fn facts(entries: &[(&str, String)], width: usize) -> Vec<String> {
    let names = entries
        .iter()
        .map(|(name, _)| name.len())
        .max()
        .unwrap_or(0);
    let indent = names + 4;
    let mut lines = Vec::new();
    for (name, value) in entries {
        let mut of_value = wrapped(value, indent, width).into_iter();
        let first = of_value.next().unwrap_or_default();
        lines.push(format!("  {name:<names$}  {}", first.trim_start()));
        lines.extend(of_value);
    }
    lines
}

/// Rows with columns of equal width, indented.
pub(super) fn aligned(rows: &[Vec<String>]) -> Vec<String> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let text = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths);
        let cells: Vec<String> = cells
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        format!("  {}", cells.join("  ")).trim_end().to_owned()
    };
    rows.iter().map(text).collect()
}

/// A line cut to the width, with a mark where it was.
pub(super) fn cut(line: &str, width: usize) -> String {
    if line.chars().count() <= width {
        return line.to_owned();
    }
    let kept: String = line.chars().take(width.saturating_sub(1)).collect();
    format!("{kept}…")
}

/// How long ago a time was.
pub(super) fn ago(now: Timestamp, then: Timestamp) -> String {
    span_text(since(now, then))
}

/// How long it is until a time: `in 5m0s`, or `now` when it has passed.
pub(super) fn in_time(now: Timestamp, then: Timestamp) -> String {
    if then <= now {
        "now".to_owned()
    } else {
        format!("in {}", span_text(since(then, now)))
    }
}

/// Amounts in one line: `cpu 1.5, memory 2.0Gi`.
pub(super) fn amounts(all: &Map<String, Value>) -> String {
    if all.is_empty() {
        return "nothing".to_owned();
    }
    let one = |(name, value): (&String, &Value)| format!("{name} {}", amount(name, value));
    all.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// An amount with its unit.
pub(super) fn amount(name: &str, value: &Value) -> String {
    const GI: f64 = 1_073_741_824.0;
    const MI: f64 = 1_048_576.0;
    let is_bytes =
        name == "memory" || name == "ephemeral-storage" || name.starts_with("hugepages-");
    match value.as_f64() {
        Some(bytes) if is_bytes && bytes >= GI => format!("{:.1}Gi", bytes / GI),
        Some(bytes) if is_bytes => format!("{:.0}Mi", bytes / MI),
        _ => value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_wrapped_and_long_words_kept_whole() {
        for (text, indent, width, want) in [
            ("a bb ccc", 0, 4, vec!["a bb", "ccc"]),
            ("a bb ccc", 2, 6, vec!["  a bb", "  ccc"]),
            ("a verylongword b", 0, 5, vec!["a", "verylongword", "b"]),
            ("", 2, 10, vec![]),
        ] {
            assert_eq!(wrapped(text, indent, width), want, "{text}");
        }
    }

    #[test]
    fn facts_hang_below_their_first_line() {
        let lines = facts(&[("a", "one two".to_owned()), ("long", "x".to_owned())], 12);
        assert_eq!(lines, ["  a     one", "        two", "  long  x"]);
    }

    #[test]
    fn amounts_and_cuts_are_short() {
        let bytes = Value::from(3_221_225_472_u64);
        assert_eq!(amount("memory", &bytes), "3.0Gi");
        assert_eq!(amount("cpu", &Value::from(1.5)), "1.5");
        assert_eq!(cut("abcdef", 4), "abc…");
        assert_eq!(cut("abc", 3), "abc");
    }
}
