//! From the schema that the types derive to the form that the API server accepts: every field has one type, nothing is
//! nullable, nothing refers elsewhere.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

/// Marks a default in the types. Defaults that the generator adds by itself (empty lists and texts, from reading
/// leniently) are no part of the contract.
const DEFAULT: &str = "x-default";

/// Keywords of JSON Schema that a definition may not have, or that say nothing here.
const DROPPED: [&str; 4] = ["$schema", "title", "default", "nullable"];

/// The structural schema of a type.
#[must_use]
pub fn schema_of<T: JsonSchema>() -> Value {
    let mut settings = SchemaSettings::draft2020_12();
    settings.inline_subschemas = true;
    settings.meta_schema = None;
    clean(
        settings
            .into_generator()
            .into_root_schema_for::<T>()
            .to_value(),
    )
}

/// The schema of a whole object from those of its parts.
#[must_use]
pub fn root(description: &str, spec: Value, status: Value, spec_required: bool) -> Value {
    let mut schema = json!({
        "type": "object",
        "description": description,
        "properties": {
            "apiVersion": { "type": "string", "description": "Group and version of this object." },
            "kind": { "type": "string", "description": "Kind of this object." },
            "metadata": { "type": "object" },
            "spec": spec,
            "status": status,
        },
    });
    if spec_required && let Some(schema) = schema.as_object_mut() {
        schema.insert("required".to_owned(), json!(["spec"]));
    }
    schema
}

fn clean(schema: Value) -> Value {
    let Value::Object(mut schema) = schema else {
        return schema;
    };
    unwrap_option(&mut schema);
    for key in DROPPED {
        schema.remove(key);
    }
    if let Some(default) = schema.remove(DEFAULT) {
        schema.insert("default".to_owned(), default);
    }
    if let Some(Value::String(description)) = schema.get_mut("description") {
        *description = description
            .lines()
            .map(str::trim)
            .collect::<Vec<_>>()
            .join(" ");
    }
    let mut cleaned = Map::new();
    for (key, value) in schema {
        let value = match (key.as_str(), value) {
            (_, Value::Null) => continue,
            ("properties", Value::Object(properties)) => Value::Object(
                properties
                    .into_iter()
                    .map(|(name, property)| (name, clean(property)))
                    .collect(),
            ),
            ("items" | "additionalProperties", value) => clean(value),
            ("required", Value::Array(names)) if names.is_empty() => continue,
            (_, value) => value,
        };
        cleaned.insert(key, value);
    }
    Value::Object(cleaned)
}

/// An optional field is one that may be absent, not one that may be null.
fn unwrap_option(schema: &mut Map<String, Value>) {
    if let Some(Value::Array(types)) = schema.get_mut("type") {
        types.retain(|each| each != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            schema.insert("type".to_owned(), only);
        }
    }
    let null = json!({ "type": "null" });
    if let Some(Value::Array(choices)) = schema.get_mut("anyOf")
        && choices.contains(&null)
    {
        choices.retain(|each| *each != null);
        if let [Value::Object(only)] = choices.as_slice() {
            let only = only.clone();
            schema.remove("anyOf");
            for (key, value) in only {
                schema.entry(key).or_insert(value);
            }
        }
    }
}
