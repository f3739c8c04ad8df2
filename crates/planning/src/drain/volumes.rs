//! Volumes that are still attached to a node and would be lost or stuck if its instance were terminated now.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::drain::groups;
use mortise_apis::names::NamespacedName;
use mortise_state::snapshot::{Pod, PodVolume, Snapshot};

/// Attachments by node, computed on first use in a step.
pub type Attached = Option<BTreeMap<String, Vec<(Arc<str>, String)>>>;

/// Attachments by node, for one step. Cost: one pass over the attachments.
pub fn by_node(snapshot: &Snapshot) -> BTreeMap<String, Vec<(Arc<str>, String)>> {
    let mut all: BTreeMap<String, Vec<(Arc<str>, String)>> = BTreeMap::new();
    for (name, attachment) in snapshot.attachments.sorted() {
        if let Some(volume) = &attachment.spec.source.persistent_volume_name {
            all.entry(attachment.spec.node_name.clone())
                .or_default()
                .push((Arc::clone(name), volume.clone()));
        }
    }
    all
}

/// Names of the attachments that the node waits for: those whose volume no remaining pod of the node uses. A pod that
/// stays until the end keeps its volumes attached.
pub fn pending(
    snapshot: &Snapshot,
    attached: &[(Arc<str>, String)],
    pods: &[Arc<Pod>],
) -> Vec<Arc<str>> {
    let kept: BTreeSet<String> = pods
        .iter()
        .filter(|pod| groups::is_not_evicted(pod))
        .flat_map(|pod| volumes_of(snapshot, pod))
        .collect();
    attached
        .iter()
        .filter(|(_, volume)| !kept.contains(volume))
        .map(|(name, _)| Arc::clone(name))
        .collect()
}

/// PersistentVolumes behind a pod's claims.
fn volumes_of(snapshot: &Snapshot, pod: &Pod) -> Vec<String> {
    let claim_of = |volume: &PodVolume| match volume {
        PodVolume::Claim(name) => Arc::clone(name),
        PodVolume::Ephemeral { volume, .. } => format!("{}-{volume}", pod.key.name).into(),
    };
    let claims = pod
        .class
        .volumes
        .iter()
        .map(|volume| NamespacedName::new(Arc::clone(&pod.key.namespace), claim_of(volume)));
    claims
        .filter_map(|claim| snapshot.volume_claims.get(&claim)?.spec.volume_name.clone())
        .collect()
}
