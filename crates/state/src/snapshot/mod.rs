//! The immutable cluster state that every evaluation reads.
//!
//! Invariant: a snapshot never changes; readers may keep it for as long as they need. Everything derived here is a function of
//! the objects that the index received and of the ledger, so that a follower derives the same.

mod assumed;
mod boot_taints;
mod commitments;
mod deletion_cost;
pub(crate) mod demand;
mod devices;
mod from_api;
mod gang;
mod launch_hold;
mod launched_nodes;
mod node;
mod node_disruption_state;
mod on_demand_use;
mod ordered_nodes;
mod other_controllers;
mod paid_capacity;
mod pod;
mod pod_class;
mod pod_label_index;
mod pod_predicates;
mod policy_use;
mod pool_usage;
mod price_use;
mod protecting_annotation;
pub(crate) mod requested_room;
mod rollout;
mod stalled;
mod uses_by_policy;
mod workloads;
mod zone_use;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

pub use boot_taints::{BootTaint, BootTaints};
pub use commitments::{CommitmentUse, Commitments, CommitmentsCell, CommitmentsLeft};
pub use deletion_cost::DeletionCost;
pub use demand::{
    BufferDemand, BufferFailure, BufferTemplate, LearnedDemand, MOST_PODS, ResolvedBuffer,
    TemplateKey, TemplateKind, buffer_size,
};
pub use devices::{ClaimSource, DeviceObjects, PodClaim};
pub use gang::{Gang, GangKey, GangKind, Gangs};
pub(crate) use launch_hold::HoldAnnotations;
pub use launch_hold::LaunchHold;
pub use launched_nodes::{LaunchedByPool, LaunchedNodes, ZoneCpus};
pub use node::{NodeKey, StateNode};
pub use node_disruption_state::NodeDisruptionState;
pub use on_demand_use::{NodeCpu, OnDemandUse, OnDemandUses};
pub use ordered_nodes::OrderedNodes;
pub use other_controllers::OtherController;
pub use paid_capacity::{PaidCapacities, PaidCapacity};
pub use pod::{Owner, Pod, PodPhase, Refusal};
pub use pod_class::{PodClass, PodClasses, PodLabels, PodVolume};
pub use pod_label_index::{AntiAffinityPods, NodePodCounts, PodLabelIndex, PodLabelKey};
pub use pod_predicates::EvictionCost;
pub use policy_use::{
    NodesUse, PolicyExceeded, PolicyUse, PolicyUseCell, RateUse, highest_price_of, policies_by_pool,
};
pub use pool_usage::most_of;
pub use pool_usage::{LimitExceeded, PoolUsage};
pub use price_use::{MonthUse, PriceLimit, PriceUse};
pub use protecting_annotation::ProtectingAnnotation;
pub use requested_room::{RequestFailure, RequestedPods, RequestedRoom};
pub use rollout::{Rollout, Rollouts};
pub use stalled::Stalled;
pub use uses_by_policy::UsesByPolicy;
pub use workloads::Workloads;
pub use zone_use::{ZoneUse, ZoneUses};

use crate::catalog::Catalog;
use crate::ledger::{Ledger, NominationTarget};
use crate::resource_kinds::ObjectKey;
use crate::sharded_map::ShardedMap;
use mortise_apis::k8s;
use mortise_apis::karpenter::capacitybuffer::CapacityBuffer;
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::karpenter::nodeoverlay::NodeOverlay;
use mortise_apis::karpenter::nodepool::NodePool;
use mortise_apis::labels::{self, WellKnown};
use mortise_apis::names::{
    ClaimName, NamespacedName, NodeClassKey, NodeName, ObjectRef, PodKey, PoolName, Uid,
};
use mortise_apis::node_class::NodeClassObject;
use mortise_apis::node_class::served::ServedNodeClasses;
use mortise_apis::node_pool_policy::NodePoolPolicy;
use mortise_apis::resources::Resources;

