//! What changed since a decider's last step, so that a step costs what changed and not what exists.

use std::collections::BTreeSet;

use crate::snapshot::NodeKey;
use mortise_apis::names::{ClaimName, NodeClassKey, NodeName, PodKey, PoolName};

/// Keys of what changed. A key of something that is gone stays in: absence is a change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Look at everything: the first step, or after losing track.
    pub everything: bool,
    /// Pods.
    pub pods: BTreeSet<PodKey>,
    /// Machines (their Node, their claim, or pods on them).
    pub nodes: BTreeSet<NodeKey>,
    /// Claims.
    pub claims: BTreeSet<ClaimName>,
    /// Pools.
    pub pools: BTreeSet<PoolName>,
    /// Node classes and their catalogues.
    pub node_classes: BTreeSet<NodeClassKey>,
    /// Disruption budgets, DaemonSets, volumes, namespaces: something changed.
    pub cluster_objects: bool,
    /// The ledger.
    pub ledger: bool,
    /// Nodes on which a pod that is not a DaemonSet's was newly bound, ended or began to end.
    pub pod_events: BTreeSet<NodeName>,
}

impl Changes {
    /// Everything.
    #[must_use]
    pub fn everything() -> Self {
        Self {
            everything: true,
            ..Self::default()
        }
    }

    /// Nothing changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Adds what another set has.
    pub fn merge(&mut self, other: &Self) {
        let Self {
            everything,
            pods,
            nodes,
            claims,
            pools,
            node_classes,
            cluster_objects: surroundings,
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
        self.ledger |= ledger;
        self.pod_events.extend(pod_events.iter().cloned());
    }
}
