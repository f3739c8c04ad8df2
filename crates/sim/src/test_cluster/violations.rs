//! Invariants of single effects: no instance is terminated under a pod, no node is initialized too early.

use mortise_apis::labels;
use mortise_apis::names::ProviderId;
use mortise_engine::effect::Effect;
use mortise_engine::write::ObjectWrite;
use mortise_state::resource_kinds::{ObjectKey, ObjectKind};
use serde_json::Value;

use crate::cluster::Cluster;

/// What is wrong with an effect that is executed now.
pub(super) fn violation_of(effect: &Effect, cluster: &Cluster) -> Option<String> {
    match effect {
        Effect::Terminate { provider_id, .. } => pods_of_instance(provider_id, cluster),
        Effect::Write(write) => early_initialization(write, cluster),
        _ => None,
    }
}

/// An instance may be terminated when no pod is left on its registered node.
fn pods_of_instance(id: &ProviderId, cluster: &Cluster) -> Option<String> {
    cluster.cloud.instance(id)?;
    let mut nodes = cluster.api_server.of_kind(ObjectKind::Node);
    let node = nodes.find(|node| {
        node["spec"]["providerID"] == **id
            && node["metadata"]["labels"][labels::REGISTERED] == "true"
    })?;
    let name = &node["metadata"]["name"];
    let pods = cluster.api_server.of_kind(ObjectKind::Pod);
    let left: Vec<&Value> = pods
        .filter(|pod| pod["spec"]["nodeName"] == *name)
        .map(|pod| &pod["metadata"]["name"])
        .collect();
    (!left.is_empty()).then(|| format!("{id} was terminated with {left:?}"))
}

/// A node is initialized when nothing is missing any more, whichever write says so.
fn early_initialization(write: &ObjectWrite, cluster: &Cluster) -> Option<String> {
    let merge = write.edit.render(None).merge;
    if merge["metadata"]["labels"][labels::INITIALIZED] != "true" {
        return None;
    }
    let mut node = cluster
        .api_server
        .get(&ObjectKey::from(&write.target))?
        .clone();
    json_patch::merge(&mut node, &merge);
    let name = &node["metadata"]["name"];
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut missing = Vec::new();
    let is_ready = |each: &Value| each["type"] == "Ready" && each["status"] == "True";
    if !list(&node["status"]["conditions"]).iter().any(is_ready) {
        missing.push("readiness".to_owned());
    }
    let temporary = [labels::NOT_READY_TAINT, labels::UNREGISTERED_TAINT, "boot"];
    for taint in list(&node["spec"]["taints"]) {
        if temporary.iter().any(|key| taint["key"] == *key) {
            missing.push(taint["key"].to_string());
        }
    }
    let drivers = node["metadata"]["annotations"][labels::REQUESTED_DRA_DRIVERS].as_str();
    for driver in drivers.into_iter().flat_map(|all| all.split(',')) {
        let mut slices = cluster.api_server.of_kind(ObjectKind::ResourceSlice);
        let is_own =
            |slice: &Value| slice["spec"]["driver"] == driver && slice["spec"]["nodeName"] == *name;
        if !slices.any(is_own) {
            missing.push(format!("devices of {driver}"));
        }
    }
    (!missing.is_empty()).then(|| format!("{name} was initialized without {missing:?}"))
}
