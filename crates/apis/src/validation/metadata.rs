//! What an API server refuses in `metadata`, of any kind. Objects that come from files have not met one yet.

use serde_json::Value;

use super::syntax::{is_label_key, is_label_value, is_object_name};
use crate::issues::{FieldIssue, IssueSeverity, IssueTopic, quoted};

const NO_KEY: &str = "is not a qualified name: at most 63 letters, digits, '-', '_' and '.', with a lower-case domain and '/' before it or not";

/// What is wrong with the name, the labels and the annotations of an object.
#[must_use]
pub fn metadata_faults(object: &Value) -> Vec<FieldIssue> {
    let mut found = Vec::new();
    let metadata = object.get("metadata").unwrap_or(&Value::Null);
    name(metadata, &mut found);
    for (map, example) in [("labels", "team-a"), ("annotations", "the text")] {
        let at = |key: &str| format!("metadata.{map}[{key:?}]");
        let entries = match metadata.get(map) {
            None | Some(Value::Null) => continue,
            Some(Value::Object(entries)) => entries,
            Some(other) => {
                let problem = "is not a set of fields with texts";
                let fix = "write each key and its value on a line of its own";
                found.push(fault(format!("metadata.{map}"), other, problem, fix));
                continue;
            }
        };
        for (key, value) in entries {
            if !is_label_key(key) {
                let key_value = Value::from(key.as_str());
                found.push(fault(
                    at(key),
                    &key_value,
                    NO_KEY,
                    "write for example example.com/team",
                ));
            }
            match value {
                Value::String(text) if map == "labels" && !is_label_value(text) => {
                    let problem = "is not a label value: at most 63 letters, digits, '-', '_' and '.', letters or digits at both ends";
                    found.push(fault(
                        at(key),
                        value,
                        problem,
                        format!("write for example {example}"),
                    ));
                }
                Value::String(_) | Value::Null => {}
                Value::Number(_) | Value::Bool(_) => {
                    let fix = format!("write it in quotes: \"{value}\"");
                    found.push(fault(at(key), value, "is not a text", fix));
                }
                Value::Array(_) | Value::Object(_) => {
                    found.push(fault(
                        at(key),
                        value,
                        "is not a text",
                        format!("write {example}"),
                    ));
                }
            }
        }
    }
    found
}

fn name(metadata: &Value, found: &mut Vec<FieldIssue>) {
    let given = |field: &str| {
        metadata
            .get(field)
            .filter(|value| !value.is_null() && **value != "")
    };
    match (given("name"), given("generateName")) {
        (Some(Value::String(text)), _) if is_object_name(text) => {}
        (Some(Value::String(text)), _) => {
            let meant = as_name(text);
            let fix = meant.map_or_else(
                || "write for example default".to_owned(),
                |meant| format!("did you mean \"{meant}\"?"),
            );
            found.push(fault(
                "metadata.name".to_owned(),
                &Value::from(text.as_str()),
                "is not a name: lower-case letters, digits, '-' and '.', letters or digits at both ends, at most 253 characters",
                fix,
            ));
        }
        (Some(other), _) => found.push(fault(
            "metadata.name".to_owned(),
            other,
            "is not a text",
            format!("write it in quotes: \"{other}\""),
        )),
        (None, Some(_)) => {}
        (None, None) => found.push(FieldIssue {
            weight: IssueSeverity::Schema,
            field: "metadata.name".to_owned(),
            value: "absent".to_owned(),
            problem: "but required (text)".to_owned(),
            fix: "add metadata: {name: default}".to_owned(),
            topic: IssueTopic::Schema,
        }),
    }
}

/// The text with what a name cannot have replaced, when that makes a name.
fn as_name(text: &str) -> Option<String> {
    let name: String = text
        .trim()
        .chars()
        .map(|c| match c {
            '_' | ' ' | '/' => '-',
            other => other.to_ascii_lowercase(),
        })
        .collect();
    is_object_name(&name).then_some(name)
}

fn fault(field: String, value: &Value, problem: &str, fix: impl Into<String>) -> FieldIssue {
    FieldIssue {
        weight: IssueSeverity::Schema,
        field,
        value: quoted(value),
        problem: problem.to_owned(),
        fix: fix.into(),
        topic: IssueTopic::Schema,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn says(metadata: Value, want: &[&str]) {
        let found = metadata_faults(&json!({ "metadata": metadata }));
        let texts: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(texts.len(), want.len(), "{texts:#?}");
        for (text, part) in texts.iter().zip(want) {
            assert!(text.contains(part), "{part:?} is not in {text:?}");
        }
    }

    #[test]
    fn names_labels_and_annotations() {
        says(json!({ "name": "gpu.spot-1" }), &[]);
        says(json!({ "generateName": "gpu-" }), &[]);
        says(json!(null), &["metadata.name: absent but required"]);
        says(
            json!({ "name": "" }),
            &["metadata.name: absent but required"],
        );
        says(json!({ "name": 7 }), &["write it in quotes: \"7\""]);
        says(json!({ "name": "My_Pool" }), &["did you mean \"my-pool\"?"]);
        says(json!({ "name": "-" }), &["write for example default"]);
        says(
            json!({ "name": "a", "labels": { "ok": "", "a b": "c", "team": "a b", "n": 1 }, "annotations": { "on": true, "x": ["y"], "any": "a b" } }),
            &[
                "labels[\"a b\"]: \"a b\" is not a qualified name",
                "labels[\"n\"]: 1 is not a text; write it in quotes: \"1\"",
                "labels[\"team\"]: \"a b\" is not a label value",
                "annotations[\"on\"]: true is not a text; write it in quotes: \"true\"",
                "annotations[\"x\"]: [\"y\"] is not a text",
            ],
        );
        says(
            json!({ "name": "a", "labels": ["b"] }),
            &["metadata.labels: [\"b\"] is not a set of fields"],
        );
    }
}
