//! The immutable picture of the cluster that every question is answered from.
//!
//! Invariant: a snapshot never changes; whoever holds one may take as long as it likes. Everything derived here is a
//! function of the objects that the index was given and of the ledger, so a follower builds the same.

mod assumed;
mod devices;
mod from_api;
mod node;
mod node_disruption_state;
mod ordered_nodes;
mod pod;
mod pod_class;
mod pod_label_index;
mod pod_predicates;
mod pool_usage;
mod stalled;
mod workloads;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

pub use devices::{ClaimSource, DeviceObjects, PodClaim};
pub use node::{NodeKey, StateNode};
pub use node_disruption_state::NodeDisruptionState;
pub use ordered_nodes::OrderedNodes;
pub use pod::{Owner, Pod, PodPhase, Refusal};
pub use pod_class::{HostPort, PodClass, PodClasses, PodLabels, PodVolume};
pub use pod_label_index::{AntiAffinityPods, NodePodCounts, PodLabelIndex, PodLabelKey};
pub use pod_predicates::EvictionCost;
pub use pool_usage::most_of;
pub use pool_usage::{LimitExceeded, PoolUsage};
pub use stalled::Stalled;
pub use workloads::Workloads;

use crate::catalog::Catalog;
use crate::ledger::{Ledger, NominationTarget};
use crate::resource_kinds::ObjectKey;
use crate::sharded_map::ShardedMap;
use mortise_apis::k8s;
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::karpenter::nodeoverlay::NodeOverlay;
use mortise_apis::karpenter::nodepool::NodePool;
use mortise_apis::labels::{self, WellKnown};
use mortise_apis::names::{
    ClaimName, NamespacedName, NodeClassKey, NodeName, ObjectRef, PodKey, PoolName, Uid,
};
use mortise_apis::node_class::NodeClassObject;
use mortise_apis::node_class::served::ServedNodeClasses;
use mortise_apis::resources::Resources;

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
    pub pods: ShardedMap<PodKey, Pod>,
    /// Pods that wait for a node and could use a new one (see [`Pod::is_provisionable`]); a subset of `pods`.
    pub pending: ShardedMap<PodKey, Pod>,
    /// Nodes and claims, merged. One entry per machine, whether it is coming, here, or going. Change it with
    /// [`Self::insert_node`] and [`Self::remove_node`].
    pub nodes: ShardedMap<NodeKey, StateNode>,
    /// The same machines in the order in which pods try them.
    pub ordered_nodes: OrderedNodes,
    /// By label key but that of the host name: the values that machines with a Node have, and how many have each.
    pub label_values: ShardedMap<Arc<str>, BTreeMap<Arc<str>, u32>>,
    /// The keys of those that are going.
    pub deleting: Arc<BTreeSet<NodeKey>>,
    /// What those that are not going take of their pools' limits, by the label that names the pool.
    pub pool_usage: Arc<BTreeMap<PoolName, PoolUsage>>,
    /// Bound pods by what constraints between pods look at.
    pub pod_labels: PodLabelIndex,
    /// The newest pod of each DaemonSet that is neither over nor being deleted; by namespace and name of the owner.
    pub daemon_pods: Arc<BTreeMap<NamespacedName, Arc<Pod>>>,
    /// Those with a Node, by its name. Scores ask with thousands of names at a time.
    pub named: ShardedMap<NodeName, StateNode>,
    /// Claims as stored.
    pub claims: ShardedMap<ClaimName, NodeClaim>,
    /// Pools as stored.
    pub pools: Arc<BTreeMap<PoolName, Arc<NodePool>>>,
    /// Node classes as stored.
    pub node_classes: Arc<BTreeMap<NodeClassKey, NodeClassObject>>,
    /// Instance types that each node class can launch; absent until resolved once.
    pub catalogs: Arc<BTreeMap<NodeClassKey, Arc<Catalog>>>,
    /// Node overlays by name; empty while their feature gate is off.
    pub overlays: Arc<BTreeMap<Arc<str>, Arc<NodeOverlay>>>,
    /// Catalogues of pools whose types an overlay changes.
    pub overlaid_catalogs: Arc<BTreeMap<PoolName, Arc<Catalog>>>,
    /// Overlays that change nothing, because another of equal weight says the same thing.
    pub rejected_overlays: Arc<BTreeSet<Arc<str>>>,
    /// Pod disruption budgets.
    pub pdbs: Arc<BTreeMap<NamespacedName, Arc<k8s::PodDisruptionBudget>>>,
    /// DaemonSets.
    pub daemon_sets: Arc<BTreeMap<NamespacedName, Arc<k8s::DaemonSet>>>,
    /// Persistent volume claims.
    pub volume_claims: ShardedMap<NamespacedName, k8s::PersistentVolumeClaim>,
    /// Persistent volumes by name.
    pub volumes: ShardedMap<Arc<str>, k8s::PersistentVolume>,
    /// Storage classes by name.
    pub storage_classes: Arc<BTreeMap<Arc<str>, Arc<k8s::StorageClass>>>,
    /// CSI driver limits by node.
    pub csi_nodes: ShardedMap<NodeName, k8s::CsiNode>,
    /// Volume attachments by name.
    pub attachments: ShardedMap<Arc<str>, k8s::VolumeAttachment>,
    /// Devices, and claims for them.
    pub devices: DeviceObjects,
    /// Namespace labels.
    pub namespaces: Arc<BTreeMap<Arc<str>, Arc<k8s::Namespace>>>,
    /// Whom services and controllers select; empty unless default spread constraints are configured.
    pub workloads: Arc<Workloads>,
    /// Promises about room.
    pub ledger: Arc<Ledger>,
    /// Pods that are on their machine only by a promise that [`Self::assume`] has kept. Empty of what the index freezes.
    pub assumed: Arc<BTreeMap<Uid, NominationTarget>>,
    /// Label keys that a template may leave undefined.
    pub well_known: WellKnown,
    /// Kinds of node classes that this process serves.
    pub served: ServedNodeClasses,
    /// Claims and pools of other kinds, with the class each refers to. They are in no table above: another autoscaler's.
    pub foreign: Arc<BTreeMap<ObjectRef, NodeClassKey>>,
    /// Objects that exist and cannot be read. What was known of them before stays in the tables above.
    pub unreadable: Arc<BTreeSet<ObjectKey>>,
}

