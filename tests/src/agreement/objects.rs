//! Objects of a scenario in the API server.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, anyhow};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, PostParams};
use kube::core::GroupVersionKind;
use mortise_apis::labels;
use serde_json::{Value, json};

use super::scenario::{DRIVER, LABEL};

/// A Node as its kubelet would register it, managed by kwok.
pub(crate) fn node(
    name: &str,
    mut own_labels: Value,
    taints: Value,
    cordoned: bool,
    capacity: &BTreeMap<String, Quantity>,
    allocatable: &BTreeMap<String, Quantity>,
) -> Value {
    own_labels["kwok.x-k8s.io/node"] = json!("fake");
    own_labels["kwok-partition"] = json!("a");
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": own_labels, "annotations": {"kwok.x-k8s.io/node": "fake"}},
        "spec": {"providerID": format!("test:///{name}"), "taints": taints, "unschedulable": cordoned},
        "status": {"capacity": capacity, "allocatable": allocatable},
    })
}

/// The CSINode of a node: its driver, which attaches up to `limit` volumes.
pub(crate) fn csi_node(node: &str, number: u64, limit: Option<usize>) -> Value {
    let mut driver =
        json!({"name": DRIVER, "nodeID": node, "topologyKeys": [labels::TOPOLOGY_ZONE]});
    if let Some(limit) = limit {
        driver["allocatable"] = json!({"count": limit});
    }
    json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "CSINode",
        "metadata": {"name": node, "labels": {LABEL: number.to_string()}},
        "spec": {"drivers": [driver]},
    })
}

/// Creates an object; returns what was stored.
pub(crate) async fn create(client: &Client, object: &Value) -> Result<DynamicObject> {
    let text = |key: &str| object[key].as_str().unwrap_or_default();
    let (group, version) = text("apiVersion")
        .split_once('/')
        .unwrap_or_else(|| ("", text("apiVersion")));
    let kind = text("kind");
    let plural = match kind {
        "StorageClass" => "storageclasses".to_owned(),
        "PriorityClass" => "priorityclasses".to_owned(),
        other => format!("{}s", other.to_lowercase()),
    };
    let gvk = GroupVersionKind::gvk(group, version, kind);
    let resource = ApiResource::from_gvk_with_plural(&gvk, &plural);
    let typed: DynamicObject = serde_json::from_value(object.clone())
        .with_context(|| format!("not an object: {object}"))?;
    let api: Api<DynamicObject> = match &typed.metadata.namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    api.create(&PostParams::default(), &typed)
        .await
        .map_err(|error| anyhow!("{kind} {}: {error}\n{object}", object["metadata"]["name"]))
}
