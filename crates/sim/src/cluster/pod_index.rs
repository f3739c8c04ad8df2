//! What controllers read of pods, kept up to date with every write: a round of them reads what changed, not every pod.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use mortise_apis::names::PodKey;
use serde_json::Value;

use super::api_server::is_deleting;
use super::deletion_order::DeletionFacts;
use super::rolling_update::revision_of;
use super::workload_controllers::daemon_sets::is_daemon;
use super::workload_controllers::{is_healthy, node_of, owner};

/// What controllers read of a pod.
#[derive(Clone, Debug)]
pub(super) struct PodFacts {
    owner: Option<Arc<str>>,
    node: Option<Arc<str>>,
    is_daemon: bool,
    pub(super) is_deleting: bool,
    pub(super) is_healthy: bool,
    /// Revision of the template that it was made from; `None`: the template was not replaced then.
    pub(super) revision: Option<u64>,
    pub(super) deletion: DeletionFacts,
}

impl PodFacts {
    pub(super) fn of(pod: &Value) -> Self {
        Self {
            owner: owner(pod).map(Arc::from),
            node: node_of(pod).map(Arc::from),
            is_daemon: is_daemon(pod),
            is_deleting: is_deleting(pod),
            is_healthy: is_healthy(pod),
            revision: revision_of(pod),
            deletion: DeletionFacts::of(pod),
        }
    }

    pub(super) const fn node(&self) -> Option<&Arc<str>> {
        self.node.as_ref()
    }

    pub(super) const fn is_bound(&self) -> bool {
        self.node.is_some()
    }
}

/// The pods of one owner.
#[derive(Clone, Debug, Default)]
pub(super) struct OwnedPods {
    pods: BTreeMap<PodKey, PodFacts>,
    /// Grows when one of them changes.
    pub(super) revision: u64,
}

impl OwnedPods {
    /// Those that are not being deleted, by name.
    pub(super) fn live(&self) -> impl Iterator<Item = (&PodKey, &PodFacts)> {
        self.pods.iter().filter(|(_, facts)| !facts.is_deleting)
    }

    /// All of them, by name.
    pub(super) fn all(&self) -> impl Iterator<Item = (&PodKey, &PodFacts)> {
        self.pods.iter()
    }
}

/// All pods.
#[derive(Clone, Debug, Default)]
pub(super) struct PodIndex {
    by_owner: BTreeMap<Arc<str>, OwnedPods>,
    by_node: BTreeMap<Arc<str>, BTreeSet<PodKey>>,
    deleting: BTreeSet<PodKey>,
    daemons_without_node: BTreeSet<PodKey>,
    /// Grows when a pod of a DaemonSet is created, bound or removed.
    daemons_revision: u64,
    known: BTreeMap<PodKey, PodFacts>,
}

impl PodIndex {
    /// A pod was created or changed.
    pub(super) fn put(&mut self, key: &PodKey, pod: &Value) {
        let facts = PodFacts::of(pod);
        let known = self.known.get(key);
        let same_node = known.is_some_and(|known| known.node == facts.node);
        self.remove_from_sets(key);
        self.daemons_revision += u64::from(facts.is_daemon && !same_node);
        if let Some(owner) = &facts.owner {
            let owned = self.by_owner.entry(Arc::clone(owner)).or_default();
            owned.pods.insert(key.clone(), facts.clone());
            owned.revision += 1;
        }
        if let Some(node) = &facts.node {
            let pods = self.by_node.entry(Arc::clone(node)).or_default();
            pods.insert(key.clone());
        } else if facts.is_daemon {
            self.daemons_without_node.insert(key.clone());
        }
        if facts.is_deleting {
            self.deleting.insert(key.clone());
        }
        self.known.insert(key.clone(), facts);
    }

    /// A pod was removed.
    pub(super) fn remove(&mut self, key: &PodKey) {
        self.remove_from_sets(key);
        if let Some(facts) = self.known.remove(key) {
            self.daemons_revision += u64::from(facts.is_daemon);
        }
    }

    fn remove_from_sets(&mut self, key: &PodKey) {
        let Some(facts) = self.known.get(key) else {
            return;
        };
        if let Some(owned) = facts
            .owner
            .as_ref()
            .and_then(|of| self.by_owner.get_mut(of))
        {
            owned.pods.remove(key);
            owned.revision += 1;
        }
        if let Some(node) = &facts.node
            && let Some(pods) = self.by_node.get_mut(node)
        {
            pods.remove(key);
            if pods.is_empty() {
                self.by_node.remove(node);
            }
        }
        self.deleting.remove(key);
        self.daemons_without_node.remove(key);
    }

    /// The pods of an owner, by its name.
    pub(super) fn of_owner(&self, owner: &str) -> Option<&OwnedPods> {
        self.by_owner.get(owner)
    }

    /// The pods on a node.
    pub(super) fn on_node(&self, node: &str) -> impl Iterator<Item = &PodKey> {
        self.by_node.get(node).into_iter().flatten()
    }

    /// Names of nodes that pods are bound to.
    pub(super) fn nodes(&self) -> impl Iterator<Item = &Arc<str>> {
        self.by_node.keys()
    }

    /// Pods that are being deleted.
    pub(super) const fn deleting(&self) -> &BTreeSet<PodKey> {
        &self.deleting
    }

    /// Pods of DaemonSets that are bound to no node.
    pub(super) const fn daemons_without_node(&self) -> &BTreeSet<PodKey> {
        &self.daemons_without_node
    }

    /// Grows when a pod of a DaemonSet is created, bound or removed.
    pub(super) const fn daemons_revision(&self) -> u64 {
        self.daemons_revision
    }
}
