//! How long a bound pod takes to its running containers.

use std::collections::{BTreeMap, BTreeSet};

use mortise_apis::names::{NodeName, PodKey};
use mortise_state::resource_kinds::ObjectKey;
use serde_json::Value;

use super::Cluster;
use super::workload_controllers::owner;

/// The images that nodes have: of each node, the workloads that ran there, each of which has one image.
#[derive(Debug, Default)]
pub(crate) struct PulledImages(BTreeMap<NodeName, BTreeSet<String>>);

impl PulledImages {
    /// Notes that a node has the image of a workload from now on; `true`: it was not there.
    fn pull(&mut self, node: &NodeName, workload: &str) -> bool {
        let images = self.0.entry(node.clone()).or_default();
        images.insert(workload.to_owned())
    }

    /// The node is gone.
    pub(super) fn remove(&mut self, node: &NodeName) {
        self.0.remove(node);
    }
}

/// Milliseconds from the binding of a pod to its running containers: its start, the pull of an image that the node does not have, and
/// the attachment of volumes.
pub(super) fn draw_start_ms(pod: &PodKey, node: &NodeName, cluster: &mut Cluster) -> i64 {
    let timing = cluster.timing;
    let mut ms = timing.pod_start.draw(&mut cluster.clock.random);
    let object = cluster.api_server.get(&ObjectKey::Pod(pod.clone()));
    let Some(object) = object else { return ms };
    if let Some(pull) = timing.image_pull {
        let workload = owner(object).unwrap_or(&pod.name);
        if cluster.images.pull(node, workload) {
            ms += pull.draw(&mut cluster.clock.random);
        }
    }
    if let Some(attach) = timing.volume_attach
        && has_claims(object)
    {
        ms += attach.draw(&mut cluster.clock.random);
    }
    ms
}

fn has_claims(pod: &Value) -> bool {
    let volumes = pod.pointer("/spec/volumes").and_then(Value::as_array);
    let mut volumes = volumes.into_iter().flatten();
    volumes.any(|volume| volume.get("persistentVolumeClaim").is_some())
}
