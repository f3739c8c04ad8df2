//! Rules that NodePools and NodeClaims share, for the NodeClaim spec or template.

use serde_json::{Map, Value, json};

use super::annotations::{KUBELET, NODE_CLASS_REFERENCE};
use crate::node_class::NodeClassRegistry;
use crate::schema::groups::{V1, V1BETA1};
use crate::schema::json_fields::{
    WrongType, annotate, annotation, filled, list_in, object_at, remove_annotation, taken, text_in,
    wrong,
};

/// The group in an `apiVersion`; a version alone has none.
pub fn group_of(api_version: &str) -> Option<&str> {
    match api_version.split_once('/') {
        Some((group, _)) => Some(group),
        None => api_version.contains('.').then_some(api_version),
    }
    .filter(|group| !group.is_empty())
}

/// Version of a node class that goes with `v1beta1` NodePools.
fn old_version(classes: &NodeClassRegistry, group: &str) -> &'static str {
    match classes.of_group(group) {
        Some(class) if class.old_version().is_some() => V1BETA1,
        Some(class) => class.kind().version,
        None => V1,
    }
}

/// To `v1`: the group alone, and the kubelet settings out of the way.
pub(super) fn up(
    classes: &NodeClassRegistry,
    object: &mut Value,
    path: &[&str],
) -> Result<(), WrongType> {
    let at = path.join(".");
    let Some(spec) = object_at(object, path)? else {
        return Ok(());
    };
    if let Some(reference) = reference(spec, &at)? {
        let path = format!("{at}.nodeClassRef");
        let version = text_in(reference, "apiVersion", &path)?.map(str::to_owned);
        let given = text_in(reference, "group", &path)?.map(str::to_owned);
        reference.remove("apiVersion");
        let group = given.or_else(|| version.as_deref().and_then(group_of).map(str::to_owned));
        // What is missing is that of the default class, which the older version did not have to name.
        let default = classes.default_kind();
        if let Some(group) = group.or_else(|| default.map(|class| class.group.to_owned())) {
            reference.insert("group".to_owned(), Value::from(group));
        }
        if let Some(class) = default {
            filled(reference, "kind", || Value::from(class.kind));
        }
    }
    if let Some(kubelet) = taken(spec, "kubelet") {
        if !kubelet.is_object() {
            return Err(wrong(&format!("{at}.kubelet"), Some(&kubelet), "an object"));
        }
        annotate(object, KUBELET, kubelet.to_string());
    }
    Ok(())
}

/// To `v1beta1`: the version of the class, the kubelet settings back, no fields that came later.
pub(super) fn down(
    classes: &NodeClassRegistry,
    object: &mut Value,
    path: &[&str],
) -> Result<(), WrongType> {
    let at = path.join(".");
    let known: Option<Value> =
        annotation(object, NODE_CLASS_REFERENCE).and_then(|text| serde_json::from_str(text).ok());
    let kubelet: Option<Value> = annotation(object, KUBELET)
        .and_then(|text| serde_json::from_str(text).ok())
        .filter(Value::is_object);
    let Some(spec) = object_at(object, path)? else {
        return Ok(());
    };
    let mut used = Vec::new();
    if let Some(reference) = reference(spec, &at)? {
        let path = format!("{at}.nodeClassRef");
        if let Some(group) = text_in(reference, "group", &path)?.map(str::to_owned) {
            let kind = text_in(reference, "kind", &path)?;
            let was = known
                .as_ref()
                .filter(|known| known.get("kind").and_then(Value::as_str) == kind)
                .and_then(|known| known.get("apiVersion")?.as_str())
                .filter(|version| group_of(version) == Some(group.as_str()));
            if was.is_some() {
                used.push(NODE_CLASS_REFERENCE);
            }
            let version = was.map_or_else(
                || format!("{group}/{}", old_version(classes, &group)),
                str::to_owned,
            );
            reference.remove("group");
            reference.insert("apiVersion".to_owned(), Value::from(version));
        }
    }
    if let Some(kubelet) = kubelet {
        spec.insert("kubelet".to_owned(), kubelet);
        used.push(KUBELET);
    }
    spec.remove("terminationGracePeriod");
    for requirement in list_in(spec, "requirements", &at)?.into_iter().flatten() {
        if let Some(requirement) = requirement.as_object_mut() {
            without_inclusive_bounds(requirement);
        }
    }
    for key in used {
        remove_annotation(object, key);
    }
    Ok(())
}

fn reference<'a>(
    spec: &'a mut Map<String, Value>,
    at: &str,
) -> Result<Option<&'a mut Map<String, Value>>, WrongType> {
    match spec.get_mut("nodeClassRef") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Object(reference)) => {
            // Used in both directions: each direction must be able to revert the other.
            for field in ["apiVersion", "group", "kind", "name"] {
                text_in(reference, field, &format!("{at}.nodeClassRef"))?;
            }
            Ok(Some(reference))
        }
        Some(other) => Err(wrong(
            &format!("{at}.nodeClassRef"),
            Some(other),
            "an object",
        )),
    }
}

/// `Gte 5` is equivalent to `Gt 4`, which the older version has.
fn without_inclusive_bounds(requirement: &mut Map<String, Value>) {
    let step = match requirement.get("operator").and_then(Value::as_str) {
        Some("Gte") => -1,
        Some("Lte") => 1,
        _ => return,
    };
    let bound = requirement
        .get("values")
        .and_then(|values| values.get(0)?.as_str()?.parse::<i64>().ok())
        .and_then(|bound| bound.checked_add(step));
    let (operator, values) = match bound {
        // At least zero: every number, which the older version can only express as `Exists`.
        Some(bound) if bound < 0 => ("Exists", None),
        Some(bound) => (
            if step < 0 { "Gt" } else { "Lt" },
            Some(json!([bound.to_string()])),
        ),
        None => (if step < 0 { "Gt" } else { "Lt" }, None),
    };
    requirement.insert("operator".to_owned(), Value::from(operator));
    match values {
        Some(values) => {
            requirement.insert("values".to_owned(), values);
        }
        None if operator == "Exists" => {
            requirement.remove("values");
        }
        None => {}
    }
}
