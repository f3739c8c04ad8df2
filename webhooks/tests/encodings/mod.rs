//! One object in the encodings of other clients: with `null` for empty fields, and with unknown fields.
//!
//! The handling of `null` by an API server is implemented here a second time, from its documented rules and with the
//! CRD, to verify the decoder of the service, which needs no CRD.

#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::panic,
    reason = "test support: each test uses a part of it, and fails by panicking"
)]

pub(crate) mod recorded;

#[path = "../node_classes/mod.rs"]
pub(crate) mod node_classes;

use std::io::Read as _;

use node_classes::DefinitionSet;
use serde_json::{Map, Value, json};

/// Fields of `metadata` that typed clients write without a value.
const METADATA: [&str; 5] = [
    "creationTimestamp",
    "labels",
    "annotations",
    "finalizers",
    "ownerReferences",
];

/// Lines of a compressed file of facts.
pub(crate) fn lines(packed: &[u8]) -> Vec<Value> {
    let mut text = String::new();
    flate2::read::GzDecoder::new(packed)
        .read_to_string(&mut text)
        .unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// The CRD of a kind.
pub(crate) fn definition(set: DefinitionSet, kind: &str) -> &'static Value {
    let of_kind = |definition: &&Value| definition["spec"]["names"]["kind"] == kind;
    let mut definitions = set.crds().manifests().iter().map(|each| &each.definition);
    definitions.find(of_kind).unwrap()
}

/// The schema of the whole object.
pub(crate) fn schema(set: DefinitionSet, kind: &str) -> &'static Value {
    &definition(set, kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
}

/// One encoding of an object.
#[derive(Clone, Debug)]
pub(crate) struct Encoding {
    /// The change.
    pub(crate) name: String,
    /// The object.
    pub(crate) object: Value,
}

fn encoding(name: impl Into<String>, object: Value) -> Encoding {
    let name = name.into();
    Encoding { name, object }
}

/// All equivalent encodings: unchanged; with `null` for each optional absent field, alone and in each map; without a
/// status; with metadata as typed clients encode it; with an unknown field in each set of fields.
pub(crate) fn the_same(schema: &Value, object: &Value) -> Vec<Encoding> {
    let mut nulls = object.clone();
    fill(schema, &mut nulls, &mut vec![], &mut |_| true);
    let mut strange = object.clone();
    add_strangers(schema, &mut strange);
    let mut bare = object.clone();
    bare.as_object_mut().unwrap().remove("status");
    let mut empty = object.clone();
    empty["status"] = json!({});
    let mut typed = object.clone();
    for field in METADATA {
        if typed["metadata"].get(field).is_none() {
            typed["metadata"][field] = Value::Null;
        }
    }
    vec![
        encoding("as it is", object.clone()),
        encoding("null everywhere", nulls),
        encoding("unknown fields", strange),
        encoding("no status", bare),
        encoding("empty status", empty),
        encoding("typed metadata", typed),
    ]
}

/// The object with one more `null`, for each optional absent field.
pub(crate) fn one_null_each(schema: &Value, object: &Value) -> Vec<Encoding> {
    let mut places = Vec::new();
    let mut probe = object.clone();
    fill(schema, &mut probe, &mut vec![], &mut |place| {
        places.push(place.to_owned());
        false
    });
    let with = |place: &String| {
        let mut object = object.clone();
        fill(schema, &mut object, &mut vec![], &mut |at| at == place);
        encoding(format!("null at {place}"), object)
    };
    places.iter().map(with).collect()
}

/// The object with `null` instead of each present field, one at a time: usually not equivalent.
pub(crate) fn each_made_null(object: &Value) -> Vec<Encoding> {
    let mut pointers = Vec::new();
    each_field(object, String::new(), &mut pointers);
    let made = |pointer: String| {
        let mut object = object.clone();
        *object.pointer_mut(&pointer).unwrap() = Value::Null;
        encoding(format!("null for {pointer}"), object)
    };
    pointers.into_iter().map(made).collect()
}

fn each_field(value: &Value, at: String, pointers: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                let at = format!("{at}/{}", name.replace('~', "~0").replace('/', "~1"));
                if !["/apiVersion", "/kind", "/metadata"].contains(&at.as_str()) {
                    pointers.push(at.clone());
                    each_field(field, at, pointers);
                }
            }
        }
        Value::Array(items) => {
            for (n, item) in items.iter().enumerate() {
                each_field(item, format!("{at}/{n}"), pointers);
            }
        }
        _ => {}
    }
}