/// The cluster state at one time. Cloning costs about twenty pointers.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Increases by one with each freeze after a change.
    pub generation: u64,
    /// Time of the freeze.
    pub taken_at: Timestamp,
    /// Every list has been read once. Until then, an object that is missing may exist.
    pub synced: bool,
    /// Pods by key; terminal pods are left out.
    pub pods: ShardedMap<PodKey, Pod>,
    /// Pods that are pending and could use a new node (see [`Pod::is_provisionable`]); a subset of `pods`.
    pub pending: ShardedMap<PodKey, Pod>,
    /// Nodes merged with their NodeClaims: planned, existing and terminating ones. Change it with [`Self::insert_node`] and
    /// [`Self::remove_node`].
    pub nodes: ShardedMap<NodeKey, StateNode>,
    /// The same nodes in the order in which the scheduler tries them.
    pub ordered_nodes: OrderedNodes,
    /// By label key, except the host name: the values among nodes that have a Node object, with the number of nodes each.
    pub label_values: ShardedMap<Arc<str>, BTreeMap<Arc<str>, u32>>,
    /// Keys of the nodes that are being deleted.
    pub deleting: Arc<BTreeSet<NodeKey>>,
    /// Resources per NodePool that count against its limits; nodes that are being deleted are left out.
    pub pool_usage: Arc<BTreeMap<PoolName, PoolUsage>>,
    /// Sums over the launched nodes of NodePools, for policies.
    pub launched: LaunchedByPool,
    /// Bound pods, indexed for constraints between pods.
    pub pod_labels: PodLabelIndex,
    /// The newest active pod of each DaemonSet, by namespace and name of the DaemonSet.
    pub daemon_pods: Arc<BTreeMap<NamespacedName, Arc<Pod>>>,
    /// Nodes that have a Node object, by its name. Scoring looks up thousands of names at a time.
    pub named: ShardedMap<NodeName, StateNode>,
    /// NodeClaims as stored.
    pub claims: ShardedMap<ClaimName, NodeClaim>,
    /// NodePools as stored.
    pub pools: Arc<BTreeMap<PoolName, Arc<NodePool>>>,
    /// Node classes as stored.
    pub node_classes: Arc<BTreeMap<NodeClassKey, NodeClassObject>>,
    /// Instance types that each node class can launch; absent until the class was resolved once.
    pub catalogs: Arc<BTreeMap<NodeClassKey, Arc<Catalog>>>,
    /// NodeOverlays by name; empty while their feature gate is off.
    pub overlays: Arc<BTreeMap<Arc<str>, Arc<NodeOverlay>>>,
    /// Catalogs of NodePools with instance types that an overlay changes.
    pub overlaid_catalogs: Arc<BTreeMap<PoolName, Arc<Catalog>>>,
    /// Overlays that were rejected because they conflict with another one of equal weight.
    pub rejected_overlays: Arc<BTreeSet<Arc<str>>>,
    /// NodePoolPolicies; empty where their definition is not installed.
    pub policies: Arc<BTreeMap<Arc<str>, Arc<NodePoolPolicy>>>,
    /// Taints that nodes of a NodePool lose soon after they join, although it does not declare them.
    pub boot_taints: Arc<BootTaints>,
    /// What policies ask and what is used of it: see [`Self::policy_of`].
    pub policy_use: PolicyUseCell,
    /// What policies say is paid for in advance.
    pub paid: Arc<PaidCapacities>,
    /// Who uses it: see [`Self::commitments`].
    pub commitments_cell: CommitmentsCell,
    /// CapacityBuffers; empty while their feature gate is off.
    pub buffers: Arc<BTreeMap<NamespacedName, Arc<CapacityBuffer>>>,
    /// Pod templates that buffers may refer to.
    pub templates: ShardedMap<TemplateKey, BufferTemplate>,
    /// What buffers ask for; without those that are being deleted or that another controller serves.
    pub demand: Arc<BTreeMap<NamespacedName, Arc<BufferDemand>>>,
    /// The pods that stand for ProvisioningRequests; without requests that are over or that another controller serves.
    pub requested: Arc<BTreeMap<NamespacedName, Arc<RequestedPods>>>,
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
    /// Devices, and the claims for them.
    pub devices: DeviceObjects,
    /// Groups of pods that run together; empty where the API server serves none.
    pub gangs: Gangs,
    /// Namespace labels.
    pub namespaces: Arc<BTreeMap<Arc<str>, Arc<k8s::Namespace>>>,
    /// Pod selectors of services and controllers; empty unless default spread constraints are configured.
    pub workloads: Arc<Workloads>,
    /// Nominations, fences and expected NodeClaims.
    pub ledger: Arc<Ledger>,
    /// Pods that [`Self::assume`] placed on their nomination target. Empty in snapshots of the index.
    pub assumed: Arc<BTreeMap<Uid, NominationTarget>>,
    /// Label keys that a template may leave undefined.
    pub well_known: WellKnown,
    /// Kinds of node classes that this process serves.
    pub served: ServedNodeClasses,
    /// Namespace of the service; empty where there is none, as in most tests.
    pub own_namespace: Arc<str>,
    /// Deployments, if drains hand pods over.
    pub rollouts: Rollouts,
    /// NodeClaims and NodePools of another autoscaler, with the node class that each refers to. They are in no other table.
    pub foreign: Arc<BTreeMap<ObjectRef, NodeClassKey>>,
    /// Objects that exist and cannot be parsed. Their last parsed version stays in the other tables.
    pub unreadable: Arc<BTreeSet<ObjectKey>>,
}

