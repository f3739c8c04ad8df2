//! JSON text as Go writes it: keys in order, no spaces, three characters escaped for HTML, its own way with numbers.

use serde_json::{Map, Value};

/// Writes a value.
pub(crate) fn write(value: &Value) -> String {
    let mut text = String::new();
    append(&mut text, value);
    text
}

fn append(text: &mut String, value: &Value) {
    match value {
        Value::Null => text.push_str("null"),
        Value::Bool(value) => text.push_str(if *value { "true" } else { "false" }),
        Value::Number(number) => match number.as_f64() {
            Some(float) if number.is_f64() => text.push_str(&float_text(float)),
            Some(_) | None => text.push_str(&number.to_string()),
        },
        Value::String(value) => append_string(text, value),
        Value::Array(items) => {
            text.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                append(text, item);
            }
            text.push(']');
        }
        Value::Object(fields) => append_object(text, fields),
    }
}

fn append_object(text: &mut String, fields: &Map<String, Value>) {
    let mut sorted: Vec<(&String, &Value)> = fields.iter().collect();
    sorted.sort_by_key(|(name, _)| *name);
    text.push('{');
    for (index, (name, value)) in sorted.into_iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        append_string(text, name);
        text.push(':');
        append(text, value);
    }
    text.push('}');
}

fn append_string(text: &mut String, value: &str) {
    text.push('"');
    for character in value.chars() {
        match character {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            '\u{8}' => text.push_str("\\b"),
            '\u{c}' => text.push_str("\\f"),
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' | '\0'..='\u{1f}' => {
                text.push_str(&format!("\\u{:04x}", u32::from(character)));
            }
            _ => text.push(character),
        }
    }
    text.push('"');
}

/// The shortest decimal that reads back as the same number, with an exponent below 1e-6 and from 1e21 on.
fn float_text(value: f64) -> String {
    let size = value.abs();
    if size == 0.0 || (1e-6..1e21).contains(&size) {
        return value.to_string();
    }
    let text = format!("{value:e}");
    match text.split_once('e') {
        Some((digits, exponent)) if !exponent.starts_with('-') => format!("{digits}e+{exponent}"),
        Some(_) | None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::write;

    #[track_caller]
    fn rewritten(json: &str, want: &str) {
        assert_eq!(write(&serde_json::from_str(json).unwrap()), want, "{json}");
    }

    #[test]
    fn writes_what_go_writes() {
        rewritten(
            r#"{"b": 1, "a": [true, null, "x"]}"#,
            r#"{"a":[true,null,"x"],"b":1}"#,
        );
        rewritten(r#""<&>""#, r#""\u003c\u0026\u003e""#);
        rewritten("\"\u{2028}\\u0001\\b\\f\\n\"", r#""\u2028\u0001\b\f\n""#);
        rewritten("2.5", "2.5");
        rewritten("2.0", "2");
        rewritten("-0.0", "-0");
        rewritten("0.000001", "0.000001");
        rewritten("1e-7", "1e-7");
        rewritten("1e20", "100000000000000000000");
        rewritten("1.5e21", "1.5e+21");
        rewritten("9223372036854775807", "9223372036854775807");
        rewritten("{}", "{}");
    }
}