/// Sets absent fields to `null`, at each position that `wanted` selects.
fn fill(
    schema: &Value,
    value: &mut Value,
    at: &mut Vec<String>,
    wanted: &mut impl FnMut(&str) -> bool,
) {
    match value {
        Value::Object(fields) => {
            let required = schema["required"].as_array().cloned().unwrap_or_default();
            for (name, property) in schema["properties"].as_object().into_iter().flatten() {
                if at.is_empty() && ["apiVersion", "kind", "metadata"].contains(&name.as_str()) {
                    continue;
                }
                at.push(name.clone());
                let optional =
                    property.get("default").is_some() || !required.contains(&json!(name));
                match fields.get_mut(name) {
                    Some(field) => fill(property, field, at, wanted),
                    None if optional && wanted(&at.join(".")) => {
                        fields.insert(name.clone(), Value::Null);
                    }
                    None => {}
                }
                at.pop();
            }
            let of_entries = &schema["additionalProperties"];
            if of_entries.is_object() {
                for (name, field) in fields.iter_mut() {
                    at.push(name.clone());
                    fill(of_entries, field, at, wanted);
                    at.pop();
                }
                at.push("nothing".to_owned());
                if wanted(&at.join(".")) {
                    fields.insert("nothing".to_owned(), Value::Null);
                }
                at.pop();
            }
        }
        Value::Array(items) => {
            for (n, item) in items.iter_mut().enumerate() {
                at.push(n.to_string());
                fill(&schema["items"], item, at, wanted);
                at.pop();
            }
        }
        _ => {}
    }
}

/// Adds an unknown field to each set of fields.
fn add_strangers(schema: &Value, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            let properties = schema["properties"].as_object();
            for (name, property) in properties.into_iter().flatten() {
                if let Some(field) = fields.get_mut(name).filter(|_| name != "metadata") {
                    add_strangers(property, field);
                }
            }
            if properties.is_some() && !schema["additionalProperties"].is_object() {
                fields.insert("strangerFromFarAway".to_owned(), json!({ "a": [1] }));
            }
        }
        Value::Array(items) => {
            for item in items {
                add_strangers(&schema["items"], item);
            }
        }
        _ => {}
    }
}

/// The object as the API server stores it: unknown fields are dropped, a `null` is dropped or replaced by the default,
/// and defaults are set.
pub(crate) fn stored(schema: &Value, object: &Value) -> Value {
    let mut object = object.clone();
    let metadata = object["metadata"].clone();
    prune(schema, &mut object);
    default(schema, &mut object);
    object["metadata"] = metadata;
    object
}

fn prune(schema: &Value, value: &mut Value) {
    let open = schema["x-kubernetes-preserve-unknown-fields"] == json!(true);
    match value {
        Value::Object(fields) => {
            let named = |name: &str| {
                let property = schema["properties"].get(name);
                property.or_else(|| {
                    schema
                        .get("additionalProperties")
                        .filter(|each| each.is_object())
                })
            };
            let before: Map<String, Value> = std::mem::take(fields);
            for (name, mut field) in before {
                match named(&name) {
                    Some(of_field) if field.is_null() && of_field.get("default").is_none() => {}
                    Some(of_field) => {
                        prune(of_field, &mut field);
                        fields.insert(name, field);
                    }
                    None if open => {
                        fields.insert(name, field);
                    }
                    None => {}
                }
            }
        }
        Value::Array(items) => {
            for item in items {
                prune(&schema["items"], item);
            }
        }
        _ => {}
    }
}

fn default(schema: &Value, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, property) in schema["properties"].as_object().into_iter().flatten() {
                if let Some(default) = property.get("default")
                    && fields.get(name).is_none_or(Value::is_null)
                {
                    fields.insert(name.clone(), default.clone());
                }
            }
            for (name, field) in fields.iter_mut() {
                let property = schema["properties"].get(name);
                default(
                    property.unwrap_or_else(|| &schema["additionalProperties"]),
                    field,
                );
            }
        }
        Value::Array(items) => {
            for item in items {
                default(&schema["items"], item);
            }
        }
        _ => {}
    }
}
