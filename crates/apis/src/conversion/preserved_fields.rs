//! Fields that one version cannot express, stored as differences in an annotation of the other.

use std::collections::{BTreeSet, HashMap, VecDeque};

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use crate::schema::json_fields::{annotate, annotation, remove_annotation};

/// One difference: where the plain way back gives `was`, there really stood `is`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct PreservedField {
    /// JSON pointer of the field, or of the list when `item` is set.
    at: String,
    /// Place in the list; an item that has moved is found by its value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    item: Option<usize>,
    /// What the plain way back gives; absent = nothing.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "present"
    )]
    was: Option<Value>,
    /// What really stood there; absent = nothing.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "present"
    )]
    is: Option<Value>,
}

/// `null` is a value too.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// Maximum size of an annotation that is read, in bytes: API servers limit all annotations of an object to this size.
const LONGEST: usize = 256 << 10;

/// Removes the differences from their annotation and returns them. An annotation that does not parse is kept: it may be a
/// user's text, and an object that cannot be converted blocks its whole kind. An annotation that is too long is kept as well.
pub(super) fn extract(object: &mut Value, key: &str) -> Vec<PreservedField> {
    let read = annotation(object, key)
        .filter(|text| text.len() <= LONGEST)
        .and_then(|text| serde_json::from_str(text).ok());
    let Some(kept) = read else {
        return Vec::new();
    };
    remove_annotation(object, key);
    kept
}

/// Writes the differences into an annotation; none, no annotation.
pub(super) fn annotate_with(object: &mut Value, key: &str, kept: &[PreservedField]) {
    if kept.is_empty() {
        return;
    }
    let list: Vec<Value> = kept
        .iter()
        .filter_map(|each| serde_json::to_value(each).ok())
        .collect();
    annotate(object, key, Value::from(list).to_string());
}

/// Differences from `was` to `is`, in the order of paths. `apiVersion` is ignored.
pub(super) fn differences(was: &Value, is: &Value) -> Vec<PreservedField> {
    let mut found = Vec::new();
    if let (Value::Object(was), Value::Object(is)) = (was, is) {
        objects("", was, is, &mut found);
    }
    found.retain(|each| each.at != "/apiVersion");
    found
}

fn objects<'a>(
    at: &str,
    was: &'a Map<String, Value>,
    is: &'a Map<String, Value>,
    found: &mut Vec<PreservedField>,
) {
    let names: BTreeSet<&String> = was.keys().chain(is.keys()).collect();
    for name in names {
        let at = format!("{at}/{}", name.replace('~', "~0").replace('/', "~1"));
        // Null is absent.
        let there = |map: &'a Map<String, Value>| map.get(name).filter(|value| !value.is_null());
        match (there(was), there(is)) {
            (None, None) => {}
            (Some(was), Some(is)) => values(&at, was, is, found),
            (was, is) => found.push(PreservedField {
                at,
                item: None,
                was: was.cloned(),
                is: is.cloned(),
            }),
        }
    }
}

fn values(at: &str, was: &Value, is: &Value, found: &mut Vec<PreservedField>) {
    match (was, is) {
        _ if was == is => {}
        (Value::Object(was), Value::Object(is)) => objects(at, was, is, found),
        (Value::Array(was), Value::Array(is)) if was.len() == is.len() => {
            let pairs = was.iter().zip(is).enumerate();
            found.extend(
                pairs
                    .filter(|(_, (was, is))| was != is)
                    .map(|(index, (was, is))| PreservedField {
                        at: at.to_owned(),
                        item: Some(index),
                        was: Some(was.clone()),
                        is: Some(is.clone()),
                    }),
            );
        }
        _ => found.push(PreservedField {
            at: at.to_owned(),
            item: None,
            was: Some(was.clone()),
            is: Some(is.clone()),
        }),
    }
}

/// Applies the differences whose premise is satisfied.
pub(super) fn apply(object: &mut Value, kept: Vec<PreservedField>) {
    // Positions of the items of a list that have not been restored yet, so that two equal ones are distinguished. Computed once
    // per list: a search for each item would cost the product of the two lengths.
    let mut places: HashMap<String, HashMap<Value, VecDeque<usize>>> = HashMap::new();
    for PreservedField { at, item, was, is } in kept {
        match (item, was, is) {
            (Some(index), Some(was), Some(is)) => {
                let Some(Value::Array(list)) = object.pointer_mut(&at) else {
                    continue;
                };
                let places = places.entry(at).or_insert_with(|| positions(list));
                let Some(free) = places.get_mut(&was) else {
                    continue;
                };
                // Its own position, otherwise the first.
                let place = match free.binary_search(&index) {
                    Ok(own) => free.remove(own),
                    Err(_) => free.pop_front(),
                };
                let slot = place.and_then(|place| list.get_mut(place));
                // The list may be another than it was, after an entry about all of it.
                if let Some(slot) = slot.filter(|slot| **slot == was) {
                    *slot = is;
                }
            }
            (_, was, is) => {
                let there = object.pointer(&at).filter(|value| !value.is_null());
                if there == was.as_ref().filter(|value| !value.is_null()) {
                    write(object, &at, is);
                }
            }
        }
    }
}

/// Positions of each value in a list, in order.
fn positions(list: &[Value]) -> HashMap<Value, VecDeque<usize>> {
    let mut places: HashMap<Value, VecDeque<usize>> = HashMap::new();
    for (index, item) in list.iter().enumerate() {
        places.entry(item.clone()).or_default().push_back(index);
    }
    places
}

/// Writes a value at a pointer, making the objects on the way; `None` removes it.
fn write(object: &mut Value, at: &str, value: Option<Value>) {
    let mut names: Vec<String> = at
        .split('/')
        .skip(1)
        .map(|name| name.replace("~1", "/").replace("~0", "~"))
        .collect();
    let Some(last) = names.pop() else {
        return;
    };
    let mut parent = object;
    for name in names {
        let Some(map) = parent.as_object_mut() else {
            return;
        };
        parent = map.entry(name).or_insert_with(|| Value::Object(Map::new()));
    }
    let Some(map) = parent.as_object_mut() else {
        return;
    };
    match value {
        Some(value) => {
            map.insert(last, value);
        }
        None => {
            map.remove(&last);
        }
    }
}
