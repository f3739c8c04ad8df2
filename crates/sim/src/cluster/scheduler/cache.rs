//! The scheduler's cache of the cluster, updated with every change of an object.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Taint;
use mortise_apis::k8s::{
    Node, PersistentVolume, PersistentVolumeClaim, StorageClass, find_condition,
};
use mortise_apis::labels;
use mortise_apis::names::{NodeName, PodKey};
use mortise_apis::resources::Resources;
use mortise_state::resource_kinds::{Object, ObjectKey};

use super::pod::{PodView, Profile};
use super::pod_groups::PodGroups;
use super::queue::ClusterEvent;
use super::selectors::Labels;

/// A node and its pods, as kube-scheduler's `NodeInfo`.
#[derive(Clone, Debug, Default)]
pub(super) struct NodeInfo {
    pub(super) labels: Labels,
    pub(super) taints: Vec<Taint>,
    pub(super) unschedulable: bool,
    pub(super) allocatable: Resources,
    pub(super) used: Resources,
    pub(super) pods: BTreeMap<PodKey, Arc<PodView>>,
}

/// Number of pods of one profile on a node.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PodCount {
    pub(super) active: i64,
    pub(super) deleting: i64,
}

impl PodCount {
    pub(super) const fn all(self) -> i64 {
        self.active + self.deleting
    }
}

/// Bound pods of one profile.
#[derive(Clone, Debug)]
pub(super) struct ProfilePods {
    pub(super) profile: Arc<Profile>,
    /// By node.
    pub(super) on: BTreeMap<NodeName, PodCount>,
}

/// Nodes, pods, namespaces and storage.
#[derive(Debug, Default)]
pub(super) struct Cache {
    pub(super) node_infos: BTreeMap<NodeName, NodeInfo>,
    pub(super) pods: BTreeMap<PodKey, Arc<PodView>>,
    pub(super) by_profile: BTreeMap<Arc<str>, ProfilePods>,
    pub(super) namespaces: BTreeMap<String, Labels>,
    pub(super) claims: BTreeMap<(Arc<str>, Arc<str>), PersistentVolumeClaim>,
    pub(super) volumes: BTreeMap<Arc<str>, PersistentVolume>,
    pub(super) classes: BTreeMap<Arc<str>, StorageClass>,
    pub(super) groups: PodGroups,
}

