//! Where pods that are alike run, so that constraints between pods are counted without looking at every pod.
//!
//! A spread constraint of one deployment concerns some of the hundreds of label sets of a cluster; its pods are counted by
//! looking at the label sets, and then at the Nodes of those that are meant. The index keeps this up to date pod by pod.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Pod, PodClass, PodLabels, Table};
use crate::ledger::Place;

/// A namespace and a set of labels.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CrowdKey {
    /// Namespace of the pods.
    pub namespace: Arc<str>,
    /// Their labels.
    pub labels: PodLabels,
}

/// Places with a number of pods each, never 0. Sorted. A claim is a place only for pods that are assumed to run there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Whereabouts(BTreeMap<Place, u32>);

impl Whereabouts {
    /// The places and how many pods each has.
    pub fn iter(&self) -> impl Iterator<Item = (&Place, u32)> {
        self.0.iter().map(|(place, count)| (place, *count))
    }

    fn join(&mut self, place: &Place) {
        *self.0.entry(place.clone()).or_default() += 1;
    }

    /// Takes one pod away; `false` when none is left anywhere.
    fn leave(&mut self, place: &Place) -> bool {
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
pub struct Guards {
    class: Option<Arc<PodClass>>,
    /// Where they run.
    pub places: Whereabouts,
}

impl Guards {
    /// Their class.
    #[must_use]
    pub fn class(&self) -> Option<&PodClass> {
        self.class.as_deref()
    }
}

/// Pods that are bound to a Node, or assumed to be on a machine, counted by what they are.
#[derive(Clone, Debug, Default)]
pub struct Crowds {
    alike: Table<CrowdKey, Whereabouts>,
    guards: Table<u32, Guards>,
}

impl Crowds {
    /// Pods that run or start, by namespace and labels; those that are being deleted do not count.
    pub fn alike(&self) -> impl Iterator<Item = (&CrowdKey, &Arc<Whereabouts>)> {
        self.alike.iter()
    }

    /// Pods with required anti-affinity that are not over, by class; those that are being deleted count.
    pub fn guards(&self) -> impl Iterator<Item = &Arc<Guards>> {
        self.guards.values()
    }

    fn key(pod: &Pod) -> CrowdKey {
        CrowdKey {
            namespace: Arc::clone(&pod.key.namespace),
            labels: Arc::clone(&pod.labels),
        }
    }

    /// Whether a pod is among [`Self::alike`] once it has joined a place.
    #[must_use]
    pub const fn counts(pod: &Pod) -> bool {
        pod.is_active()
    }

    /// Whether a pod is among [`Self::guards`] once it has joined a place.
    #[must_use]
    pub fn is_guard(pod: &Pod) -> bool {
        !pod.is_terminal() && !pod.class.anti_affinity.required.is_empty()
    }

    /// Whether one pod counts exactly as the other.
    #[must_use]
    pub fn is_same(a: &Pod, b: &Pod) -> bool {
        a.node == b.node
            && Self::counts(a) == Self::counts(b)
            && Self::is_guard(a) == Self::is_guard(b)
            && Arc::ptr_eq(&a.labels, &b.labels)
            && a.class.id == b.class.id
            && a.key.namespace == b.key.namespace
    }

    /// Counts a pod where it is bound. Each pod joins once, and leaves as the same value that joined.
    pub fn join(&mut self, pod: &Pod) {
        if let Some(node) = &pod.node {
            self.join_at(pod, &Place::Node(node.clone()));
        }
    }

    /// Counts a pod on a place.
    pub fn join_at(&mut self, pod: &Pod, place: &Place) {
        if Self::counts(pod) {
            self.alike.change(Self::key(pod), |places| {
                places.join(place);
                true
            });
        }
        if Self::is_guard(pod) {
            self.guards.change(pod.class.id, |guards| {
                guards.class.get_or_insert_with(|| Arc::clone(&pod.class));
                guards.places.join(place);
                true
            });
        }
    }

    /// Counts a bound pod no more.
    pub fn leave(&mut self, pod: &Pod) {
        let Some(node) = &pod.node else { return };
        let place = Place::Node(node.clone());
        if Self::counts(pod) {
            self.alike
                .change(Self::key(pod), |places| places.leave(&place));
        }
        if Self::is_guard(pod) {
            self.guards
                .change(pod.class.id, |guards| guards.places.leave(&place));
        }
    }
}
