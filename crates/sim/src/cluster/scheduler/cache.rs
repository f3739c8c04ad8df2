//! What the scheduler knows of the cluster, kept in step with every change of an object.

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
use super::queue::Event;
use super::selectors::Labels;

/// A node, and what is on it.
#[derive(Clone, Debug, Default)]
pub(super) struct Machine {
    pub(super) labels: Labels,
    pub(super) taints: Vec<Taint>,
    pub(super) unschedulable: bool,
    pub(super) allocatable: Resources,
    pub(super) used: Resources,
    pub(super) pods: BTreeMap<PodKey, Arc<PodView>>,
}

/// How many pods of a profile a node has.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Count {
    pub(super) staying: i64,
    pub(super) going: i64,
}

impl Count {
    pub(super) const fn all(self) -> i64 {
        self.staying + self.going
    }
}

/// Pods of one profile that have a node.
#[derive(Clone, Debug)]
pub(super) struct Crowd {
    pub(super) profile: Arc<Profile>,
    /// By node.
    pub(super) on: BTreeMap<NodeName, Count>,
}

/// Nodes, pods, namespaces and storage.
#[derive(Debug, Default)]
pub(super) struct Cache {
    pub(super) machines: BTreeMap<NodeName, Machine>,
    pub(super) pods: BTreeMap<PodKey, Arc<PodView>>,
    pub(super) crowds: BTreeMap<Arc<str>, Crowd>,
    pub(super) namespaces: BTreeMap<String, Labels>,
    pub(super) claims: BTreeMap<(Arc<str>, Arc<str>), PersistentVolumeClaim>,
    pub(super) volumes: BTreeMap<Arc<str>, PersistentVolume>,
    pub(super) classes: BTreeMap<Arc<str>, StorageClass>,
}

