//! Makes volumes as a CSI driver's provisioner does: when the scheduler has chosen a node, in that node's zone.

use anyhow::{Result, anyhow};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim};
use kube::Client;
use kube::api::Api;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event};
use mortise_apis::labels;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::objects::create;
use super::scenario::{DRIVER, LABEL};
use crate::harness::progress;

const CHOSEN: &str = "volume.kubernetes.io/selected-node";

/// Serves claims until it is aborted.
pub(crate) fn start(client: Client) -> JoinHandle<()> {
    tokio::spawn(async move {
        let claims: Api<PersistentVolumeClaim> = Api::all(client.clone());
        let config = watcher::Config::default().labels(LABEL);
        let events = watcher::watcher(claims, config).default_backoff();
        let mut events = std::pin::pin!(events);
        while let Some(event) = events.next().await {
            let claim = match event {
                Ok(Event::Apply(claim) | Event::InitApply(claim)) => claim,
                Ok(Event::Delete(_) | Event::Init | Event::InitDone) => continue,
                Err(error) => {
                    progress(&format!("the watch of claims was interrupted: {error}"));
                    continue;
                }
            };
            if let Err(error) = serve(&client, &claim).await {
                progress(&format!("a volume was not made: {error:#}"));
            }
        }
    })
}

async fn serve(client: &Client, claim: &PersistentVolumeClaim) -> Result<()> {
    let metadata = &claim.metadata;
    let annotation = metadata
        .annotations
        .as_ref()
        .and_then(|all| all.get(CHOSEN));
    let spec = claim.spec.as_ref();
    let is_bound = spec.is_some_and(|spec| spec.volume_name.is_some());
    let (Some(node), false, None) = (annotation, is_bound, &metadata.deletion_timestamp) else {
        return Ok(());
    };
    let nodes: Api<Node> = Api::all(client.clone());
    let zone = nodes
        .get(node)
        .await?
        .metadata
        .labels
        .and_then(|mut all| all.remove(labels::TOPOLOGY_ZONE));
    let uid = metadata.uid.clone().unwrap_or_default();
    let name = format!("pvc-{uid}");
    let scenario = metadata.labels.as_ref().and_then(|all| all.get(LABEL));
    let mut volume: Value = json!({
        "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {
            "name": name, "labels": {LABEL: scenario},
            "annotations": {"pv.kubernetes.io/provisioned-by": DRIVER},
        },
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": spec.and_then(|spec| spec.access_modes.clone()),
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": spec.and_then(|spec| spec.storage_class_name.clone()),
            "claimRef": {
                "apiVersion": "v1", "kind": "PersistentVolumeClaim", "uid": uid,
                "namespace": metadata.namespace, "name": metadata.name,
            },
            "csi": {"driver": DRIVER, "volumeHandle": name},
        },
    });
    if let Some(zone) = zone {
        let term = json!({"matchExpressions": [{"key": labels::TOPOLOGY_ZONE, "operator": "In", "values": [zone]}]});
        volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"] = json!([term]);
    }
    match create(client, &volume).await {
        Err(error) if error.to_string().contains("already exists") => Ok(()),
        other => other.map(drop).map_err(|error| anyhow!("{name}: {error}")),
    }
}
