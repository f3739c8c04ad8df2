//! The index as its owners use it, by subject.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod boot_taints;
mod buffers;
mod commitments;
mod foreign;
mod nodes;
mod nominations;
mod overlays;
mod pods;
mod unavailable;
mod versions;

use jiff::Timestamp;
use mortise_apis::k8s;
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_kwok_class::labels::well_known;
use mortise_state::index::Index;
use mortise_state::resource_kinds::{Object, ObjectEvent, ObjectKind};
use serde_json::{Value, json};

fn index() -> Index {
    let mut index = Index::new(well_known(), true, Timestamp::UNIX_EPOCH);
    index.set_synced();
    index
}

fn node(name: &str, version: u64, more: Value) -> Object {
    let mut value = json!({ "metadata": { "name": name, "resourceVersion": version.to_string(), "labels": {} }, "spec": { "providerID": format!("kwok://{name}") } });
    json_patch_merge(&mut value, &more);
    Object::Node(Box::new(serde_json::from_value(value).unwrap()))
}

fn claim(name: &str, version: u64, more: Value) -> Object {
    let mut value = json!({
        "metadata": { "name": name, "uid": format!("uid-{name}"), "resourceVersion": version.to_string(), "creationTimestamp": "1970-01-01T00:00:00Z", "labels": { "karpenter.sh/nodepool": "default" } },
        "spec": { "nodeClassRef": { "group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default" }, "requirements": [] },
    });
    json_patch_merge(&mut value, &more);
    Object::Claim(Box::new(
        serde_json::from_value::<NodeClaim>(value).unwrap(),
    ))
}

fn pod(name: &str, version: u64, more: Value) -> Object {
    let mut value = json!({
        "metadata": { "name": name, "namespace": "default", "uid": format!("uid-{name}"), "resourceVersion": version.to_string(), "creationTimestamp": "1970-01-01T00:00:00Z" },
        "spec": { "containers": [{ "name": "c", "resources": { "requests": { "cpu": "500m" } } }] },
        "status": { "phase": "Pending" },
    });
    json_patch_merge(&mut value, &more);
    Object::Pod(Box::new(serde_json::from_value::<k8s::Pod>(value).unwrap()))
}

/// A list of these objects that was read completely.
fn listed(kind: ObjectKind, objects: &[Object], version: u64) -> ObjectEvent {
    ObjectEvent::Listed {
        kind,
        keys: objects.iter().map(Object::key).collect(),
        version: Some(version),
    }
}

fn json_patch_merge(target: &mut Value, patch: &Value) {
    match (target, patch) {
        (Value::Object(target), Value::Object(patch)) => {
            for (key, value) in patch {
                json_patch_merge(target.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (target, patch) => *target = patch.clone(),
    }
}
