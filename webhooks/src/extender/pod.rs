//! The pod of a call, as the snapshot knows it or as the body shows it.

use std::sync::Arc;

use mortise_core::apis::k8s;
use mortise_core::snapshot::{Pod, PodClasses, Snapshot};

/// The record of the pod: the snapshot's if it is the same pod, else one made from the body.
pub(super) fn of_call(snapshot: &Snapshot, body: &k8s::Pod) -> Arc<Pod> {
    let uid = body.metadata.uid.as_deref().unwrap_or_default();
    let key = mortise_core::names::PodKey::new(
        body.metadata.namespace.as_deref().unwrap_or_default(),
        body.metadata.name.as_deref().unwrap_or_default(),
    );
    match snapshot.pods.get(&key) {
        Some(known) if &*known.uid == uid => Arc::clone(known),
        _ => Arc::new(Pod::ingest(body, &mut PodClasses::default())),
    }
}

/// Pods that are never denied: they must run where they are sent, or the cluster cannot work without them.
pub(super) fn is_exempt(pod: &Pod) -> bool {
    pod.is_daemon() || pod.is_node_owned() || pod.class.critical
}
