//! Writes a tree as text.

use super::read::Style;
use super::tree::{MapEntry, NodeContent, Notes, Scalar, SequenceItem, YamlNode, scalar_value};
use serde_json::Value;

/// Maximum line length of a list in brackets or a map in braces.
const FLOW_WIDTH: usize = 100;

/// The document as YAML, ending with a line break.
pub(crate) fn yaml(root: &YamlNode, style: Style) -> String {
    let mut writer = Writer {
        out: String::new(),
        style,
    };
    match &root.content {
        NodeContent::Map { entries, flow } if !is_flow(root, *flow) => writer.entries(entries, 0),
        NodeContent::List { items, flow } if !is_flow(root, *flow) => writer.items(items, 0),
        _ => {
            writer.out = flow_text(root);
            writer.out.push('\n');
        }
    }
    writer.out
}

/// The document as JSON, indented by two spaces, in the order of the tree.
pub(crate) fn json(root: &YamlNode) -> String {
    fn write(node: &YamlNode, depth: usize, out: &mut String) {
        let pad = |depth: usize| "  ".repeat(depth);
        match &node.content {
            NodeContent::Scalar(scalar) => out.push_str(&scalar_value(scalar).to_string()),
            NodeContent::Map { entries, .. } if entries.is_empty() => out.push_str("{}"),
            NodeContent::List { items, .. } if items.is_empty() => out.push_str("[]"),
            NodeContent::Map { entries, .. } => {
                out.push_str("{\n");
                for (index, entry) in entries.iter().enumerate() {
                    let comma = if index + 1 < entries.len() { "," } else { "" };
                    out.push_str(&format!(
                        "{}{}: ",
                        pad(depth + 1),
                        Value::from(entry.key.text.as_str())
                    ));
                    write(&entry.value, depth + 1, out);
                    out.push_str(comma);
                    out.push('\n');
                }
                out.push_str(&format!("{}}}", pad(depth)));
            }
            NodeContent::List { items, .. } => {
                out.push_str("[\n");
                for (index, item) in items.iter().enumerate() {
                    let comma = if index + 1 < items.len() { "," } else { "" };
                    out.push_str(&pad(depth + 1));
                    write(&item.value, depth + 1, out);
                    out.push_str(comma);
                    out.push('\n');
                }
                out.push_str(&format!("{}]", pad(depth)));
            }
        }
    }
    let mut out = String::new();
    write(root, 0, &mut out);
    out.push('\n');
    out
}

struct Writer {
    out: String,
    style: Style,
}

impl Writer {
    fn line(&mut self, column: usize, text: &str) {
        self.out.push_str(&" ".repeat(column));
        self.out.push_str(text);
        self.out.push('\n');
    }

    fn before(&mut self, notes: &Notes, column: usize) {
        if notes.blank && !self.out.is_empty() {
            self.out.push('\n');
        }
        for comment in &notes.before {
            if comment.is_empty() {
                self.out.push('\n');
            } else {
                self.line(column, comment);
            }
        }
    }

    fn after(&mut self, notes: &Notes, column: usize) {
        for comment in &notes.after {
            self.line(column, comment);
        }
    }

    fn entries(&mut self, entries: &[MapEntry], column: usize) {
        for entry in entries {
            self.before(&entry.notes, column);
            self.out.push_str(&" ".repeat(column));
            self.entry(entry, column);
        }
    }

    /// A field, the cursor being where its name begins.
    fn entry(&mut self, entry: &MapEntry, column: usize) {
        self.out.push_str(&key_text(&entry.key));
        self.out.push(':');
        self.value(&entry.value, &entry.notes, column, false);
        self.after(&entry.notes, column);
    }

    fn items(&mut self, items: &[SequenceItem], column: usize) {
        for item in items {
            self.before(&item.notes, column);
            self.out.push_str(&" ".repeat(column));
            self.out.push('-');
            self.value(&item.value, &item.notes, column, true);
            self.after(&item.notes, column);
        }
    }

    /// A value after `name:` or `-`, with its line break.
    fn value(&mut self, node: &YamlNode, notes: &Notes, column: usize, in_list: bool) {
        let inline = |out: &mut String| {
            if let Some(comment) = &notes.inline {
                if !comment.starts_with(' ') {
                    out.push(' ');
                }
                out.push_str(comment);
            }
            out.push('\n');
        };
        match &node.content {
            NodeContent::Map { entries, flow } if !is_flow(node, *flow) => {
                let compact = in_list
                    && notes.inline.is_none()
                    && entries
                        .first()
                        .is_some_and(|first| first.notes.before.is_empty());
                if let (true, Some((first, rest))) = (compact, entries.split_first()) {
                    // The first field on the line of the dash.
                    self.out.push(' ');
                    self.entry(first, column + 2);
                    self.entries(rest, column + 2);
                } else {
                    inline(&mut self.out);
                    let step = if in_list { 2 } else { self.style.indent };
                    self.entries(entries, column + step);
                }
            }
            NodeContent::List { items, flow } if !is_flow(node, *flow) => {
                inline(&mut self.out);
                let deeper = in_list || self.style.lists_indented;
                let step = if deeper { self.style.indent } else { 0 };
                self.items(items, column + step);
            }
            NodeContent::Scalar(scalar) if is_block(scalar) => {
                let body = scalar.text.trim_end_matches('\n');
                let breaks = scalar.text.len() - body.len();
                let chomp = match breaks {
                    0 => "-",
                    1 => "",
                    _ => "+",
                };
                let step = if in_list { 2 } else { self.style.indent };
                let hint = if body.starts_with([' ', '\n']) {
                    step.to_string()
                } else {
                    String::new()
                };
                self.out.push_str(&format!(" |{hint}{chomp}"));
                inline(&mut self.out);
                let blank = "\n".repeat(breaks.saturating_sub(1));
                for line in body.split('\n') {
                    if line.is_empty() {
                        self.out.push('\n');
                    } else {
                        self.line(column + step, line);
                    }
                }
                self.out.push_str(&blank);
            }
            _ => {
                let text = flow_text(node);
                if !text.is_empty() {
                    self.out.push(' ');
                    self.out.push_str(&text);
                }
                inline(&mut self.out);
            }
        }
    }
}

