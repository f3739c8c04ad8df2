//! Volumes of StatefulSets: each is made in the zone of the node that its pod is bound to first, and stays there.

use std::sync::Arc;

use jiff::Timestamp;
use mortise_apis::labels;
use mortise_apis::names::{NamespacedName, NodeName, PodKey};
use mortise_state::resource_kinds::ObjectKey;
use serde_json::{Value, json};

use super::Cluster;
use super::api_server::ApiServer;
use super::workload_controllers::{NAMESPACE, create};
use crate::workloads::{StatefulSet, VolumeClaimTemplate};

/// Driver of all volumes. No node has a limit for it.
const DRIVER: &str = "disk.csi.simulated";
/// Class of claims that name none.
const DEFAULT_CLASS: &str = "simulated";

/// Creates the storage classes of the claims of some sets.
pub(super) fn install_classes(sets: &[StatefulSet], store: &mut ApiServer, now: Timestamp) {
    for claim in sets.iter().flat_map(|set| &set.claims) {
        let name = class_of(claim);
        let class = json!({
            "metadata": { "name": name },
            "provisioner": DRIVER, "volumeBindingMode": "WaitForFirstConsumer",
        });
        create(store, ObjectKey::StorageClass(Arc::from(name)), class, now);
    }
}

/// Creates the claims of the pod with a number, if they are not there from an earlier pod with this number, and returns the
/// pod's template with them.
pub(super) fn with_claims(
    set: &StatefulSet,
    number: u32,
    template: &Value,
    store: &mut ApiServer,
    now: Timestamp,
) -> Value {
    let mut template = template.clone();
    let mut volumes = template
        .pointer("/spec/volumes")
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    for claim in &set.claims {
        let name = format!("{}-{}-{number}", claim.name, set.name);
        let object = json!({
            "metadata": { "name": name, "namespace": NAMESPACE },
            "spec": { "storageClassName": class_of(claim) },
            "status": { "phase": "Pending" },
        });
        let key = ObjectKey::VolumeClaim(NamespacedName::new(NAMESPACE, name.as_str()));
        create(store, key, object, now);
        // As the controller does: the claim takes the place of a volume with this name.
        volumes.retain(|volume| volume["name"] != claim.name.as_str());
        volumes.push(json!({ "name": claim.name, "persistentVolumeClaim": { "claimName": name } }));
    }
    if !set.claims.is_empty() {
        template["spec"]["volumes"] = json!(volumes);
    }
    template
}

/// Makes the volumes that a pod's claims lack, in the zone of the node that it is about to be bound to.
pub(super) fn bind_claims(pod: &PodKey, node: &NodeName, cluster: &mut Cluster) {
    let store = &cluster.api_server;
    let Some(volumes) = store
        .get(&ObjectKey::Pod(pod.clone()))
        .and_then(|pod| pod.pointer("/spec/volumes")?.as_array())
    else {
        return;
    };
    let claims = volumes
        .iter()
        .filter_map(|volume| volume.pointer("/persistentVolumeClaim/claimName")?.as_str());
    let claims: Vec<String> = claims.map(str::to_owned).collect();
    let node = store.get(&ObjectKey::Node(node.clone()));
    let zone = node
        .and_then(|node| node.pointer("/metadata/labels")?.get(labels::TOPOLOGY_ZONE))
        .cloned()
        .unwrap_or_default();
    let now = cluster.now();
    for claim in claims {
        let key = ObjectKey::VolumeClaim(NamespacedName::new(NAMESPACE, claim.as_str()));
        let unbound = cluster
            .api_server
            .get(&key)
            .filter(|found| found["spec"]["volumeName"].is_null());
        let Some(found) = unbound else { continue };
        let name = format!("pv-{claim}");
        let zones = json!([{ "key": labels::TOPOLOGY_ZONE, "operator": "In", "values": [zone] }]);
        let volume = json!({
            "metadata": { "name": name },
            "spec": {
                "storageClassName": found["spec"]["storageClassName"],
                "claimRef": { "namespace": NAMESPACE, "name": claim, "uid": found["metadata"]["uid"] },
                "csi": { "driver": DRIVER, "volumeHandle": name },
                "nodeAffinity": { "required": { "nodeSelectorTerms": [{ "matchExpressions": zones }] } },
            },
            "status": { "phase": "Bound" },
        });
        let volume_key = ObjectKey::Volume(Arc::from(name.as_str()));
        create(&mut cluster.api_server, volume_key, volume, now);
        let bound = json!({ "spec": { "volumeName": name }, "status": { "phase": "Bound" } });
        cluster.write(&key, &bound);
    }
}

fn class_of(claim: &VolumeClaimTemplate) -> &str {
    claim.storage_class.as_deref().unwrap_or(DEFAULT_CLASS)
}