impl Cache {
    /// Takes a change in; says what it may mean for pods that wait. `None` = the object is gone. An object that cannot be
    /// read is as one that is gone.
    pub(super) fn observe(&mut self, key: &ObjectKey, object: Option<&Object>) -> Vec<Event> {
        match (key, object) {
            (ObjectKey::Pod(key), Some(Object::Pod(pod))) => {
                let over = matches!(pod.status.phase.as_str(), "Succeeded" | "Failed");
                let view = PodView::read(key, pod).ok().filter(|_| !over);
                self.put_pod(key, view)
            }
            (ObjectKey::Pod(key), _) => self.put_pod(key, None),
            (ObjectKey::Node(name), Some(Object::Node(node))) => self.put_node(name, node),
            (ObjectKey::Node(name), _) => {
                let gone = self.machines.get_mut(name).is_some_and(|machine| {
                    // Its pods are gone when their objects are; until then they count nowhere.
                    let was = !machine.labels.is_empty();
                    machine.labels.clear();
                    machine.allocatable = Resources::zero();
                    was
                });
                self.machines
                    .retain(|_, machine| !(machine.labels.is_empty() && machine.pods.is_empty()));
                if gone {
                    vec![Event::NodeGone]
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
                vec![Event::Storage]
            }
            (ObjectKey::Volume(name), object) => {
                match object {
                    Some(Object::Volume(volume)) => {
                        self.volumes.insert(Arc::clone(name), (**volume).clone());
                    }
                    _ => drop(self.volumes.remove(name)),
                }
                vec![Event::Storage]
            }
            (ObjectKey::StorageClass(name), object) => {
                match object {
                    Some(Object::StorageClass(class)) => {
                        self.classes.insert(Arc::clone(name), (**class).clone());
                    }
                    _ => drop(self.classes.remove(name)),
                }
                vec![Event::Storage]
            }
            _ => Vec::new(),
        }
    }

    /// Nodes that are there, by name. Pods can be bound to one that is not.
    pub(super) fn nodes(&self) -> impl Iterator<Item = (&NodeName, &Machine)> {
        self.machines
            .iter()
            .filter(|(_, machine)| !machine.labels.is_empty())
    }

    fn put_node(&mut self, name: &NodeName, node: &Node) -> Vec<Event> {
        let mut own = node.metadata.labels.clone().unwrap_or_default();
        own.entry(labels::HOSTNAME.to_owned())
            .or_insert_with(|| name.to_string());
        let mut taints = node.spec.taints.clone();
        // In a cluster the node lifecycle controller writes this one.
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
        let machine = self.machines.entry(name.clone()).or_default();
        let mut events = Vec::new();
        if machine.labels.is_empty() {
            events.push(Event::NodeAdded);
        } else {
            if machine.labels != own {
                events.push(Event::NodeLabels);
            }
            if machine.taints != taints || machine.unschedulable != node.spec.unschedulable {
                events.push(Event::NodeTaints);
            }
            if machine.allocatable != allocatable {
                events.push(Event::NodeRoom);
            }
        }
        machine.labels = own;
        machine.taints = taints;
        machine.unschedulable = node.spec.unschedulable;
        machine.allocatable = allocatable;
        events
    }

    /// Puts a pod in place of what it was, if it was there.
    pub(super) fn put_pod(&mut self, key: &PodKey, pod: Option<PodView>) -> Vec<Event> {
        let old = self.pods.remove(key);
        let mut events = Vec::new();
        let was_on = old.as_ref().and_then(|old| old.node.clone());
        let is_on = pod.as_ref().and_then(|pod| pod.node.clone());
        if let Some(old) = &old {
            self.count(old, -1);
        }
        if let Some(mut pod) = pod {
            let crowd = self
                .crowds
                .entry(Arc::clone(&pod.crowd))
                .or_insert_with(|| Crowd {
                    profile: Arc::clone(&pod.profile),
                    on: BTreeMap::new(),
                });
            pod.profile = Arc::clone(&crowd.profile);
            let pod = Arc::new(pod);
            self.count(&pod, 1);
            let same = old.as_ref().filter(|old| old.uid == pod.uid);
            match (was_on, is_on) {
                (None, Some(_)) => events.push(Event::PodBound(Arc::clone(&pod.profile))),
                (Some(_), Some(_)) if same.is_some_and(|old| old.profile != pod.profile) => {
                    events.push(Event::PodBound(Arc::clone(&pod.profile)));
                }
                // Pods that are going do not count in spreads.
                (Some(_), Some(_)) if same.is_some_and(|old| old.going != pod.going) => {
                    events.push(Event::PodGone(Arc::clone(&pod.profile)));
                }
                _ => {}
            }
            self.pods.insert(key.clone(), pod);
        } else if let Some(old) = old.filter(|_| was_on.is_some()) {
            events.push(Event::PodGone(Arc::clone(&old.profile)));
        }
        events
    }

    /// Notes that a pod goes to a node, before the API server says so.
    pub(super) fn assume(&mut self, key: &PodKey, node: &NodeName) -> Vec<Event> {
        let Some(pod) = self.pods.get(key) else {
            return Vec::new();
        };
        let assumed = PodView {
            node: Some(node.to_string()),
            ..(**pod).clone()
        };
        self.put_pod(key, Some(assumed))
    }

    fn count(&mut self, pod: &Arc<PodView>, by: i64) {
        let Some(node) = pod.node.as_deref().map(NodeName::from) else {
            return;
        };
        let machine = self.machines.entry(node.clone()).or_default();
        if by > 0 {
            machine.used.add_assign(&pod.requests);
            machine.pods.insert(pod.key.clone(), Arc::clone(pod));
        } else {
            machine.used.sub_assign(&pod.requests);
            machine.pods.remove(&pod.key);
        }
        if machine.labels.is_empty() && machine.pods.is_empty() {
            self.machines.remove(&node);
        }
        if let Some(crowd) = self.crowds.get_mut(&pod.crowd) {
            let count = crowd.on.entry(node.clone()).or_default();
            if pod.going {
                count.going += by;
            } else {
                count.staying += by;
            }
            if count.all() == 0 {
                crowd.on.remove(&node);
            }
        }
    }
}
