//! Defaulting: fills in what only one answer fits, idempotently, and refuses early what the definition would refuse with
//! worse words.
//!
//! Invariant: a field that the user wrote is never touched, so GitOps tools see no fight.

use mortise_apis::issues::IssueSeverity;
use mortise_apis::labels::WellKnown;
use mortise_apis::validation::faults;
use serde_json::{Value, json};

use super::AdmissionSettings;
use super::review::{AdmissionRequest, AdmissionResult};

/// Answers a defaulting request. What can never work is told along when the definition refuses the object anyway; alone it
/// is left to validation.
#[must_use]
pub fn set_defaults(
    rules: &AdmissionSettings,
    well_known: &WellKnown,
    request: &AdmissionRequest,
) -> AdmissionResult {
    // The rules are those of the present version.
    let classes = rules.crds.known();
    if !request.changes_spec() || request.kind.newer_version(classes).is_some() {
        return AdmissionResult::default();
    }
    let patch = match request.kind.kind.as_str() {
        "NodePool" => {
            node_class_ref_patch(rules, &request.object, "/spec/template/spec/nodeClassRef")
        }
        "NodeClaim" => node_class_ref_patch(rules, &request.object, "/spec/nodeClassRef"),
        _ => Vec::new(),
    };
    let mut object = request.object.clone();
    for operation in &patch {
        let at = operation.get("path").and_then(Value::as_str);
        let Some((parent, field)) = at.and_then(|path| path.rsplit_once('/')) else {
            continue;
        };
        if let Some(parent) = object.pointer_mut(parent) {
            parent[field] = operation["value"].clone();
        }
    }
    let mut found = faults(
        &rules.crds,
        well_known,
        &request.kind.kind,
        &object,
        request.before(),
    );
    found.retain(|fault| fault.weight != IssueSeverity::Suspicious);
    if found
        .iter()
        .all(|fault| fault.weight != IssueSeverity::Schema)
    {
        found.clear();
    }
    let mut answer = AdmissionResult {
        patch,
        ..AdmissionResult::default()
    };
    found.iter().for_each(|fault| answer.add_issue(fault));
    answer
}

/// Group and kind of the node class, when the reference leaves them out and only one kind is served. With one of them of
/// another kind the other is not known here, and the definition refuses what is missing.
fn node_class_ref_patch(rules: &AdmissionSettings, object: &Value, at: &str) -> Vec<Value> {
    let ([kind], Some(reference)) = (
        rules.crds.kinds(),
        object.pointer(at).and_then(Value::as_object),
    ) else {
        return Vec::new();
    };
    let mut patch = Vec::new();
    for (field, value) in [("group", kind.group), ("kind", kind.kind)] {
        match reference.get(field) {
            None | Some(Value::Null) => {}
            Some(written) if written == "" => {}
            Some(written) if written == value => continue,
            Some(_) => return Vec::new(),
        }
        patch.push(json!({ "op": "add", "path": format!("{at}/{field}"), "value": value }));
    }
    patch
}

#[cfg(test)]
mod tests {
    use super::*;
    use mortise_apis::CrdSet;
    use mortise_apis::node_class::{NodeClassKind, NodeClassRegistry};

    #[test]
    fn fills_the_class_reference_once_and_leaves_what_is_written() {
        let kind = NodeClassKind {
            group: "example.com",
            version: "v1",
            kind: "ExampleNodeClass",
            plural: "examplenodeclasses",
        };
        let rules = AdmissionSettings {
            crds: CrdSet::for_classes(&NodeClassRegistry::default(), &[kind]),
            ..AdmissionSettings::default()
        };
        let answer = |reference: Value| {
            let object = json!({ "spec": { "template": { "spec": {
                "nodeClassRef": reference, "requirements": [],
            } } } });
            let kind = super::super::review::GroupVersionKind {
                kind: "NodePool".to_owned(),
                ..Default::default()
            };
            let request = AdmissionRequest {
                kind,
                object,
                operation: "CREATE".to_owned(),
                ..AdmissionRequest::default()
            };
            set_defaults(&rules, &WellKnown::core(), &request)
        };
        let with = |reference: Value| {
            let answer = answer(reference);
            assert_eq!(answer.denied, Vec::<String>::new());
            answer.patch
        };
        assert_eq!(with(json!({ "name": "default" })).len(), 2);
        assert_eq!(with(json!({ "name": "default", "group": "" })).len(), 2);
        assert_eq!(
            with(json!({ "name": "default", "group": "example.com", "kind": "ExampleNodeClass" })),
            Vec::<Value>::new()
        );
        assert_eq!(
            with(json!({ "name": "default", "group": "other", "kind": "Other" })),
            Vec::<Value>::new()
        );
        let served = json!({ "name": "default", "group": "example.com", "kind": "" });
        assert_eq!(with(served).len(), 1);
        for other in [
            json!({ "name": "default", "group": "other", "kind": "" }),
            json!({ "name": "default", "group": "", "kind": "Other" }),
            json!({ "name": "default", "kind": "Other" }),
        ] {
            let answer = answer(other);
            assert_eq!(answer.patch, Vec::<Value>::new());
            assert_eq!(answer.denied.len(), 1, "{answer:?}");
        }
    }
}