impl Snapshot {
    /// Nodes with a fence. Cost: the number of fences.
    #[must_use]
    pub fn fenced_nodes(&self) -> BTreeSet<NodeKey> {
        self.ledger
            .fences()
            .keys()
            .filter_map(|claim| Some(self.node_of_claim(claim)?.key.clone()))
            .collect()
    }

    /// Whether a Node has the label of a served node class kind. If every kind is served, the kinds of existing classes count.
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

    /// An empty snapshot, before any list was read.
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
            launched: LaunchedByPool::default(),
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
            policies: Arc::default(),
            boot_taints: Arc::default(),
            policy_use: PolicyUseCell::default(),
            paid: Arc::default(),
            commitments_cell: CommitmentsCell::default(),
            buffers: Arc::default(),
            templates: ShardedMap::default(),
            requested: Arc::default(),
            demand: Arc::default(),
            pdbs: Arc::default(),
            daemon_sets: Arc::default(),
            volume_claims: ShardedMap::default(),
            volumes: ShardedMap::default(),
            storage_classes: Arc::default(),
            csi_nodes: ShardedMap::default(),
            attachments: ShardedMap::default(),
            devices: DeviceObjects::default(),
            gangs: Gangs::default(),
            namespaces: Arc::default(),
            workloads: Arc::default(),
            ledger: Arc::new(Ledger::default()),
            assumed: Arc::default(),
            well_known,
            served: ServedNodeClasses::All,
            own_namespace: Arc::from(""),
            rollouts: None,
            foreign: Arc::default(),
            unreadable: Arc::default(),
        }
    }

    /// Inserts or replaces a node.
    pub fn insert_node(&mut self, node: Arc<StateNode>) {
        let old = self.nodes.insert(node.key.clone(), Arc::clone(&node));
        self.update_aggregates(old.as_deref(), Some(&node));
        if let Some(old) = old {
            self.ordered_nodes.remove(&old);
            self.remove_names(&old);
        }
        for name in node.node_names() {
            self.named.insert(name, Arc::clone(&node));
        }
        self.ordered_nodes.insert(node);
    }

    /// Removes a node.
    pub fn remove_node(&mut self, key: &str) {
        if let Some(old) = self.nodes.remove(key) {
            self.update_aggregates(Some(&old), None);
            self.ordered_nodes.remove(&old);
            self.remove_names(&old);
        }
    }

    /// Removes the names of a node, except names that belong to another node by now.
    fn remove_names(&mut self, old: &StateNode) {
        for name in old.node_names() {
            if self.named.get(&name).is_some_and(|now| now.key == old.key) {
                self.named.remove(&name);
            }
        }
    }

    /// Updates the aggregates over all nodes after one node changed.
    fn update_aggregates(&mut self, old: Option<&StateNode>, new: Option<&StateNode>) {
        self.launched.update(old, new);
        let is_deleting = |node: &&StateNode| node.deleting;
        match (old.filter(is_deleting), new.filter(is_deleting)) {
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
        let usage_by_pool = Arc::make_mut(&mut self.pool_usage);
        let exact = before.as_ref().is_none_or(|(pool, capacity)| {
            usage_by_pool
                .get_mut(pool)
                .is_some_and(|usage| usage.uncount(capacity))
        });
        if let Some((pool, capacity)) = &after {
            usage_by_pool
                .entry(pool.clone())
                .or_default()
                .count(capacity);
        }
        usage_by_pool.retain(|_, usage| usage.nodes > 0);
        if !exact {
            let recounted = PoolUsage::by_pool(self.nodes.values());
            self.pool_usage = Arc::new(recounted);
        }
    }

    fn count_labels(&mut self, node: &StateNode, is_added: bool) {
        let all = node
            .labels
            .iter()
            .filter(|(key, _)| *key != labels::HOSTNAME);
        for (key, value) in all {
            self.label_values.change(key.as_str().into(), |values| {
                if is_added {
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

    /// The node of a NodeClaim, whether or not its Node exists.
    #[must_use]
    pub fn node_of_claim(&self, claim: &str) -> Option<&Arc<StateNode>> {
        let claim = self.claims.get(claim)?;
        self.nodes.get(&NodeKey::from_claim(claim))
    }

    /// NodeClaims that were created and that no watch has shown yet.
    pub(crate) fn unseen_claims(&self) -> impl Iterator<Item = (&ClaimName, &Arc<NodeClaim>)> {
        let expected = self.ledger.expected_claims().iter();
        let known = expected.filter_map(|(name, expected)| Some((name, expected.object.as_ref()?)));
        known.filter(|(name, _)| !self.claims.contains(name.as_str()))
    }

    /// Nodes of a NodePool.
    pub fn nodes_of_pool<'a>(&'a self, pool: &'a str) -> impl Iterator<Item = &'a Arc<StateNode>> {
        self.nodes
            .values()
            .filter(move |node| node.label(labels::NODEPOOL) == Some(pool))
    }

    /// The policy that is in force for a NodePool, with what is used of it.
    #[must_use]
    pub fn policy_of(&self, pool: &str) -> Option<&Arc<PolicyUse>> {
        if self.policies.is_empty() {
            return None;
        }
        self.policy_use.get(self).get(pool)
    }

    /// What is paid for in advance, and the nodes that it may pay for; `None` without any.
    #[must_use]
    pub fn commitments(&self) -> Option<&Arc<Commitments>> {
        if self.policies.is_empty() {
            return None;
        }
        self.commitments_cell.get(self)
    }

    /// When the same objects mean something else: NodePoolPolicies allow more new nodes because a NodeClaim leaves their window, or
    /// other limits of their calendar hold, or a commitment ends. `None` if nothing but changes of objects makes a difference.
    #[must_use]
    pub fn outlived_at(&self) -> Option<Timestamp> {
        if self.policies.is_empty() {
            return None;
        }
        let policies = self.policy_use.get(self).values();
        let all = policies.filter_map(|policy| policy.outlived_at());
        all.chain(self.paid.until()).min()
    }

    /// The policies by NodePool: of those that name it and ask anything of it, the oldest, and of equally old ones the first by name.
    #[must_use]
    pub fn policies_in_force(&self) -> BTreeMap<PoolName, &Arc<NodePoolPolicy>> {
        policy_use::policies_by_pool(self.policies.values())
    }

    /// The virtual pods of all buffers.
    pub fn virtual_pods(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.demand.values().flat_map(|demand| &*demand.pods)
    }

    /// NodePools of another autoscaler.
    pub fn foreign_pools(&self) -> impl Iterator<Item = &PoolName> {
        self.foreign.keys().filter_map(|target| match target {
            ObjectRef::Pool(name) => Some(name),
            _ => None,
        })
    }

    /// NodeClaims of another autoscaler.
    pub fn foreign_claims(&self) -> impl Iterator<Item = &ClaimName> {
        self.foreign.keys().filter_map(|target| match target {
            ObjectRef::Claim(name) => Some(name),
            _ => None,
        })
    }

    /// The catalog of a NodePool, with overlays applied; `None` until its node class is resolved.
    #[must_use]
    pub fn catalog_of(&self, pool: &NodePool) -> Option<&Arc<Catalog>> {
        let name = pool.metadata.name.as_deref().unwrap_or_default();
        self.overlaid_catalogs
            .get(name)
            .or_else(|| self.catalogs.get(&pool.node_class_key()))
    }
}
