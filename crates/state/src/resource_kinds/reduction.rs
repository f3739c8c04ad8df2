//! Leaves out of objects what no decision reads, before they are written to a file: annotations of others, and specifications of node
//! classes, which may hold user data. Environment variables, commands, images and Secrets are not part of the types in the first place.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use mortise_apis::labels::{
    self, CONSUME_PROVISIONING_REQUEST, POD_DELETION_COST, POD_SCALE_UP_DELAY, SAFE_TO_EVICT,
    SCALE_DOWN_DISABLED, VOLCANO_GROUPS,
};
use mortise_apis::node_class::NodeClassObject;
use serde_json::{Value, json};

use super::object::Object;

/// Annotations that are read, next to those in the domains of Karpenter, mortise and the node classes.
const READ: [&str; 9] = [
    POD_DELETION_COST,
    SAFE_TO_EVICT,
    SCALE_DOWN_DISABLED,
    POD_SCALE_UP_DELAY,
    CONSUME_PROVISIONING_REQUEST[0],
    CONSUME_PROVISIONING_REQUEST[1],
    "kubernetes.io/config.mirror",
    "pv.kubernetes.io/bind-completed",
    "storageclass.kubernetes.io/is-default-class",
];

/// Fields of the metadata of a node class that are read.
const CLASS_METADATA: [&str; 8] = [
    "annotations",
    "creationTimestamp",
    "deletionTimestamp",
    "finalizers",
    "generation",
    "name",
    "resourceVersion",
    "uid",
];

/// The object without what no decision reads. `groups`: API groups of node classes, whose annotations are read. Of a node class its
/// conditions are left: what it stands for is recorded as instance types.
#[must_use]
pub fn reduced(object: Object, groups: &[&str]) -> Object {
    reduce(object, groups, |_| None)
}

/// The same for a recording of changes: a node class keeps its status, and the number of its specification instead of the
/// specification, so that one that changes is seen to change.
#[must_use]
pub fn reduced_with_status(object: Object, groups: &[&str], specification: u64) -> Object {
    reduce(object, groups, |class| {
        let status = class.object.get("status").cloned();
        Some((specification, status.unwrap_or_default()))
    })
}

fn reduce(
    mut object: Object,
    groups: &[&str],
    kept: impl Fn(&NodeClassObject) -> Option<(u64, Value)>,
) -> Object {
    if let Some(metadata) = object.metadata_mut() {
        reduce_metadata(metadata, groups);
    }
    match object {
        // Its template is all that is used of it, and has annotations of its own.
        Object::DaemonSet(mut set) => {
            reduce_metadata(&mut set.spec.template.metadata, groups);
            Object::DaemonSet(set)
        }
        Object::NodeClass(class) => {
            let reduced = reduced_class(&class, groups, kept(&class));
            Object::NodeClass(Box::new(reduced))
        }
        other => other,
    }
}

fn reduce_metadata(metadata: &mut ObjectMeta, groups: &[&str]) {
    metadata.managed_fields = None;
    metadata.self_link = None;
    if let Some(annotations) = &mut metadata.annotations {
        annotations.retain(|key, _| is_read(key, groups));
        if annotations.is_empty() {
            metadata.annotations = None;
        }
    }
}

fn is_read(annotation: &str, groups: &[&str]) -> bool {
    let domain = labels::domain(annotation);
    let is_below = |parent: &str| {
        domain
            .strip_suffix(parent)
            .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    READ.contains(&annotation)
        || VOLCANO_GROUPS.contains(&annotation)
        || is_below(labels::GROUP)
        || is_below(labels::OWN)
        || groups.contains(&domain)
}

fn reduced_class(
    class: &NodeClassObject,
    groups: &[&str],
    kept: Option<(u64, Value)>,
) -> NodeClassObject {
    let mut metadata = class.object.get("metadata").cloned().unwrap_or_default();
    if let Some(fields) = metadata.as_object_mut() {
        fields.retain(|field, _| CLASS_METADATA.contains(&field.as_str()));
        if let Some(Value::Object(annotations)) = fields.get_mut("annotations") {
            annotations.retain(|key, _| is_read(key, groups));
        }
    }
    let version = class.object.get("apiVersion").cloned();
    let mut object = json!({
        "apiVersion": version.unwrap_or_default(),
        "kind": &*class.key.kind,
        "metadata": metadata,
    });
    if let Some((specification, status)) = kept {
        object["spec"] = json!({ "number": specification });
        if !status.is_null() {
            object["status"] = status;
        }
    } else {
        let conditions = class.object.pointer("/status/conditions");
        object["status"] = json!({ "conditions": conditions.cloned().unwrap_or_default() });
    }
    let key = class.key.clone();
    NodeClassObject {
        object: Arc::new(object.clone()),
        ..NodeClassObject::new(key, object)
    }
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::panic,
        reason = "a test fails by panicking"
    )]

    use super::*;
    use crate::resource_kinds::ObjectKind;

    const GROUPS: [&str; 1] = ["cloud.example.com"];

    fn written(kind: &ObjectKind, object: Value) -> Value {
        let object = kind.deserialize(object).unwrap();
        serde_json::to_value(reduced(object, &GROUPS)).unwrap()
    }

    #[test]
    fn what_no_decision_reads_is_left_out() {
        let pod = json!({
            "metadata": {
                "name": "web-1", "namespace": "shop", "labels": { "app": "web" },
                "annotations": {
                    "karpenter.sh/do-not-disrupt": "true",
                    "kubectl.kubernetes.io/last-applied-configuration": "password=secret",
                    "notkarpenter.sh/x": "secret",
                },
                "managedFields": [{ "manager": "secret" }],
            },
            "spec": { "containers": [{
                "name": "c", "image": "secret/image", "command": ["secret"],
                "env": [{ "name": "PASSWORD", "value": "secret" }],
                "resources": { "requests": { "cpu": "1" } },
            }], "volumes": [{ "name": "v", "secret": { "secretName": "secret" } }] },
        });
        let pod = written(&ObjectKind::Pod, pod);
        assert_eq!(
            pod["metadata"]["annotations"],
            json!({ "karpenter.sh/do-not-disrupt": "true" })
        );
        assert_eq!(
            pod["spec"]["containers"][0]["resources"]["requests"]["cpu"],
            "1"
        );
        assert!(!pod.to_string().contains("secret"), "{pod}");

        let kind = ObjectKind::NodeClass {
            group: GROUPS[0].into(),
            kind: "ExampleNodeClass".into(),
        };
        let class = json!({
            "apiVersion": "cloud.example.com/v1", "kind": "ExampleNodeClass",
            "metadata": { "name": "default", "labels": { "team": "secret" }, "annotations": {
                "cloud.example.com/examplenodeclass-hash": "7", "team.example.com/x": "secret",
            } },
            "spec": { "userData": "export TOKEN=secret" },
            "status": { "conditions": [{ "type": "Ready", "status": "True" }], "amis": ["secret"] },
        });
        let changing = kind.deserialize(class.clone()).unwrap();
        let changing = reduced_with_status(changing, &GROUPS, 3);
        let changing = serde_json::to_value(changing).unwrap();
        assert_eq!(changing["spec"], json!({ "number": 3 }));
        assert_eq!(changing["status"], class["status"]);
        assert!(!changing.to_string().contains("TOKEN"), "{changing}");
        let class = written(&kind, class);
        assert!(!class.to_string().contains("secret"), "{class}");
        assert_eq!(
            class["metadata"]["annotations"]["cloud.example.com/examplenodeclass-hash"],
            "7"
        );
        assert_eq!(class["status"]["conditions"][0]["type"], "Ready");
    }
}