impl Cache {
    /// Applies a change; returns the events that may make pending pods schedulable. `None` = the object was deleted. An object
    /// that cannot be parsed counts as deleted.
    pub(super) fn observe(
        &mut self,
        key: &ObjectKey,
        object: Option<&Object>,
    ) -> Vec<ClusterEvent> {
        match (key, object) {
            (ObjectKey::Pod(key), Some(Object::Pod(pod))) => {
                let over = matches!(pod.status.phase.as_str(), "Succeeded" | "Failed");
                let view = PodView::read(key, pod).ok().filter(|_| !over);
                self.set_pod(key, view)
            }
            (ObjectKey::Pod(key), _) => self.set_pod(key, None),
            (ObjectKey::Node(name), Some(Object::Node(node))) => self.set_node(name, node),
            (ObjectKey::Node(name), _) => {
                let gone = self.node_infos.get_mut(name).is_some_and(|info| {
                    // Its pods stay until their objects are deleted; until then they count nowhere.
                    let was = !info.labels.is_empty();
                    info.labels.clear();
                    info.allocatable = Resources::zero();
                    was
                });
                self.node_infos
                    .retain(|_, info| !(info.labels.is_empty() && info.pods.is_empty()));
                if gone {
                    vec![ClusterEvent::NodeDeleted]
                } else {
                    Vec::new()
                }
            }
            (ObjectKey::Namespace(name), Some(Object::Namespace(namespace))) => {
                let own = namespace.metadata.labels.clone().unwrap_or_default();
                self.namespaces.insert(name.to_string(), own);
                Vec::new()
            }
            (ObjectKey::VolumeClaim(key), object) => {
                let key = (Arc::clone(&key.namespace), Arc::clone(&key.name));
                match object {
                    Some(Object::VolumeClaim(claim)) => {
                        self.claims.insert(key, (**claim).clone());
                    }
                    _ => drop(self.claims.remove(&key)),
                }
                vec![ClusterEvent::Storage]
            }
            (ObjectKey::Volume(name), object) => {
                match object {
                    Some(Object::Volume(volume)) => {
                        self.volumes.insert(Arc::clone(name), (**volume).clone());
                    }
                    _ => drop(self.volumes.remove(name)),
                }
                vec![ClusterEvent::Storage]
            }
            (ObjectKey::StorageClass(name), object) => {
                match object {
                    Some(Object::StorageClass(class)) => {
                        self.classes.insert(Arc::clone(name), (**class).clone());
                    }
                    _ => drop(self.classes.remove(name)),
                }
                vec![ClusterEvent::Storage]
            }
            (ObjectKey::CoschedulingPodGroup(key), object) => {
                let min = match object {
                    Some(Object::CoschedulingPodGroup(group)) => Some(group.spec.min_member),
                    _ => None,
                };
                self.groups.set_size(key, min);
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    /// Existing nodes, by name. Pods can be bound to a node that does not exist.
    pub(super) fn nodes(&self) -> impl Iterator<Item = (&NodeName, &NodeInfo)> {
        self.node_infos
            .iter()
            .filter(|(_, info)| !info.labels.is_empty())
    }

    fn set_node(&mut self, name: &NodeName, node: &Node) -> Vec<ClusterEvent> {
        let mut own = node.metadata.labels.clone().unwrap_or_default();
        own.entry(labels::HOSTNAME.to_owned())
            .or_insert_with(|| name.to_string());
        let mut taints = node.spec.taints.clone();
        // In a cluster the node lifecycle controller writes this taint.
        let ready = find_condition(&node.status.conditions, "Ready");
        if ready.is_none_or(|ready| ready.status != "True")
            && !taints
                .iter()
                .any(|taint| taint.key == labels::NOT_READY_TAINT)
        {
            taints.push(Taint {
                key: labels::NOT_READY_TAINT.to_owned(),
                effect: "NoSchedule".to_owned(),
                ..Taint::default()
            });
        }
        let allocatable =
            Resources::from_api(&node.status.allocatable).unwrap_or_else(|_| Resources::zero());
        let info = self.node_infos.entry(name.clone()).or_default();
        let mut events = Vec::new();
        if info.labels.is_empty() {
            events.push(ClusterEvent::NodeAdded);
        } else {
            if info.labels != own {
                events.push(ClusterEvent::NodeLabels);
            }
            if info.taints != taints || info.unschedulable != node.spec.unschedulable {
                events.push(ClusterEvent::NodeTaints);
            }
            if info.allocatable != allocatable {
                events.push(ClusterEvent::NodeAllocatable);
            }
        }
        info.labels = own;
        info.taints = taints;
        info.unschedulable = node.spec.unschedulable;
        info.allocatable = allocatable;
        events
    }

    /// Adds, replaces or removes a pod.
    pub(super) fn set_pod(&mut self, key: &PodKey, pod: Option<PodView>) -> Vec<ClusterEvent> {
        let old = self.pods.remove(key);
        let mut events = Vec::new();
        let was_on = old.as_ref().and_then(|old| old.node.clone());
        let is_on = pod.as_ref().and_then(|pod| pod.node.clone());
        if let Some(old) = &old {
            self.count(old, -1);
            self.groups.leave(old);
        }
        if let Some(mut pod) = pod {
            let pods = self
                .by_profile
                .entry(Arc::clone(&pod.profile_key))
                .or_insert_with(|| ProfilePods {
                    profile: Arc::clone(&pod.profile),
                    on: BTreeMap::new(),
                });
            pod.profile = Arc::clone(&pods.profile);
            let pod = Arc::new(pod);
            self.count(&pod, 1);
            self.groups.join(&pod);
            let same = old.as_ref().filter(|old| old.uid == pod.uid);
            match (was_on, is_on) {
                (None, Some(_)) => events.push(ClusterEvent::PodBound(Arc::clone(&pod.profile))),
                (Some(_), Some(_)) if same.is_some_and(|old| old.profile != pod.profile) => {
                    events.push(ClusterEvent::PodBound(Arc::clone(&pod.profile)));
                }
                // Pods that are being deleted do not count in topology spread.
                (Some(_), Some(_)) if same.is_some_and(|old| old.deleting != pod.deleting) => {
                    events.push(ClusterEvent::PodDeleted(Arc::clone(&pod.profile)));
                }
                _ => {}
            }
            self.pods.insert(key.clone(), pod);
        } else if let Some(old) = old.filter(|_| was_on.is_some()) {
            events.push(ClusterEvent::PodDeleted(Arc::clone(&old.profile)));
        }
        events
    }

    /// Assumes a pod on a node before the API server shows the binding.
    pub(super) fn assume(&mut self, key: &PodKey, node: &NodeName) -> Vec<ClusterEvent> {
        let Some(pod) = self.pods.get(key) else {
            return Vec::new();
        };
        let assumed = PodView {
            node: Some(node.to_string()),
            ..(**pod).clone()
        };
        self.set_pod(key, Some(assumed))
    }

    fn count(&mut self, pod: &Arc<PodView>, by: i64) {
        let Some(node) = pod.node.as_deref().map(NodeName::from) else {
            return;
        };
        let info = self.node_infos.entry(node.clone()).or_default();
        if by > 0 {
            info.used.add_assign(&pod.requests);
            info.pods.insert(pod.key.clone(), Arc::clone(pod));
        } else {
            info.used.sub_assign(&pod.requests);
            info.pods.remove(&pod.key);
        }
        if info.labels.is_empty() && info.pods.is_empty() {
            self.node_infos.remove(&node);
        }
        if let Some(pods) = self.by_profile.get_mut(&pod.profile_key) {
            let count = pods.on.entry(node.clone()).or_default();
            if pod.deleting {
                count.deleting += by;
            } else {
                count.active += by;
            }
            if count.all() == 0 {
                pods.on.remove(&node);
            }
        }
    }
}
