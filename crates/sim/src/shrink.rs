//! Makes an input that fails smaller: delta debugging of lists and of JSON documents.

use serde_json::{Map, Value};

/// A part of `all` that still fails, of which no single item can be left out: halves are left out first, then quarters, and so on.
/// `fails` is called with parts of `all` in their order.
///
/// # Cost
/// With `n` items of which `k` are needed, about `k log n` calls; at most `n²`. It ends early when `fails` answers no to everything.
pub fn shrunk_list<T: Clone>(all: &[T], fails: &mut dyn FnMut(&[T]) -> bool) -> Vec<T> {
    let mut kept = all.to_vec();
    let mut length = kept.len().div_ceil(2);
    while length > 0 {
        let mut at = 0;
        let mut is_shorter = false;
        while at < kept.len() {
            let end = (at + length).min(kept.len());
            let rest = [&kept[..at], &kept[end..]].concat();
            if fails(&rest) {
                kept = rest;
                is_shorter = true;
            } else {
                at = end;
            }
        }
        length = match length {
            1 if is_shorter => 1,
            1 => 0,
            longer => longer.div_ceil(2),
        };
    }
    kept
}

/// A document that still fails, from which no field, item or number can be taken: items of arrays and fields of objects are left out,
/// and whole numbers become 0, 1 or half of what they are, from the outside to the inside, until nothing changes.
///
/// # Cost
/// As often as [`shrunk_list`] for each array and object.
pub fn shrunk_document(document: &Value, fails: &mut dyn FnMut(&Value) -> bool) -> Value {
    let mut whole = document.clone();
    loop {
        let before = whole.clone();
        shrink_at("", &mut whole, fails);
        if whole == before {
            return whole;
        }
    }
}

/// Shrinks what is at this place.
fn shrink_at(place: &str, whole: &mut Value, fails: &mut dyn FnMut(&Value) -> bool) {
    let Some(found) = whole.pointer(place).cloned() else {
        return;
    };
    let mut with = |whole: &Value, part: Value| {
        let mut candidate = whole.clone();
        put(place, part, &mut candidate);
        fails(&candidate)
    };
    match found {
        Value::Array(items) => {
            let array = |items: &[Value]| Value::Array(items.to_vec());
            let kept = shrunk_list(&items, &mut |part| with(whole, array(part)));
            put(place, array(&kept), whole);
            for at in 0..kept.len() {
                shrink_at(&format!("{place}/{at}"), whole, fails);
            }
        }
        Value::Object(fields) => {
            let fields: Vec<(String, Value)> = fields.into_iter().collect();
            let object = |part: &[(String, Value)]| {
                Value::Object(part.iter().cloned().collect::<Map<_, _>>())
            };
            let kept = shrunk_list(&fields, &mut |part| with(whole, object(part)));
            put(place, object(&kept), whole);
            for (name, _) in &kept {
                let name = name.replace('~', "~0").replace('/', "~1");
                shrink_at(&format!("{place}/{name}"), whole, fails);
            }
        }
        Value::Number(number) => {
            let number = number.as_u64().unwrap_or_default();
            let smaller = [0, 1, number / 2];
            let mut smaller = smaller.into_iter().filter(|less| *less < number);
            if let Some(less) = smaller.find(|less| with(whole, Value::from(*less))) {
                put(place, Value::from(less), whole);
            }
        }
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

fn put(place: &str, part: Value, whole: &mut Value) {
    if let Some(found) = whole.pointer_mut(place) {
        *found = part;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_list_keeps_what_is_needed() {
        let all: Vec<usize> = (0..40).collect();
        let mut calls = 0;
        let mut both = |part: &[usize]| {
            calls += 1;
            part.contains(&3) && part.contains(&29)
        };
        assert_eq!(shrunk_list(&all, &mut both), [3, 29]);
        assert!(calls < 60, "{calls}");
        assert_eq!(shrunk_list(&all, &mut |_| true), Vec::<usize>::new());
        assert_eq!(shrunk_list(&all, &mut |_| false), all);
    }

    #[test]
    fn a_document_keeps_the_fields_items_and_numbers_that_are_needed() {
        let document = json!([
            { "kind": "Scenario", "spec": { "seed": 7, "timeline": [{ "a": 1 }, { "scale": { "replicas": 40, "name": "web" } }] } },
            { "kind": "Deployment", "metadata": { "labels": { "a/b~c": "d", "e": "f" } } },
            { "kind": "Service" },
        ]);
        let mut fails = |document: &Value| {
            let entries = document
                .pointer("/0/spec/timeline")
                .and_then(Value::as_array);
            let mut entries = entries.into_iter().flatten();
            let scales = entries
                .any(|entry| entry.pointer("/scale/replicas").and_then(Value::as_u64) >= Some(5));
            let mut labels = document.as_array().into_iter().flatten();
            scales && labels.any(|each| each.pointer("/metadata/labels/a~1b~0c").is_some())
        };
        let small = json!([
            { "spec": { "timeline": [{ "scale": { "replicas": 5 } }] } },
            { "metadata": { "labels": { "a/b~c": "d" } } },
        ]);
        assert!(fails(&small));
        assert_eq!(shrunk_document(&document, &mut fails), small);
    }
}
