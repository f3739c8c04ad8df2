//! Where pods that are alike run, so that constraints between pods are counted without looking at every pod.
//!
//! A spread constraint of one deployment concerns some of the hundreds of label sets of a cluster; its pods are counted by
//! looking at the label sets, and then at the Nodes of those that are meant. The index keeps this up to date pod by pod.

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

/// Places with a number of pods each, never 0. Sorted. A claim is a place only for pods that are assumed to run there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodePodCounts(BTreeMap<NominationTarget, u32>);

impl NodePodCounts {
    /// The places and how many pods each has.
    pub fn iter(&self) -> impl Iterator<Item = (&NominationTarget, u32)> {
        self.0.iter().map(|(place, count)| (place, *count))
    }

    fn add(&mut self, place: &NominationTarget) {
        *self.0.entry(place.clone()).or_default() += 1;
    }

    /// Takes one pod away; `false` when none is left anywhere.
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

/// Pods that keep others away: those of one class with required anti-affinity.
#[derive(Clone, Debug, Default)]
pub struct AntiAffinityPods {
    class: Option<Arc<PodClass>>,
    /// Where they run.
    pub places: NodePodCounts,
}

impl AntiAffinityPods {
    /// Their class.
    #[must_use]
    pub fn class(&self) -> Option<&PodClass> {
        self.class.as_deref()
    }
}

/// Pods that are bound to a Node, or assumed to be on a machine, counted by what they are.
#[derive(Clone, Debug, Default)]
pub struct PodLabelIndex {
    alike: ShardedMap<PodLabelKey, NodePodCounts>,
    guards: ShardedMap<u32, AntiAffinityPods>,
}

impl PodLabelIndex {
    /// Pods that run or start, by namespace and labels; those that are being deleted do not count.
    pub fn by_labels(&self) -> impl Iterator<Item = (&PodLabelKey, &Arc<NodePodCounts>)> {
        self.alike.iter()
    }

    /// Pods with required anti-affinity that are not over, by class; those that are being deleted count.
    pub fn anti_affinity_pods(&self) -> impl Iterator<Item = &Arc<AntiAffinityPods>> {
        self.guards.values()
    }

    fn key(pod: &Pod) -> PodLabelKey {
        PodLabelKey {
            namespace: Arc::clone(&pod.key.namespace),
            labels: Arc::clone(&pod.labels),
        }
    }

    /// Whether a pod is among [`Self::by_labels`] once it has joined a place.
    #[must_use]
    pub const fn counts(pod: &Pod) -> bool {
        pod.is_active()
    }

    /// Whether a pod is among [`Self::anti_affinity_pods`] once it has joined a place.
    #[must_use]
    pub fn has_required_anti_affinity(pod: &Pod) -> bool {
        !pod.is_terminal() && !pod.class.anti_affinity.required.is_empty()
    }

    /// Whether one pod counts exactly as the other.
    #[must_use]
    pub fn is_same(a: &Pod, b: &Pod) -> bool {
        a.node == b.node
            && Self::counts(a) == Self::counts(b)
            && Self::has_required_anti_affinity(a) == Self::has_required_anti_affinity(b)
            && Arc::ptr_eq(&a.labels, &b.labels)
            && a.class.id == b.class.id
            && a.key.namespace == b.key.namespace
    }

    /// Counts a pod where it is bound. Each pod joins once, and leaves as the same value that joined.
    pub fn join(&mut self, pod: &Pod) {
        if let Some(node) = &pod.node {
            self.join_at(pod, &NominationTarget::Node(node.clone()));
        }
    }

    /// Counts a pod on a place.
    pub fn join_at(&mut self, pod: &Pod, place: &NominationTarget) {
        if Self::counts(pod) {
            self.alike.change(Self::key(pod), |places| {
                places.add(place);
                true
            });
        }
        if Self::has_required_anti_affinity(pod) {
            self.guards.change(pod.class.id, |guards| {
                guards.class.get_or_insert_with(|| Arc::clone(&pod.class));
                guards.places.add(place);
                true
            });
        }
    }

    /// Counts a bound pod no more.
    pub fn leave(&mut self, pod: &Pod) {
        let Some(node) = &pod.node else { return };
        let place = NominationTarget::Node(node.clone());
        if Self::counts(pod) {
            self.alike
                .change(Self::key(pod), |places| places.remove(&place));
        }
        if Self::has_required_anti_affinity(pod) {
            self.guards
                .change(pod.class.id, |guards| guards.places.remove(&place));
        }
    }
}
