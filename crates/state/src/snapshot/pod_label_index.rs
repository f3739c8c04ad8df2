//! Inverted index of bound pods by class and labels, with counts per node, for constraints between pods.
//!
//! A spread constraint applies to some of the hundreds of label sets of a cluster; its pods are counted by comparing label
//! sets, and then by reading the nodes of those that match. The index updates this pod by pod.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Pod, PodClass, PodLabels};
use crate::ledger::NominationTarget;
use crate::sharded_map::ShardedMap;

/// A namespace and a set of labels.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodLabelKey {
    /// Namespace of the pods.
    pub namespace: Arc<str>,
    /// Their labels.
    pub labels: PodLabels,
}

/// Nodes with their number of pods, never 0. Sorted. A NodeClaim occurs only for pods that are assumed to run there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodePodCounts(BTreeMap<NominationTarget, u32>);

impl NodePodCounts {
    /// The nodes, with the number of pods on each.
    pub fn iter(&self) -> impl Iterator<Item = (&NominationTarget, u32)> {
        self.0.iter().map(|(place, count)| (place, *count))
    }

    fn add(&mut self, place: &NominationTarget) {
        *self.0.entry(place.clone()).or_default() += 1;
    }

    /// Removes one pod; `false` if no node has any left.
    fn remove(&mut self, place: &NominationTarget) -> bool {
        if let Some(count) = self.0.get_mut(place) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(place);
            }
        }
        !self.0.is_empty()
    }
}

/// Pods of one class with required anti-affinity.
#[derive(Clone, Debug, Default)]
pub struct AntiAffinityPods {
    class: Option<Arc<PodClass>>,
    /// Nodes that they run on.
    pub places: NodePodCounts,
}

impl AntiAffinityPods {
    /// Their class.
    #[must_use]
    pub fn class(&self) -> Option<&PodClass> {
        self.class.as_deref()
    }
}

/// Pods that are bound to a node, or assumed to run on one, by labels and by class.
#[derive(Clone, Debug, Default)]
pub struct PodLabelIndex {
    by_labels: ShardedMap<PodLabelKey, NodePodCounts>,
    anti_affinity_pods: ShardedMap<u32, AntiAffinityPods>,
}

impl PodLabelIndex {
    /// Pods by namespace and labels; pods that are being deleted do not count.
    pub fn by_labels(&self) -> impl Iterator<Item = (&PodLabelKey, &Arc<NodePodCounts>)> {
        self.by_labels.iter()
    }

    /// Pods with required anti-affinity that are not terminal, by class; pods that are being deleted count.
    pub fn anti_affinity_pods(&self) -> impl Iterator<Item = &Arc<AntiAffinityPods>> {
        self.anti_affinity_pods.values()
    }

    fn key(pod: &Pod) -> PodLabelKey {
        PodLabelKey {
            namespace: Arc::clone(&pod.key.namespace),
            labels: Arc::clone(&pod.labels),
        }
    }

    /// Whether a pod is counted in [`Self::by_labels`] once added.
    #[must_use]
    pub const fn counts(pod: &Pod) -> bool {
        pod.is_active()
    }

    /// Whether a pod is counted in [`Self::anti_affinity_pods`] once added.
    #[must_use]
    pub fn has_required_anti_affinity(pod: &Pod) -> bool {
        !pod.is_terminal() && !pod.class.anti_affinity.required.is_empty()
    }

    /// Whether both pods count equally.
    #[must_use]
    pub fn is_same(a: &Pod, b: &Pod) -> bool {
        a.node == b.node
            && Self::counts(a) == Self::counts(b)
            && Self::has_required_anti_affinity(a) == Self::has_required_anti_affinity(b)
            && Arc::ptr_eq(&a.labels, &b.labels)
            && a.class.id == b.class.id
            && a.key.namespace == b.key.namespace
    }

    /// Updates the counts after a pod was created, changed or deleted.
    pub fn update(&mut self, before: Option<&Pod>, after: Option<&Pod>) {
        let is_same = before
            .zip(after)
            .is_some_and(|(before, after)| Self::is_same(before, after));
        if is_same {
            return;
        }
        if let Some(before) = before {
            self.remove(before);
        }
        if let Some(after) = after {
            self.add(after);
        }
    }

    /// Counts a pod on the node that it is bound to. Each pod is added once, and removed as the same value.
    pub fn add(&mut self, pod: &Pod) {
        if let Some(node) = &pod.node {
            self.add_at(pod, &NominationTarget::Node(node.clone()));
        }
    }

    /// Counts a pod on a target.
    pub fn add_at(&mut self, pod: &Pod, place: &NominationTarget) {
        if Self::counts(pod) {
            self.by_labels.change(Self::key(pod), |places| {
                places.add(place);
                true
            });
        }
        if Self::has_required_anti_affinity(pod) {
            self.anti_affinity_pods.change(pod.class.id, |pods| {
                pods.class.get_or_insert_with(|| Arc::clone(&pod.class));
                pods.places.add(place);
                true
            });
        }
    }

    /// Removes a bound pod.
    pub fn remove(&mut self, pod: &Pod) {
        let Some(node) = &pod.node else { return };
        let place = NominationTarget::Node(node.clone());
        if Self::counts(pod) {
            self.by_labels
                .change(Self::key(pod), |places| places.remove(&place));
        }
        if Self::has_required_anti_affinity(pod) {
            self.anti_affinity_pods
                .change(pod.class.id, |pods| pods.places.remove(&place));
        }
    }
}
