//! What changed since the last step of a decider, so that a step costs what changed, not what exists.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::Arc;

use crate::snapshot::NodeKey;
use mortise_apis::names::{ClaimName, NodeClassKey, NodeName, PodKey, PoolName};

/// Keys of changed objects. The key of a deleted object is included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Everything must be evaluated: the first step, or after changes were lost.
    pub everything: bool,
    /// Pods.
    pub pods: ChangedKeys<PodKey>,
    /// Nodes (the Node, its NodeClaim, or pods on it).
    pub nodes: ChangedKeys<NodeKey>,
    /// NodeClaims.
    pub claims: ChangedKeys<ClaimName>,
    /// NodePools.
    pub pools: ChangedKeys<PoolName>,
    /// Node classes and their catalogs.
    pub node_classes: ChangedKeys<NodeClassKey>,
    /// Whether any budget, DaemonSet, volume or namespace changed.
    pub cluster_objects: bool,
    /// Whether a capacity buffer changed, or an object that one may refer to.
    pub demand: bool,
    /// Whether a ProvisioningRequest changed, or the pods that it asks room for.
    pub requests: bool,
    /// Whether the ledger changed.
    pub ledger: bool,
    /// Nodes on which a pod other than a DaemonSet pod was bound, completed or began to terminate.
    pub pod_events: ChangedKeys<NodeName>,
}

impl Changes {
    /// Marks everything as changed.
    #[must_use]
    pub fn everything() -> Self {
        Self {
            everything: true,
            ..Self::default()
        }
    }

    /// Whether nothing changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Adds the changes of another set.
    pub fn merge(&mut self, other: &Self) {
        let Self {
            everything,
            pods,
            nodes,
            claims,
            pools,
            node_classes,
            cluster_objects: surroundings,
            demand,
            requests,
            ledger,
            pod_events,
        } = other;
        self.everything |= everything;
        self.pods.merge(pods);
        self.nodes.merge(nodes);
        self.claims.merge(claims);
        self.pools.merge(pools);
        self.node_classes.merge(node_classes);
        self.cluster_objects |= surroundings;
        self.demand |= demand;
        self.requests |= requests;
        self.ledger |= ledger;
        self.pod_events.merge(pod_events);
    }
}

/// A set of keys that many readers share until one of them adds to it.
///
/// # Cost
/// Every decider collects what changed since its own last step. Most have no key of their own when changes come, and take all
/// of them by one pointer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedKeys<K>(Arc<BTreeSet<K>>);

impl<K> Default for ChangedKeys<K> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<K> Deref for ChangedKeys<K> {
    type Target = BTreeSet<K>;

    fn deref(&self) -> &BTreeSet<K> {
        &self.0
    }
}

impl<'a, K> IntoIterator for &'a ChangedKeys<K> {
    type Item = &'a K;
    type IntoIter = std::collections::btree_set::Iter<'a, K>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl<K: Clone + Ord> ChangedKeys<K> {
    /// Adds a key.
    pub fn insert(&mut self, key: K) {
        Arc::make_mut(&mut self.0).insert(key);
    }

    fn merge(&mut self, other: &Self) {
        if self.0.is_empty() {
            self.0 = Arc::clone(&other.0);
        } else if !(other.0.is_empty() || Arc::ptr_eq(&self.0, &other.0)) {
            Arc::make_mut(&mut self.0).extend(other.0.iter().cloned());
        }
    }
}

impl<K: Clone + Ord> Extend<K> for ChangedKeys<K> {
    fn extend<I: IntoIterator<Item = K>>(&mut self, keys: I) {
        Arc::make_mut(&mut self.0).extend(keys);
    }
}