/// Braces and brackets are kept if they fit on a line and have no comments; empty values have no other form.
fn is_flow(node: &YamlNode, flow: bool) -> bool {
    let empty = match &node.content {
        NodeContent::Map { entries, .. } => entries.is_empty(),
        NodeContent::List { items, .. } => items.is_empty(),
        NodeContent::Scalar(_) => true,
    };
    empty
        || flow
            && node.clone().comments().is_empty()
            && flow_text(node).chars().count() <= FLOW_WIDTH
}

/// Whether a block scalar can represent this text of several lines.
fn is_block(scalar: &Scalar) -> bool {
    scalar.raw.is_none()
        && scalar.text.contains('\n')
        && !scalar.text.trim_matches('\n').is_empty()
        && !scalar
            .text
            .contains(|letter: char| letter.is_control() && letter != '\n' && letter != '\t')
        && !scalar
            .text
            .contains(['\u{85}', '\u{2028}', '\u{2029}', '\u{feff}'])
}

fn flow_text(node: &YamlNode) -> String {
    match &node.content {
        NodeContent::Scalar(scalar) => scalar_text(scalar),
        NodeContent::Map { entries, .. } if entries.is_empty() => "{}".to_owned(),
        NodeContent::Map { entries, .. } => {
            let fields: Vec<String> = entries
                .iter()
                .map(|entry| format!("{}: {}", key_text(&entry.key), inner(&entry.value)))
                .collect();
            format!("{{{}}}", fields.join(", "))
        }
        NodeContent::List { items, .. } => {
            let values: Vec<String> = items.iter().map(|item| inner(&item.value)).collect();
            format!("[{}]", values.join(", "))
        }
    }
}

/// In brackets and braces, a comma or a bracket ends a plain scalar.
fn inner(node: &YamlNode) -> String {
    let text = flow_text(node);
    match &node.content {
        NodeContent::Scalar(scalar)
            if !scalar.quoted && text.contains([',', '[', ']', '{', '}', ':', '#']) =>
        {
            quoted(&scalar.text)
        }
        NodeContent::Scalar(_) if text.is_empty() => "null".to_owned(),
        _ => text,
    }
}

fn key_text(key: &Scalar) -> String {
    match &key.raw {
        Some(raw) if !marks_document(raw) => raw.clone(),
        _ if is_plain(&key.text) && key.text != "<<" => key.text.clone(),
        _ => quoted(&key.text),
    }
}

fn scalar_text(scalar: &Scalar) -> String {
    if let Some(raw) = scalar.raw.as_ref().filter(|raw| !marks_document(raw)) {
        return raw.clone();
    }
    if !scalar.quoted {
        // A plain scalar of several lines.
        return if is_plain(&scalar.text) {
            scalar.text.clone()
        } else {
            quoted(&scalar.text)
        };
    }
    let as_plain = Scalar::plain(&scalar.text);
    if is_plain(&scalar.text) && scalar_value(&as_plain).is_string() && !looks_odd(&scalar.text) {
        scalar.text.clone()
    } else {
        quoted(&scalar.text)
    }
}

/// Words that some parsers read as a number or a date.
fn looks_odd(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_digit() || matches!(first, '+' | '.' | '='))
        && !text.ends_with(|last: char| last.is_ascii_alphabetic())
        || matches!(text, "y" | "Y" | "n" | "N")
        || text.starts_with("0x")
        || text.starts_with("0o")
        || text.split_once(['e', 'E']).is_some_and(|(left, right)| {
            left.parse::<f64>().is_ok() && right.parse::<i64>().is_ok()
        })
}

/// Begins like a document marker: without indentation it would be one.
fn marks_document(text: &str) -> bool {
    text.starts_with("---") || text.starts_with("...")
}

/// A word that never needs quotes.
fn is_plain(text: &str) -> bool {
    let first_ok = text.chars().next().is_some_and(|first| {
        first.is_alphanumeric() || matches!(first, '_' | '/' | '.' | '$' | '+' | '<')
    });
    first_ok
        && !marks_document(text)
        && !text.ends_with([' ', ':'])
        && !text.contains(": ")
        && !text.contains(" #")
        && !text.contains([
            '\n', '\t', '\r', '"', '\'', '{', '}', '[', ']', ',', '&', '*', '!', '|', '`', '\\',
        ])
        && !text.contains(char::is_control)
}

fn quoted(text: &str) -> String {
    // JSON strings are valid YAML strings.
    Value::from(text)
        .to_string()
        .replace('\u{85}', "\\u0085")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
        .replace('\u{feff}', "\\ufeff")
        .replace('\u{7f}', "\\u007f")
}
