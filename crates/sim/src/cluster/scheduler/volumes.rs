//! Volumes restrict pods to the nodes that can reach them.
//!
//! A bound claim: the node must match the node affinity of its volume. An unbound claim of a class with immediate binding: the
//! pod stays pending. An unbound claim of a class with `WaitForFirstConsumer`: the node must reach an unclaimed volume of that
//! class, or the class has a provisioner and its `allowedTopologies` admit the node.

use std::sync::Arc;

use k8s_openapi::api::core::v1::TopologySelectorTerm;
use mortise_apis::k8s::{PersistentVolume, PersistentVolumeClaim, StorageClass};

use super::cache::{Cache, NodeInfo};
use super::pod::PodView;
use super::selectors::{Labels, node_selects};

/// Annotation of the default class.
const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
/// Provisioner of classes without dynamic provisioning.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";
const WAITS: &str = "WaitForFirstConsumer";

/// Requirement of a volume of a pod on a node.
#[derive(Debug)]
enum Need<'a> {
    /// The node must reach this volume.
    Reach(&'a PersistentVolume),
    /// The node must reach one of these volumes, or the class must provision one for it.
    OneOf(Vec<&'a PersistentVolume>, Option<&'a StorageClass>),
}

/// Computed once for a pod, evaluated for each node.
#[derive(Debug)]
pub(super) struct Volumes<'a> {
    /// `None`: a claim does not exist, or must be bound before the pod can be scheduled.
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

    /// Whether the node can reach all volumes.
    pub(super) fn is_feasible(&self, name: &str, node: &NodeInfo) -> bool {
        let reach = |volume: &PersistentVolume| reaches(volume, name, &node.labels);
        let holds = |need: &Need<'_>| match need {
            Need::Reach(volume) => reach(volume),
            Need::OneOf(volumes, class) => {
                volumes.iter().any(|volume| reach(volume))
                    || class.is_some_and(|class| can_provision(class, &node.labels))
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

/// Whether a class provisions volumes that a node can reach.
fn can_provision(class: &StorageClass, labels: &Labels) -> bool {
    let holds = |term: &TopologySelectorTerm| {
        let expressions = term.match_label_expressions.as_deref().unwrap_or_default();
        expressions.iter().all(|each| {
            let value = labels.get(&each.key);
            value.is_some_and(|value| each.values.contains(value))
        })
    };
    class.allowed_topologies.is_empty() || class.allowed_topologies.iter().any(holds)
}
