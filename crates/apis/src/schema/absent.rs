//! `null` is absent, as it is to an API server.
//!
//! Before anything looks at an object, an API server removes each `null` from a set of fields whose definition
//! does not make it nullable, or puts the field's default there. None of our definitions makes anything nullable (a test
//! asserts it), so a `null` after a name never means more than that the name is not there. Typed Go programs write it
//! for pointers, lists and maps that are empty. An item of a list is different: a `null` there stays, and is of the
//! wrong type.

use std::borrow::Cow;

use serde_json::Value;

/// The object without the names whose value is `null`, at any depth; borrowed if there are none.
///
/// # Cost
/// One pass over the values; a copy only if something is removed.
#[must_use]
pub fn without_nulls(object: &Value) -> Cow<'_, Value> {
    if !has_nulls(object) {
        return Cow::Borrowed(object);
    }
    let mut object = object.clone();
    drop_nulls(&mut object);
    Cow::Owned(object)
}

/// Takes the names out whose value is `null`, at any depth.
pub fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn has_nulls(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields
            .values()
            .any(|field| field.is_null() || has_nulls(field)),
        Value::Array(items) => items.iter().any(has_nulls),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_without_a_value_go_and_items_stay() {
        let object =
            json!({ "a": null, "b": { "c": null, "d": [null, { "e": null, "f": 0 }] }, "g": "" });
        let clean = json!({ "b": { "d": [null, { "f": 0 }] }, "g": "" });
        assert_eq!(*without_nulls(&object), clean);
        assert!(matches!(without_nulls(&object), Cow::Owned(_)));
        assert!(matches!(without_nulls(&clean), Cow::Borrowed(_)));
        assert_eq!(*without_nulls(&Value::Null), Value::Null);
    }
}
