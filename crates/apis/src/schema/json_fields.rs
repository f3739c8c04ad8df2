//! Reading and moving fields of a JSON object, with errors that name them.

use serde_json::{Map, Value};

use thiserror::Error;

/// Longest quoted value in an error.
const QUOTED: usize = 60;

/// A field of another type than its rule can convert.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{field}: {value} is not {wanted}")]
pub struct WrongType {
    /// Place in the object, dots between names.
    pub field: String,
    /// Its value, shortened.
    pub value: String,
    /// Types that are allowed.
    pub wanted: &'static str,
}

/// The error for a value of the wrong type; absent values are quoted as such.
#[must_use]
pub fn wrong(field: &str, value: Option<&Value>, wanted: &'static str) -> WrongType {
    let text = value.map_or_else(|| "nothing".to_owned(), Value::to_string);
    let mut shown: String = text.chars().take(QUOTED).collect();
    if shown.len() < text.len() {
        shown.push_str("...");
    }
    WrongType {
        field: field.to_owned(),
        value: shown,
        wanted,
    }
}

/// Puts a field into an object; anything else is left alone.
pub fn set(object: &mut Value, key: &str, value: Value) {
    if let Some(object) = object.as_object_mut() {
        object.insert(key.to_owned(), value);
    }
}

/// The object at a path of names, if there is one.
///
/// # Errors
/// A value on the path is no object.
pub fn object_at<'a>(
    root: &'a mut Value,
    path: &[&str],
) -> Result<Option<&'a mut Map<String, Value>>, WrongType> {
    let mut at = root;
    for (depth, name) in path.iter().enumerate() {
        let Some(next) = at.get_mut(*name).filter(|next| !next.is_null()) else {
            return Ok(None);
        };
        if !next.is_object() {
            let field = path.get(..=depth).unwrap_or(path).join(".");
            return Err(wrong(&field, Some(next), "an object"));
        }
        at = next;
    }
    Ok(at.as_object_mut())
}

/// The list of this name in an object, if there is one.
///
/// # Errors
/// The value is no list.
pub fn list_in<'a>(
    object: &'a mut Map<String, Value>,
    name: &str,
    path: &str,
) -> Result<Option<&'a mut Vec<Value>>, WrongType> {
    match object.get_mut(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Array(list)) => Ok(Some(list)),
        Some(other) => Err(wrong(&format!("{path}.{name}"), Some(other), "a list")),
    }
}

/// The text of this name in an object, if there is one.
///
/// # Errors
/// The value is no text.
pub fn text_in<'a>(
    object: &'a Map<String, Value>,
    name: &str,
    path: &str,
) -> Result<Option<&'a str>, WrongType> {
    match object.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(wrong(&format!("{path}.{name}"), Some(other), "a text")),
    }
}

/// Takes a field out of an object; `null` is none.
pub fn taken(object: &mut Map<String, Value>, name: &str) -> Option<Value> {
    object.remove(name).filter(|value| !value.is_null())
}

/// The field of this name, made when it is absent or `null`.
pub fn filled<'a>(
    object: &'a mut Map<String, Value>,
    name: &str,
    make: impl FnOnce() -> Value,
) -> &'a mut Value {
    let field = object.entry(name).or_insert(Value::Null);
    if field.is_null() {
        *field = make();
    }
    field
}

/// An annotation of the object.
#[must_use]
pub fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object
        .get("metadata")?
        .get("annotations")?
        .get(key)?
        .as_str()
}

/// Writes an annotation.
pub fn annotate(object: &mut Value, key: &str, text: String) {
    let Some(object) = object.as_object_mut() else {
        return;
    };
    let mut at = object;
    for name in ["metadata", "annotations"] {
        let next = at
            .entry(name)
            .and_modify(|value| {
                if value.is_null() {
                    *value = Value::Object(Map::new());
                }
            })
            .or_insert_with(|| Value::Object(Map::new()));
        let Some(next) = next.as_object_mut() else {
            return;
        };
        at = next;
    }
    at.insert(key.to_owned(), Value::from(text));
}

/// Takes an annotation away, and the map with it when it was the only one.
pub fn remove_annotation(object: &mut Value, key: &str) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else {
        return;
    };
    let Some(annotations) = metadata
        .get_mut("annotations")
        .and_then(Value::as_object_mut)
    else {
        return;
    };
    let removed = annotations.remove(key).is_some();
    if removed && annotations.is_empty() {
        metadata.remove("annotations");
    }
}
