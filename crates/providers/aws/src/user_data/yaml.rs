//! Writes a JSON value as block YAML: sorted keys, two spaces, texts plain where that is safe.

use serde_json::Value;

/// Column behind which a plain text may continue on the next line.
const WIDTH: usize = 80;

/// The value as a YAML document, with a final newline.
pub(super) fn write(value: &Value) -> String {
    let mut out = String::new();
    match value {
        Value::Object(map) if !map.is_empty() => node(&mut out, value, 0),
        Value::Array(list) if !list.is_empty() => node(&mut out, value, 0),
        _ => {
            scalar(&mut out, value, 0, 0);
            out.push('\n');
        }
    }
    out
}

/// Writes a map or list that is not empty, each entry on a line of its own.
fn node(out: &mut String, value: &Value, indent: usize) {
    let pad = " ".repeat(indent);
    match value {
        Value::Object(map) => {
            let mut keys: Vec<&String> = map.keys().collect();
            keys.sort();
            for key in keys {
                out.push_str(&pad);
                entry(
                    out,
                    &format!("{}:", text(key)),
                    map.get(key).unwrap_or(&Value::Null),
                    indent,
                );
            }
        }
        Value::Array(list) => {
            for item in list {
                out.push_str(&pad);
                match item {
                    // The first key of a map stands behind the dash.
                    Value::Object(map) if !map.is_empty() => {
                        let mut inner = String::new();
                        node(&mut inner, item, indent + 2);
                        out.push_str("- ");
                        out.push_str(inner.trim_start());
                    }
                    _ => entry(out, "-", item, indent),
                }
            }
        }
        _ => {}
    }
}

/// Writes `head value`, the value on the same line if it is a scalar or empty.
fn entry(out: &mut String, head: &str, value: &Value, indent: usize) {
    out.push_str(head);
    match value {
        Value::Object(map) if !map.is_empty() => {
            out.push('\n');
            node(out, value, indent + 2);
        }
        // A list under a key is not indented further, as usual in Kubernetes.
        Value::Array(list) if !list.is_empty() => {
            out.push('\n');
            node(out, value, if head == "-" { indent + 2 } else { indent });
        }
        _ => {
            out.push(' ');
            scalar(out, value, indent + head.chars().count() + 1, indent + 2);
            out.push('\n');
        }
    }
}

fn scalar(out: &mut String, value: &Value, column: usize, indent: usize) {
    match value {
        Value::Object(_) => out.push_str("{}"),
        Value::Array(_) => out.push_str("[]"),
        Value::String(value) => fold(out, &text(value), column, indent),
        other => out.push_str(&other.to_string()),
    }
}

/// Breaks a plain text at single spaces behind the width; readers join the lines again.
fn fold(out: &mut String, text: &str, mut column: usize, indent: usize) {
    if text.starts_with(['\'', '"']) {
        out.push_str(text);
        return;
    }
    let letters: Vec<char> = text.chars().collect();
    for (at, letter) in letters.iter().enumerate() {
        let alone = letters.get(at + 1).is_some_and(|next| *next != ' ')
            && at > 0
            && letters.get(at - 1).is_some_and(|before| *before != ' ');
        if *letter == ' ' && column > WIDTH && alone {
            out.push('\n');
            out.push_str(&" ".repeat(indent));
            column = indent;
        } else {
            out.push(*letter);
            column += 1;
        }
    }
}

/// A text as a YAML scalar: plain where it reads back as the same text, else quoted.
fn text(value: &str) -> String {
    let special_start = value.starts_with([
        '!', '&', '*', '{', '}', '[', ']', ',', '#', '|', '>', '@', '`', '"', '\'', '%', ' ', '?',
        ':', '-', '=',
    ]) && !(value.starts_with('-')
        && value.chars().nth(1).is_some_and(|next| next != ' '));
    let special = value.is_empty()
        || special_start
        || value.ends_with([' ', ':'])
        || value.contains(": ")
        || value.contains(" #");
    if !value.chars().all(is_plain) || reads_as_other(value) {
        return quoted(value);
    }
    if special {
        format!("'{}'", value.replace('\'', "''"))
    } else {
        value.to_owned()
    }
}

/// Whether a letter can be written as it is.
fn is_plain(letter: char) -> bool {
    !letter.is_control() && !matches!(letter, '\u{feff}' | '\u{2028}' | '\u{2029}' | '\u{10000}'..)
}

/// A text in double quotes, with YAML's escapes.
fn quoted(value: &str) -> String {
    let mut out = String::from("\"");
    for letter in value.chars() {
        match letter {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\0' => out.push_str("\\0"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{b}' => out.push_str("\\v"),
            '\u{c}' => out.push_str("\\f"),
            '\u{1b}' => out.push_str("\\e"),
            '\u{85}' => out.push_str("\\N"),
            '\u{2028}' => out.push_str("\\L"),
            '\u{2029}' => out.push_str("\\P"),
            letter if is_plain(letter) => out.push(letter),
            letter => {
                let code = u32::from(letter);
                out.push_str(&match code {
                    0..=0xff => format!("\\x{code:02X}"),
                    0x100..=0xffff => format!("\\u{code:04X}"),
                    _ => format!("\\U{code:08X}"),
                });
            }
        }
    }
    out.push('"');
    out
}

/// Whether a reader would take the plain text for a number, a truth value, nothing, or a date.
fn reads_as_other(value: &str) -> bool {
    let words = [
        "null", "~", "true", "false", "yes", "no", "on", "off", "y", "n", ".nan", ".inf", "-.inf",
        "+.inf",
    ];
    let lower = value.to_ascii_lowercase();
    let numeric = value.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.'))
        && value.chars().all(|c| {
            c.is_ascii_hexdigit()
                || matches!(c, '+' | '-' | '.' | '_' | ':' | 'x' | 'X' | 'o' | 'T' | 'Z')
        });
    words.contains(&&*lower)
        || (numeric
            && (value.replace('_', "").parse::<f64>().is_ok()
                || value.contains([':', 'x', 'X', 'o'])
                || value.len() == 10 && value.matches('-').count() == 2))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_written_reads_back() {
        let long = format!("{} {} x", "a".repeat(90), "b".repeat(30));
        for value in [
            json!({"a": "1", "b": "true", "c": "", "d": "x: y", "e": "# z", "f": " lead", "g": "multi\nline", "h": 5, "i": [], "j": {}, "k": null}),
            json!({"list": ["a", {"b": 1, "c": [1, 2]}, [3]], "m": {"n": {"o": "1e3"}}}),
            json!({"quotes": "it's", "double": "\"x\"", "long": long, "dash": "- a", "flag": "--x=y", "ip": "10.0.0.1", "v6": "fd00::1"}),
            json!({"letters": "grüß 漢字", "emoji": "go 🚀", "bell": "\u{7}\u{1}\u{85}\u{feff}", "line": "a\u{2028}b"}),
            json!({"date": "2020-01-02", "hex": "0x1F", "octal": "0o7", "size": "1Gi", "percent": "5%", "time": "1m30s", "under": "1_000"}),
        ] {
            let text = write(&value);
            let read: Value =
                serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
            assert_eq!(read, value, "\n{text}");
        }
    }
}
