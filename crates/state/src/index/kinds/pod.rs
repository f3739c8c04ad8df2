//! Pods.

use std::sync::Arc;

use super::Ingested;
use crate::index::{Index, pods};
use crate::snapshot::Pod;
use mortise_apis::k8s;
use mortise_apis::names::{NodeName, PodKey};

impl Ingested for k8s::Pod {
    fn applied(index: &mut Index, object: Self) {
        let pod = index.pods.convert(&object);
        insert(index, pod);
    }

    fn deleted(index: &mut Index, key: &PodKey) {
        remove(index, key);
    }
}

/// A pod exists, or changed.
pub(in crate::index) fn insert(index: &mut Index, pod: Pod) {
    let key = pod.key.clone();
    let before = index.state.pods.get(&key).cloned();
    if let Some(before) = &before
        && (before.uid != pod.uid || before.node != pod.node)
    {
        unbind(index, before);
    }
    if let Some(node) = &pod.node
        && index.state.synced
        && pods::is_pod_event(before.as_deref(), &pod)
    {
        index.changes.pod_events.insert(node.clone());
    }
    if pod.node.is_some() || pod.is_terminal() {
        index.end_nomination(&pod);
    }
    index.changes.pods.insert(key.clone());
    if pod.is_terminal() {
        unbind(index, &pod);
        index.state.pods.remove(&key);
        remove_pending(index, &key);
        update_pod_counts(index, before.as_deref(), None);
        return;
    }
    if let Some(node) = &pod.node {
        index.pods.bind(node, &key);
        index.nodes.mark(node);
    }
    let pod = Arc::new(pod);
    if index.pods.is_provisionable(&pod) {
        apply_pending(index, before.as_deref(), &pod);
    } else {
        remove_pending(index, &key);
    }
    index.state.pods.insert(key, Arc::clone(&pod));
    update_pod_counts(index, before.as_deref(), Some(&pod));
}

/// A pod does not exist any more.
pub(in crate::index) fn remove(index: &mut Index, key: &PodKey) {
    index.changes.pods.insert(key.clone());
    remove_pending(index, key);
    if let Some(pod) = index.state.pods.remove(key) {
        unbind(index, &pod);
        index.end_nomination(&pod);
        update_pod_counts(index, Some(&pod), None);
    }
}

fn apply_pending(index: &mut Index, before: Option<&Pod>, pod: &Arc<Pod>) {
    let known = index.state.pending.get(&pod.key);
    if known.is_some_and(|known| known.uid != pod.uid) {
        remove_pending(index, &pod.key);
    }
    index.pods.insert_pending(pod);
    index.state.pending.insert(pod.key.clone(), Arc::clone(pod));
    let before = before.filter(|before| before.uid == pod.uid);
    let last_refusal = before.and_then(|before| before.refusal.as_ref());
    if pod.refusal.is_some() && last_refusal != pod.refusal.as_ref() {
        index.shorten_refused_nomination(pod);
    }
}

fn remove_pending(index: &mut Index, key: &PodKey) {
    if let Some(pod) = index.state.pending.remove(key) {
        index.pods.remove_pending(&pod.uid);
        index.nominations.forget(&pod.uid);
    }
}

fn unbind(index: &mut Index, pod: &Pod) {
    let node: Option<&NodeName> = pod.node.as_ref();
    if let Some(node) = node {
        index.pods.unbind(node, &pod.key);
        index.nodes.mark(node);
    }
}

/// Updates what is counted pod by pod.
fn update_pod_counts(index: &mut Index, before: Option<&Pod>, after: Option<&Pod>) {
    index.state.pod_labels.update(before, after);
    index.state.gangs.update(before, after);
    index.requests.pod_changed(before, after, &index.state);
    index
        .pods
        .update_daemon_pods(&mut index.state, before, after);
}
