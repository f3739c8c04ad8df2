//! Leaves out of objects what no decision reads: annotations of others, and specifications of node classes, which may hold user
//! data. Environment variables, commands, images and Secrets are not part of the types in the first place.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use mortise_apis::labels::{self, POD_DELETION_COST};
use mortise_apis::node_class::{NodeClassKind, NodeClassObject};
use mortise_state::resource_kinds::Object;
use serde_json::{Value, json};

/// Annotations that are read, next to those in the domains of Karpenter, mortise and the node classes.
const READ: [&str; 4] = [
    POD_DELETION_COST,
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

/// The object without what no decision reads.
pub(super) fn reduced(mut object: Object, served: &[NodeClassKind]) -> Object {
    if let Some(metadata) = object.metadata_mut() {
        reduce_metadata(metadata, served);
    }
    match object {
        // Its template is all that is used of it, and has annotations of its own.
        Object::DaemonSet(mut set) => {
            reduce_metadata(&mut set.spec.template.metadata, served);
            Object::DaemonSet(set)
        }
        Object::NodeClass(class) => Object::NodeClass(Box::new(reduced_class(&class, served))),
        other => other,
    }
}

fn reduce_metadata(metadata: &mut ObjectMeta, served: &[NodeClassKind]) {
    metadata.managed_fields = None;
    metadata.self_link = None;
    if let Some(annotations) = &mut metadata.annotations {
        annotations.retain(|key, _| is_read(key, served));
        if annotations.is_empty() {
            metadata.annotations = None;
        }
    }
}

fn is_read(annotation: &str, served: &[NodeClassKind]) -> bool {
    let domain = labels::domain(annotation);
    let is_below = |parent: &str| {
        domain
            .strip_suffix(parent)
            .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    READ.contains(&annotation)
        || is_below(labels::GROUP)
        || is_below(labels::OWN)
        || served.iter().any(|kind| domain == kind.group)
}

/// A node class with its conditions: what it stands for is recorded as instance types.
fn reduced_class(class: &NodeClassObject, served: &[NodeClassKind]) -> NodeClassObject {
    let mut metadata = class.object.get("metadata").cloned().unwrap_or_default();
    if let Some(fields) = metadata.as_object_mut() {
        fields.retain(|field, _| CLASS_METADATA.contains(&field.as_str()));
        if let Some(Value::Object(annotations)) = fields.get_mut("annotations") {
            annotations.retain(|key, _| is_read(key, served));
        }
    }
    let conditions = class.object.pointer("/status/conditions");
    let version = class.object.get("apiVersion").cloned();
    let object = json!({
        "apiVersion": version.unwrap_or_default(),
        "kind": &*class.key.kind,
        "metadata": metadata,
        "status": { "conditions": conditions.cloned().unwrap_or_default() },
    });
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
    use mortise_state::resource_kinds::ObjectKind;

    const SERVED: [NodeClassKind; 1] = [NodeClassKind {
        group: "cloud.example.com",
        version: "v1",
        kind: "ExampleNodeClass",
        plural: "examplenodeclasses",
    }];

    fn written(kind: &ObjectKind, object: Value) -> Value {
        let object = kind.deserialize(object).unwrap();
        serde_json::to_value(reduced(object, &SERVED)).unwrap()
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
            group: SERVED[0].group.into(),
            kind: SERVED[0].kind.into(),
        };
        let class = json!({
            "apiVersion": "cloud.example.com/v1", "kind": "ExampleNodeClass",
            "metadata": { "name": "default", "labels": { "team": "secret" }, "annotations": {
                "cloud.example.com/examplenodeclass-hash": "7", "team.example.com/x": "secret",
            } },
            "spec": { "userData": "export TOKEN=secret" },
            "status": { "conditions": [{ "type": "Ready", "status": "True" }], "amis": ["secret"] },
        });
        let class = written(&kind, class);
        assert!(!class.to_string().contains("secret"), "{class}");
        assert_eq!(
            class["metadata"]["annotations"]["cloud.example.com/examplenodeclass-hash"],
            "7"
        );
        assert_eq!(class["status"]["conditions"][0]["type"], "Ready");
    }
}
