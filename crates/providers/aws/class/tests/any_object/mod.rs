//! Objects made from a schema, so that a field that is added to it is tested without anybody thinking of it.

use serde_json::{Map, Value, json};

/// Choices, one after the other; when they run out, the least of everything.
pub(crate) struct Tape<'a> {
    choices: &'a [u32],
    at: usize,
}

impl<'a> Tape<'a> {
    pub(crate) const fn new(choices: &'a [u32]) -> Self {
        Self { choices, at: 0 }
    }

    /// A number below `end`.
    fn below(&mut self, end: usize) -> usize {
        let choice = self.choices.get(self.at).copied().unwrap_or(0);
        self.at += 1;
        usize::try_from(choice).unwrap() % end.max(1)
    }

    fn of(&mut self, texts: &[&str]) -> Value {
        json!(texts[self.below(texts.len())])
    }
}

/// An object that the schema does not prune.
pub(crate) fn any_object(schema: &Value, tape: &mut Tape<'_>) -> Value {
    let mut object = any("", schema, tape);
    let mut metadata = json!({ "name": "some" });
    if tape.below(2) == 1 {
        metadata["annotations"] = json!({ "team/owner": "x", "slash~tilde": "y" });
        metadata["labels"] = json!({ "a": "b" });
    }
    object["metadata"] = metadata;
    object
}

fn any(name: &str, schema: &Value, tape: &mut Tape<'_>) -> Value {
    if let Some(values) = schema["enum"].as_array() {
        return values[tape.below(values.len())].clone();
    }
    // Texts whose inside matters.
    match name {
        "alias" => {
            return tape.of(&[
                "al2023@latest",
                "al2@v20240807",
                "bottlerocket@1.20.0",
                "windows2022@latest",
                "other@1",
                "noversion",
            ]);
        }
        "consolidateAfter" | "expireAfter" => return tape.of(&["Never", "30s", "720h", "0s"]),
        "apiVersion" => {
            return tape.of(&[
                "karpenter.k8s.aws/v1beta1",
                "karpenter.kwok.sh/v1alpha1",
                "v1",
                "karpenter.k8s.aws",
                "/x",
            ]);
        }
        "group" => return tape.of(&["karpenter.k8s.aws", "karpenter.kwok.sh", "example.com", ""]),
        _ => {}
    }
    match schema["type"].as_str() {
        Some("object") => object(schema, tape),
        Some("array") => {
            let length = tape.below(4);
            let item = |tape: &mut Tape<'_>| any("", &schema["items"], tape);
            Value::from((0..length).map(|_| item(tape)).collect::<Vec<_>>())
        }
        Some("integer" | "number") => json!(tape.below(5)),
        Some("boolean") => json!(tape.below(2) == 1),
        _ => tape.of(&["5", "x", "0", "-3", ""]),
    }
}

fn object(schema: &Value, tape: &mut Tape<'_>) -> Value {
    let mut map = Map::new();
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        if tape.below(3) > 0 {
            map.insert(name.clone(), any(name, field, tape));
        }
    }
    if schema.get("additionalProperties").is_some() {
        for key in ["cpu", "example.com/a~b"] {
            if tape.below(2) == 1 {
                map.insert(
                    key.to_owned(),
                    any("", &schema["additionalProperties"], tape),
                );
            }
        }
    }
    if schema["x-kubernetes-preserve-unknown-fields"] == true && tape.below(2) == 1 {
        map.insert("maxPods".to_owned(), json!(tape.below(100)));
        map.insert(
            "evictionHard".to_owned(),
            json!({ "memory.available": "5%" }),
        );
    }
    Value::Object(map)
}

/// Fields that the schema does not have: the API server would drop them.
pub(crate) fn strangers(schema: &Value, object: &Value) -> Vec<String> {
    let mut found = Vec::new();
    walk("", schema, object, &mut found);
    found.retain(|path| !path.starts_with("/metadata"));
    found
}

fn walk(path: &str, schema: &Value, value: &Value, found: &mut Vec<String>) {
    if schema["x-kubernetes-preserve-unknown-fields"] == true {
        return;
    }
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                let path = format!("{path}/{name}");
                match schema["properties"].get(name) {
                    Some(field) => walk(&path, field, value, found),
                    None if schema.get("additionalProperties").is_some() => {}
                    None => found.push(path),
                }
            }
        }
        Value::Array(items) => {
            for item in items {
                walk(path, &schema["items"], item, found);
            }
        }
        _ => {}
    }
}
