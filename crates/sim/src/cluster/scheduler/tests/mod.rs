//! Each rule is a row: existing objects, a pending pod, and its feasible nodes.

mod cycles;
mod filters;
mod neighbours;
mod pod_groups;
mod scores;
mod spread;
mod volumes;

use std::sync::Arc;

use jiff::Timestamp;
use mortise_apis::names::{NamespacedName, PodKey};
use mortise_state::resource_kinds::ObjectKey;
use serde_json::{Value, json};

use super::Scheduler;
use crate::clock::StoreEvent;

pub(super) const ZONE: &str = "topology.kubernetes.io/zone";
pub(super) const HOST: &str = "kubernetes.io/hostname";
pub(super) const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
pub(super) const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// A rule, the objects besides four nodes (a1 and a2 in zone a, b1, c1) or instead of them, the pod, and the feasible nodes.
pub(super) type Row = (&'static str, Vec<Value>, Value, &'static [&'static str]);

/// All of the four nodes.
pub(super) const ALL: &[&str] = &["a1", "a2", "b1", "c1"];

pub(super) fn check(rows: Vec<Row>) {
    for (rule, objects, pod, wanted) in rows {
        let (left, _) = left(&objects, &pod);
        let left: Vec<&str> = left.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(left, wanted, "{rule}");
    }
}

/// Feasible nodes of a pod with their scores, and the best.
pub(super) fn left(objects: &[Value], pod: &Value) -> (Vec<(String, i64)>, Option<String>) {
    let scheduler = scheduler(objects, pod);
    let key = PodKey::new("default", "new");
    let view = scheduler.cache.pods.get(&key).expect("the pod");
    let (feasible, _) = scheduler.feasible(view);
    let all: Vec<(String, i64)> = feasible
        .into_iter()
        .map(|(name, score)| (name.to_string(), score))
        .collect();
    let best = all
        .iter()
        .max_by(|a, b| a.1.cmp(&b.1).then_with(|| b.0.cmp(&a.0)))
        .map(|(name, _)| name.clone());
    (all, best)
}

/// A scheduler with four nodes, these objects and a pod `new`.
pub(super) fn scheduler(objects: &[Value], pod: &Value) -> Scheduler {
    let mut scheduler = Scheduler::default();
    let now = Timestamp::UNIX_EPOCH;
    for (name, zone) in [("a1", "a"), ("a2", "a"), ("b1", "b"), ("c1", "c")] {
        scheduler.observe(&[change(&node(name, zone, json!({})))], now);
    }
    for object in objects {
        scheduler.observe(&[change(object)], now);
    }
    scheduler.observe(&[change(pod)], now);
    scheduler
}

/// An object as the API server has it, by kind, name and namespace.
pub(super) fn change(object: &Value) -> StoreEvent {
    let text = |key: &str| object["metadata"][key].as_str().unwrap_or("default");
    let (name, namespace) = (text("name"), text("namespace"));
    let key = match object["kind"].as_str() {
        Some("Node") => ObjectKey::Node(name.into()),
        Some("Namespace") => ObjectKey::Namespace(name.into()),
        Some("PersistentVolumeClaim") => {
            ObjectKey::VolumeClaim(NamespacedName::new(namespace, name))
        }
        Some("PersistentVolume") => ObjectKey::Volume(name.into()),
        Some("StorageClass") => ObjectKey::StorageClass(Arc::from(name)),
        _ => ObjectKey::Pod(PodKey::new(namespace, name)),
    };
    StoreEvent {
        key,
        object: Some(object.clone()),
        version: 0,
    }
}

fn with(mut base: Value, over: &Value) -> Value {
    json_patch::merge(&mut base, over);
    base
}

/// A ready node with 4 CPUs, 8 GiB and at most 10 pods; `over` is merged into it.
pub(super) fn node(name: &str, zone: &str, over: Value) -> Value {
    let base = json!({
        "kind": "Node", "metadata": {"name": name, "labels": {ZONE: zone, HOST: name}},
        "status": {
            "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    });
    with(base, &over)
}

/// A bound pod with label `app`.
pub(super) fn on(node: &str, name: &str, app: &str, over: Value) -> Value {
    let over = with(json!({"spec": {"nodeName": node}}), &over);
    let mut pod = waits(app, over);
    pod["metadata"]["name"] = json!(name);
    pod
}

/// The pod `new` with label `app`; `over` is merged into it.
pub(super) fn waits(app: &str, over: Value) -> Value {
    let base = json!({
        "metadata": {"name": "new", "namespace": "default", "labels": {"app": app}, "uid": "1"},
        "spec": {"containers": [{"name": "main"}]},
    });
    with(base, &over)
}

/// The same with a specification.
pub(super) fn asks(app: &str, spec: Value) -> Value {
    waits(app, json!({"spec": spec}))
}

/// A container that requests this much CPU.
pub(super) fn cpu(amount: &str) -> Value {
    json!([{"name": "main", "resources": {"requests": {"cpu": amount}}}])
}
