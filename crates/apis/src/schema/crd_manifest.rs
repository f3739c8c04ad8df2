//! A CustomResourceDefinition: what it has next to the schema, and edits of schemas.

use kube_core::Resource;
use serde_json::{Map, Value, json};

/// One definition and the file that it belongs in.
#[derive(Clone, Debug, PartialEq)]
pub struct CrdManifest {
    /// File name: `<group>_<plural>.yaml`.
    pub file_name: String,
    /// The definition.
    pub definition: Value,
}

/// What a definition has next to the schema of a kind.
#[derive(Clone, Debug)]
pub struct CrdLayout {
    /// `Cluster` or `Namespaced`.
    pub scope: &'static str,
    /// Category of the names.
    pub category: &'static str,
    /// Short names.
    pub short_names: &'static [&'static str],
    /// Printer columns; null for those of the API server.
    pub columns: Value,
    /// The scale subresource.
    pub scale: Option<Value>,
}

/// Cluster scope, without anything else.
pub const CLUSTER: CrdLayout = CrdLayout {
    scope: "Cluster",
    category: "karpenter",
    short_names: &[],
    columns: Value::Null,
    scale: None,
};

/// Path of the status of the root condition.
pub const READY: &str = ".status.conditions[?(@.type==\"Ready\")].status";
/// Path of the time of creation.
pub const CREATED: &str = ".metadata.creationTimestamp";

/// A printer column.
#[must_use]
pub fn column(name: &str, kind: &str, path: &str) -> Value {
    json!({ "name": name, "type": kind, "jsonPath": path })
}

/// A column that is shown with wide output only.
#[must_use]
pub fn wide(name: &str, kind: &str, path: &str) -> Value {
    json!({ "name": name, "type": kind, "jsonPath": path, "priority": 1 })
}

/// The definition of a kind.
#[must_use]
pub fn definition<K: Resource<DynamicType = ()>>(shape: CrdLayout, schema: &Value) -> CrdManifest {
    let (group, kind, plural) = (K::group(&()), K::kind(&()), K::plural(&()));
    let mut names = json!({
        "categories": [shape.category],
        "kind": kind,
        "listKind": format!("{kind}List"),
        "plural": plural,
        "singular": kind.to_lowercase(),
    });
    insert(
        &mut names,
        "shortNames",
        (!shape.short_names.is_empty()).then(|| json!(shape.short_names)),
    );
    let mut subresources = json!({ "status": {} });
    insert(&mut subresources, "scale", shape.scale);
    let mut version = json!({
        "name": K::version(&()),
        "schema": { "openAPIV3Schema": schema },
        "served": true,
        "storage": true,
        "subresources": subresources,
    });
    insert(
        &mut version,
        "additionalPrinterColumns",
        shape.columns.is_array().then_some(shape.columns),
    );
    CrdManifest {
        file_name: format!("{group}_{plural}.yaml"),
        definition: json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": { "name": format!("{plural}.{group}") },
            "spec": { "group": group, "names": names, "scope": shape.scope, "versions": [version] },
        }),
    }
}

/// Sets a field of an object, where there is a value.
pub fn insert(object: &mut Value, key: &str, value: Option<Value>) {
    if let (Some(object), Some(value)) = (object.as_object_mut(), value) {
        object.insert(key.to_owned(), value);
    }
}

/// Puts a value at a place of a schema. The place must be there: a renamed field would otherwise lose its rules without
/// a word, so the value goes where the API server refuses it.
pub fn set_field(schema: &mut Value, pointer: &str, key: &str, value: Value) {
    match schema.pointer_mut(pointer) {
        Some(at) => insert(at, key, Some(value)),
        None => insert(schema, &format!("no field at {pointer}"), Some(value)),
    }
}

/// Keyword of CEL rules in a schema.
pub const RULES: &str = "x-kubernetes-validations";

/// The fields of the set of fields at a pointer.
pub fn fields<'a>(schema: &'a mut Value, pointer: &str) -> Option<&'a mut Map<String, Value>> {
    schema
        .pointer_mut(&format!("{pointer}/properties"))?
        .as_object_mut()
}

/// Takes away the rules that speak of fields which are not there.
pub fn without_rules(schema: &mut Value, about: &[&str]) {
    if let Some(Value::Array(rules)) = schema.get_mut(RULES) {
        rules.retain(|each| {
            let text = each.get("rule").and_then(Value::as_str).unwrap_or_default();
            !about.iter().any(|name| text.contains(name))
        });
    }
}

/// Sets a keyword of the schema at a pointer, if there is one.
pub fn set_keyword(schema: &mut Value, pointer: &str, key: &str, value: Value) {
    if let Some(Value::Object(at)) = schema.pointer_mut(pointer) {
        at.insert(key.to_owned(), value);
    }
}