impl Snapshot {
    /// Nodes behind a fence. Cost: fences.
    #[must_use]
    pub fn fenced_nodes(&self) -> BTreeSet<NodeKey> {
        self.ledger
            .fences()
            .keys()
            .filter_map(|claim| Some(self.node_of_claim(claim)?.key.clone()))
            .collect()
    }

    /// A Node carries the label of a node class kind that is served. Where every kind is served, those that exist count.
    #[must_use]
    pub fn has_served_class(&self, node: &k8s::Node) -> bool {
        let labels = self.served.node_labels().unwrap_or_else(|| {
            let kinds = self.node_classes.keys();
            kinds
                .map(|key| labels::node_class_key(&key.group, &key.kind))
                .collect()
        });
        labels.iter().any(|label| node.label(label).is_some())
    }

    /// A picture of nothing, in which nothing has been looked for yet.
    #[must_use]
    pub fn unseen(well_known: WellKnown, at: Timestamp) -> Self {
        Self {
            generation: 0,
            taken_at: at,
            synced: false,
            pods: ShardedMap::default(),
            pending: ShardedMap::default(),
            nodes: ShardedMap::default(),
            ordered_nodes: OrderedNodes::default(),
            label_values: ShardedMap::default(),
            deleting: Arc::default(),
            pool_usage: Arc::default(),
            pod_labels: PodLabelIndex::default(),
            daemon_pods: Arc::default(),
            named: ShardedMap::default(),
            claims: ShardedMap::default(),
            pools: Arc::default(),
            node_classes: Arc::default(),
            catalogs: Arc::default(),
            overlays: Arc::default(),
            overlaid_catalogs: Arc::default(),
            rejected_overlays: Arc::default(),
            pdbs: Arc::default(),
            daemon_sets: Arc::default(),
            volume_claims: ShardedMap::default(),
            volumes: ShardedMap::default(),
            storage_classes: Arc::default(),
            csi_nodes: ShardedMap::default(),
            attachments: ShardedMap::default(),
            devices: DeviceObjects::default(),
            namespaces: Arc::default(),
            workloads: Arc::default(),
            ledger: Arc::new(Ledger::default()),
            assumed: Arc::default(),
            well_known,
            served: ServedNodeClasses::All,
            foreign: Arc::default(),
            unreadable: Arc::default(),
        }
    }

