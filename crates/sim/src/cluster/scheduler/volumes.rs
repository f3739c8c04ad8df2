//! Volumes tie pods to the nodes that can reach them.
//!
//! A claim that is bound: its volume's node affinity must hold. One that is not: of a class that binds at once the pod has to
//! wait; of a class that waits for the first consumer, a volume of that class which nobody has claimed must be reachable, or
//! the class makes volumes and its `allowedTopologies` leave the node.

use std::sync::Arc;

use k8s_openapi::api::core::v1::TopologySelectorTerm;
use mortise_apis::k8s::{PersistentVolume, PersistentVolumeClaim, StorageClass};

use super::cache::{Cache, Machine};
use super::pod::PodView;
use super::selectors::{Labels, node_selects};

/// Marks the class of claims that name none.
const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
/// Provisioner of classes that make no volumes.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";
const WAITS: &str = "WaitForFirstConsumer";

/// What a volume of a pod asks of a node.
#[derive(Debug)]
enum Need<'a> {
    /// It can be reached there.
    Reach(&'a PersistentVolume),
    /// One of these can be reached there, or one can be made there.
    OneOf(Vec<&'a PersistentVolume>, Option<&'a StorageClass>),
}

/// Computed once for a pod, asked for each node.
#[derive(Debug)]
pub(super) struct Volumes<'a> {
    /// `None`: a claim is not there, or has to be bound before the pod can go anywhere.
    needs: Option<Vec<Need<'a>>>,
}

impl<'a> Volumes<'a> {
    pub(super) fn new(cache: &'a Cache, pod: &PodView) -> Self {
        let namespace = &pod.key.namespace;
        let names = pod.spec.volumes.iter().filter_map(|volume| {
            let made = || format!("{}-{}", pod.key.name, volume.name);
            let claim = volume.persistent_volume_claim.as_ref();
            claim
                .map(|claim| claim.claim_name.clone())
                .or_else(|| volume.ephemeral.as_ref().map(|_| made()))
        });
        let needs = names.map(|name| {
            let key = (Arc::clone(namespace), Arc::from(name.as_str()));
            need(cache, cache.claims.get(&key)?)
        });
        Self {
            needs: needs.collect(),
        }
    }

    /// Whether the volumes leave a node.
    pub(super) fn leave(&self, name: &str, machine: &Machine) -> bool {
        let reach = |volume: &PersistentVolume| reaches(volume, name, &machine.labels);
        let holds = |need: &Need<'_>| match need {
            Need::Reach(volume) => reach(volume),
            Need::OneOf(volumes, class) => {
                volumes.iter().any(|volume| reach(volume))
                    || class.is_some_and(|class| can_be_made(class, &machine.labels))
            }
        };
        self.needs
            .as_ref()
            .is_some_and(|needs| needs.iter().all(holds))
    }
}

fn need<'a>(cache: &'a Cache, claim: &'a PersistentVolumeClaim) -> Option<Need<'a>> {
    if let Some(volume) = &claim.spec.volume_name {
        return cache.volumes.get(volume.as_str()).map(Need::Reach);
    }
    let named = match &claim.spec.storage_class_name {
        Some(name) => cache.classes.get(name.as_str()),
        None => cache.classes.values().find(|class| {
            let marks = class.metadata.annotations.iter().flatten();
            marks
                .into_iter()
                .any(|(key, value)| key == DEFAULT_CLASS && value == "true")
        }),
    };
    let class = named.filter(|class| class.volume_binding_mode.as_deref() == Some(WAITS))?;
    let name = class.metadata.name.as_deref();
    let free = cache.volumes.values().filter(|volume| {
        volume.spec.claim_ref.is_none() && volume.spec.storage_class_name.as_deref() == name
    });
    let makes = (class.provisioner != NO_PROVISIONER).then_some(class);
    Some(Need::OneOf(free.collect(), makes))
}

fn reaches(volume: &PersistentVolume, node: &str, labels: &Labels) -> bool {
    let affinity = volume.spec.node_affinity.as_ref();
    let required = affinity.and_then(|affinity| affinity.required.as_ref());
    required.is_none_or(|selector| node_selects(selector, node, labels))
}

/// Whether a class makes volumes that a node can reach.
fn can_be_made(class: &StorageClass, labels: &Labels) -> bool {
    let holds = |term: &TopologySelectorTerm| {
        let expressions = term.match_label_expressions.as_deref().unwrap_or_default();
        expressions.iter().all(|each| {
            let value = labels.get(&each.key);
            value.is_some_and(|value| each.values.contains(value))
        })
    };
    class.allowed_topologies.is_empty() || class.allowed_topologies.iter().any(holds)
}
