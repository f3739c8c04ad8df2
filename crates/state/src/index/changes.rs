//! What changed since the last step of a decider, so that a step costs what changed, not what exists.

use std::collections::BTreeSet;

use crate::snapshot::NodeKey;
use mortise_apis::names::{ClaimName, NodeClassKey, NodeName, PodKey, PoolName};

/// Keys of changed objects. The key of a deleted object is included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Everything must be evaluated: the first step, or after changes were lost.
    pub everything: bool,
    /// Pods.
    pub pods: BTreeSet<PodKey>,
    /// Nodes (the Node, its NodeClaim, or pods on it).
    pub nodes: BTreeSet<NodeKey>,
    /// NodeClaims.
    pub claims: BTreeSet<ClaimName>,
    /// NodePools.
    pub pools: BTreeSet<PoolName>,
    /// Node classes and their catalogs.
    pub node_classes: BTreeSet<NodeClassKey>,
    /// Whether any budget, DaemonSet, volume or namespace changed.
    pub cluster_objects: bool,
    /// Whether a capacity buffer changed, or an object that one may refer to.
    pub demand: bool,
    /// Whether the ledger changed.
    pub ledger: bool,
    /// Nodes on which a pod other than a DaemonSet pod was bound, completed or began to terminate.
    pub pod_events: BTreeSet<NodeName>,
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
            ledger,
            pod_events,
        } = other;
        self.everything |= everything;
        self.pods.extend(pods.iter().cloned());
        self.nodes.extend(nodes.iter().cloned());
        self.claims.extend(claims.iter().cloned());
        self.pools.extend(pools.iter().cloned());
        self.node_classes.extend(node_classes.iter().cloned());
        self.cluster_objects |= surroundings;
        self.demand |= demand;
        self.ledger |= ledger;
        self.pod_events.extend(pod_events.iter().cloned());
    }
}
