//! The immutable picture of the cluster that every question is answered from.
//!
//! Invariant: a snapshot never changes; whoever holds one may take as long as it likes. Everything derived here is a
//! function of the objects that the index was given and of the ledger, so a follower builds the same.

mod ingest;
mod node;
mod pod;
mod pod_class;
mod table;
mod workloads;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

pub use node::{NodeKey, StateNode};
pub use pod::{Owner, Pod, PodPhase};
pub use pod_class::{HostPort, PodClass, PodClasses, PodLabels, PodVolume};
pub use table::Table;
pub use workloads::Workloads;

use crate::apis::k8s;
use crate::apis::nodeclaim::NodeClaim;
use crate::apis::nodeoverlay::NodeOverlay;
use crate::apis::nodepool::NodePool;
use crate::catalog::Catalog;
use crate::cloud::NodeClassObject;
use crate::effect::ObjectRef;
use crate::labels::{self, WellKnown};
use crate::ledger::Ledger;
use crate::names::{ClaimName, NamespacedName, NodeClassKey, NodeName, PodKey, PoolName};
use crate::served::Served;

/// The cluster at one moment. Cloning costs some twenty pointers.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Grows by one with each freeze that saw a change.
    pub generation: u64,
    /// When it was frozen.
    pub taken_at: Timestamp,
    /// Every list has been read once. Before that, "not there" means "not seen yet".
    pub synced: bool,
    /// Pods by key; terminal pods are not kept.
    pub pods: Table<PodKey, Pod>,
    /// Pods that wait for a node and could use a new one (see [`Pod::is_provisionable`]); a subset of `pods`.
    pub pending: Table<PodKey, Pod>,
    /// Nodes and claims, merged. One entry per machine, whether it is coming, here, or going.
    pub nodes: Table<NodeKey, StateNode>,
    /// From node name to the key in `nodes`.
    pub node_keys: Table<NodeName, NodeKey>,
    /// Claims as stored.
    pub claims: Table<ClaimName, NodeClaim>,
    /// Pools as stored.
    pub pools: Arc<BTreeMap<PoolName, Arc<NodePool>>>,
    /// Node classes as stored.
    pub node_classes: Arc<BTreeMap<NodeClassKey, NodeClassObject>>,
    /// Instance types that each node class can launch; absent until resolved once.
    pub catalogs: Arc<BTreeMap<NodeClassKey, Arc<Catalog>>>,
    /// Node overlays by name; empty while their feature gate is off.
    pub overlays: Arc<BTreeMap<Arc<str>, Arc<NodeOverlay>>>,
    /// Catalogues of pools whose types an overlay changes.
    pub overlaid: Arc<BTreeMap<PoolName, Arc<Catalog>>>,
    /// Overlays that change nothing, because another of equal weight says the same thing.
    pub rejected_overlays: Arc<BTreeSet<Arc<str>>>,
    /// Pod disruption budgets.
    pub pdbs: Arc<BTreeMap<NamespacedName, Arc<k8s::PodDisruptionBudget>>>,
    /// DaemonSets.
    pub daemon_sets: Arc<BTreeMap<NamespacedName, Arc<k8s::DaemonSet>>>,
    /// Persistent volume claims.
    pub volume_claims: Table<NamespacedName, k8s::PersistentVolumeClaim>,
    /// Persistent volumes by name.
    pub volumes: Table<Arc<str>, k8s::PersistentVolume>,
    /// Storage classes by name.
    pub storage_classes: Arc<BTreeMap<Arc<str>, Arc<k8s::StorageClass>>>,
    /// CSI driver limits by node.
    pub csi_nodes: Table<NodeName, k8s::CsiNode>,
    /// Volume attachments by name.
    pub attachments: Table<Arc<str>, k8s::VolumeAttachment>,
    /// Namespace labels.
    pub namespaces: Arc<BTreeMap<Arc<str>, Arc<k8s::Namespace>>>,
    /// Whom services and controllers select; empty unless default spread constraints are configured.
    pub workloads: Arc<Workloads>,
    /// Promises about room.
    pub ledger: Arc<Ledger>,
    /// Label keys that a template may leave undefined.
    pub well_known: WellKnown,
    /// Kinds of node classes that this process serves.
    pub served: Served,
    /// Claims and pools of other kinds, with the class each refers to. They are in no table above: another autoscaler's.
    pub foreign: Arc<BTreeMap<ObjectRef, NodeClassKey>>,
}

impl Snapshot {
    /// The node of a Node name, merged with its claim.
    #[must_use]
    pub fn node(&self, name: &str) -> Option<&Arc<StateNode>> {
        self.nodes.get(&**self.node_keys.get(name)?)
    }

    /// The machine of a claim, whether or not its Node is there.
    #[must_use]
    pub fn node_of_claim(&self, claim: &str) -> Option<&Arc<StateNode>> {
        let claim = self.claims.get(claim)?;
        self.nodes.get(&NodeKey::of_claim(claim))
    }

    /// Nodes of a pool.
    pub fn nodes_of_pool<'a>(&'a self, pool: &'a str) -> impl Iterator<Item = &'a Arc<StateNode>> {
        self.nodes
            .values()
            .filter(move |node| node.label(labels::NODEPOOL) == Some(pool))
    }

    /// Pools of another autoscaler.
    pub fn foreign_pools(&self) -> impl Iterator<Item = &PoolName> {
        self.foreign.keys().filter_map(|target| match target {
            ObjectRef::Pool(name) => Some(name),
            _ => None,
        })
    }

    /// Claims of another autoscaler.
    pub fn foreign_claims(&self) -> impl Iterator<Item = &ClaimName> {
        self.foreign.keys().filter_map(|target| match target {
            ObjectRef::Claim(name) => Some(name),
            _ => None,
        })
    }

    /// The catalogue behind a pool, with what overlays change; `None` while its node class was not resolved.
    #[must_use]
    pub fn catalog_of(&self, pool: &NodePool) -> Option<&Arc<Catalog>> {
        let name = pool.metadata.name.as_deref().unwrap_or_default();
        self.overlaid
            .get(name)
            .or_else(|| self.catalogs.get(&pool.node_class_key()))
    }
}