    /// Puts a machine in, or in the place of what it was.
    pub fn insert_node(&mut self, machine: Arc<StateNode>) {
        let old = self.nodes.insert(machine.key.clone(), Arc::clone(&machine));
        self.machine_changed(old.as_deref(), Some(&machine));
        if let Some(old) = old {
            self.ordered_nodes.remove(&old);
            self.unname(&old);
        }
        for name in machine.node_names() {
            self.named.insert(name, Arc::clone(&machine));
        }
        self.ordered_nodes.insert(machine);
    }

    /// Takes a machine out.
    pub fn remove_node(&mut self, key: &str) {
        if let Some(old) = self.nodes.remove(key) {
            self.machine_changed(Some(&old), None);
            self.ordered_nodes.remove(&old);
            self.unname(&old);
        }
    }

    /// Forgets a machine by its names, but for those that are another one's by now.
    fn unname(&mut self, old: &StateNode) {
        for name in old.node_names() {
            if self.named.get(&name).is_some_and(|now| now.key == old.key) {
                self.named.remove(&name);
            }
        }
    }

    /// Keeps what is known of all machines together in step with one of them.
    fn machine_changed(&mut self, old: Option<&StateNode>, new: Option<&StateNode>) {
        let is_going = |node: &&StateNode| node.deleting;
        match (old.filter(is_going), new.filter(is_going)) {
            (None, Some(new)) => drop(Arc::make_mut(&mut self.deleting).insert(new.key.clone())),
            (Some(old), None) => drop(Arc::make_mut(&mut self.deleting).remove(&old.key)),
            _ => {}
        }
        let with_node = |node: &&StateNode| node.node.is_some();
        let (was, is) = (old.filter(with_node), new.filter(with_node));
        if was.map(|node| &node.labels) != is.map(|node| &node.labels) {
            was.into_iter()
                .for_each(|node| self.count_labels(node, false));
            is.into_iter()
                .for_each(|node| self.count_labels(node, true));
        }
        let used = |node: &'_ StateNode| -> Option<(PoolName, Resources)> {
            let pool = node.pool().filter(|_| !node.deleting)?;
            Some((pool, node.capacity.clone()))
        };
        let (before, after) = (old.and_then(used), new.and_then(used));
        if before == after {
            return;
        }
        let in_use = Arc::make_mut(&mut self.pool_usage);
        let exact = before.as_ref().is_none_or(|(pool, capacity)| {
            in_use
                .get_mut(pool)
                .is_some_and(|usage| usage.uncount(capacity))
        });
        if let Some((pool, capacity)) = &after {
            in_use.entry(pool.clone()).or_default().count(capacity);
        }
        in_use.retain(|_, usage| usage.nodes > 0);
        if !exact {
            let of_all = PoolUsage::of_machines(self.nodes.values());
            self.pool_usage = Arc::new(of_all);
        }
    }

    fn count_labels(&mut self, node: &StateNode, comes: bool) {
        let all = node
            .labels
            .iter()
            .filter(|(key, _)| *key != labels::HOSTNAME);
        for (key, value) in all {
            self.label_values.change(key.as_str().into(), |values| {
                if comes {
                    match values.get_mut(value.as_str()) {
                        Some(count) => *count += 1,
                        None => drop(values.insert(value.as_str().into(), 1)),
                    }
                } else if let Some(count) = values.get_mut(value.as_str()) {
                    *count -= 1;
                    if *count == 0 {
                        values.remove(value.as_str());
                    }
                }
                !values.is_empty()
            });
        }
    }

    /// The node of a Node name, merged with its claim.
    #[must_use]
    pub fn node(&self, name: &str) -> Option<&Arc<StateNode>> {
        self.named.get(name)
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
        self.overlaid_catalogs
            .get(name)
            .or_else(|| self.catalogs.get(&pool.node_class_key()))
    }
}
