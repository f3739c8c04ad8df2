//! Defaulting: fills in what only one answer fits, idempotently, and refuses early what a schema would answer badly.
//!
//! Invariant: a field that the user wrote is never touched, so GitOps tools see no fight.

use serde_json::{Value, json};

use super::review::{Answer, Request};
use super::{Rules, shape};

/// Answers a defaulting request.
#[must_use]
pub fn default(rules: &Rules, request: &Request) -> Answer {
    if request.object.is_null() || request.operation == "DELETE" {
        return Answer::default();
    }
    match request.kind.kind.as_str() {
        "NodePool" => Answer {
            denied: shape::requirements(&request.object, "/spec/template/spec/requirements"),
            warnings: Vec::new(),
            patch: node_class_ref(rules, &request.object, "/spec/template/spec/nodeClassRef"),
        },
        _ => Answer::default(),
    }
}

/// Group and kind of the node class, when the reference leaves them out and only one kind is served.
fn node_class_ref(rules: &Rules, object: &Value, at: &str) -> Vec<Value> {
    let ([kind], Some(reference)) = (
        rules.node_class_kinds.as_slice(),
        object.pointer(at).and_then(Value::as_object),
    ) else {
        return Vec::new();
    };
    let mut patch = Vec::new();
    for (field, value) in [("group", kind.group), ("kind", kind.kind)] {
        let absent = reference
            .get(field)
            .is_none_or(|value| value.as_str() == Some("") || value.is_null());
        if absent {
            patch.push(json!({ "op": "add", "path": format!("{at}/{field}"), "value": value }));
        }
    }
    patch
}

#[cfg(test)]
mod tests {
    use super::*;
    use mortise_core::cloud::NodeClassKind;

    #[test]
    fn fills_the_class_reference_once_and_leaves_what_is_written() {
        let kind = NodeClassKind {
            group: "karpenter.kwok.sh",
            version: "v1alpha1",
            kind: "KWOKNodeClass",
            plural: "kwoknodeclasses",
        };
        let rules = Rules {
            node_class_kinds: vec![kind],
            ..Rules::default()
        };
        let with = |reference: Value| {
            let object =
                json!({ "spec": { "template": { "spec": { "nodeClassRef": reference } } } });
            let kind = super::super::review::Kind {
                kind: "NodePool".to_owned(),
                ..Default::default()
            };
            default(
                &rules,
                &Request {
                    kind,
                    object,
                    operation: "CREATE".to_owned(),
                    ..Request::default()
                },
            )
            .patch
        };
        assert_eq!(with(json!({ "name": "default" })).len(), 2);
        assert_eq!(
            with(
                json!({ "name": "default", "group": "karpenter.kwok.sh", "kind": "KWOKNodeClass" })
            ),
            Vec::<Value>::new()
        );
        assert_eq!(
            with(json!({ "name": "default", "group": "other", "kind": "Other" })),
            Vec::<Value>::new()
        );
    }
}
