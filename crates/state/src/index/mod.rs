//! The mutable cluster state: object events in, snapshots out.
//!
//! One owner applies [`ObjectEvent`] and freezes; readers hold frozen [`Snapshot`]s. The index is pure: the simulator feeds it
//! in the same way as watches do. Applying an event costs the logarithm of the number of objects; freezing costs what changed.

mod apply;
mod boot_taints;
mod changes;
mod demand;
mod foreign;
mod kinds;
mod ledger;
mod merge;
mod nodes;
mod nominations;
mod object_change;
mod overlays;
mod pods;
mod requests;
mod versions;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

pub use changes::{ChangedKeys, Changes};
pub use object_change::{Diff, ObjectChange};

use crate::catalog::Catalog;
use crate::snapshot::{PaidCapacities, Pod, PodClasses, Snapshot};
use mortise_apis::k8s;
use mortise_apis::karpenter::capacitybuffer::CapacityBuffer;
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::karpenter::nodepool::NodePool;
use mortise_apis::labels::{NODEPOOL, WellKnown};
use mortise_apis::names::{
    ClaimName, NamespacedName, NodeClassKey, NodeName, ObjectRef, PodKey, PoolName,
};
use mortise_apis::node_class::served::ServedNodeClasses;
use mortise_apis::node_pool_policy::NodePoolPolicy;
use mortise_cloudprovider::UnavailableOffering;

use boot_taints::BootTaintIndex;
use demand::DemandIndex;
use nodes::NodeIndex;
use nominations::NominationIndex;
use pods::PodIndex;
use requests::RequestIndex;
use versions::ObjectVersions;

/// The mutable cluster state.
#[derive(Debug)]
pub struct Index {
    state: Snapshot,
    versions: ObjectVersions,
    pods: PodIndex,
    nodes: NodeIndex,
    nominations: NominationIndex,
    boot_taints: BootTaintIndex,
    demand: DemandIndex,
    requests: RequestIndex,
    /// The latest time that was set.
    now: Timestamp,
    /// Overlays changed, or NodePools or catalogs that they apply to.
    overlays_changed: bool,
    changes: Changes,
    /// Offerings that were marked as unavailable since the last freeze, by class. A catalog is made again once for all of them: a lack
    /// of capacity is reported by many launches at once.
    marked: BTreeMap<NodeClassKey, Vec<UnavailableOffering>>,
    /// The policies whose commitments are read.
    policies: Arc<BTreeMap<Arc<str>, Arc<NodePoolPolicy>>>,
    /// Something changed since the last freeze.
    stale: bool,
    /// Annotations of Cluster Autoscaler count.
    respect_cluster_autoscaler: bool,
}

impl Index {
    /// An empty index. `ahead`: pods count as pending before kube-scheduler has marked them unschedulable.
    #[must_use]
    pub fn new(well_known: WellKnown, ahead: bool, now: Timestamp) -> Self {
        Self {
            state: Snapshot::unseen(well_known, now),
            versions: ObjectVersions::default(),
            pods: PodIndex::new(PodClasses::default(), ahead),
            nodes: NodeIndex::default(),
            nominations: NominationIndex::default(),
            boot_taints: BootTaintIndex::default(),
            demand: DemandIndex::default(),
            requests: RequestIndex::default(),
            now,
            overlays_changed: false,
            changes: Changes::everything(),
            marked: BTreeMap::new(),
            policies: Arc::default(),
            stale: true,
            respect_cluster_autoscaler: false,
        }
    }

    /// Sets the kinds of node classes that this process serves; call it before the first object is applied. NodeClaims and
    /// NodePools of other kinds are not part of the cluster state: no decider sees them, and they count nowhere.
    #[must_use]
    pub fn serving(mut self, served: ServedNodeClasses) -> Self {
        self.state.served = served;
        self
    }

    /// Sets the namespace of the service.
    #[must_use]
    pub fn in_namespace(mut self, namespace: &str) -> Self {
        self.state.own_namespace = namespace.into();
        self
    }

    /// Whether drains hand pods of Deployments over; otherwise nothing is kept of Deployments for it.
    #[must_use]
    pub fn handing_over(mut self, hands_over: bool) -> Self {
        self.state.rollouts = hands_over.then(Arc::default);
        self
    }

    /// Whether boot taints are learned; otherwise every taint counts.
    #[must_use]
    pub fn learning_boot_taints(mut self, learns: bool) -> Self {
        self.boot_taints.is_off = !learns;
        self
    }

    /// Whether annotations of Cluster Autoscaler keep pods and nodes from being disrupted.
    #[must_use]
    pub fn respecting_cluster_autoscaler(mut self, respects: bool) -> Self {
        self.respect_cluster_autoscaler = respects;
        self.pods.holds().all = respects;
        self
    }

    /// Whether ProvisioningRequests are served: pods that use one wait for it.
    #[must_use]
    pub const fn serving_requests(mut self, serves: bool) -> Self {
        self.pods.holds().requests = serves;
        self.requests.is_on = serves;
        self
    }

    /// Marks every list as read.
    pub fn set_synced(&mut self) {
        if !self.state.synced {
            self.state.synced = true;
            self.restore_all_nominations();
            self.changes.everything = true;
            self.stale = true;
        }
    }

    /// Whether every list has been read.
    #[must_use]
    pub const fn is_synced(&self) -> bool {
        self.state.synced
    }

    /// Sets the time of the events that follow.
    pub fn set_time(&mut self, now: Timestamp) {
        self.now = self.now.max(now);
    }

    /// When to call [`Self::expire`] again, or earlier than necessary.
    #[must_use]
    pub fn next_expiry(&self) -> Option<Timestamp> {
        let nominations = self.next_nomination_expiry().into_iter();
        nominations
            .chain(self.boot_taints.next_expiry())
            .chain(self.demand.next_expiry())
            .min()
    }

    /// Ends what has expired: nominations, the patience with boot taints, and times of buffers. Cost: what expired.
    pub fn expire(&mut self, now: Timestamp) {
        self.set_time(now);
        self.expire_nominations(now);
        boot_taints::expire(self, now);
        demand::expire(self, now);
    }

    /// Sets the catalog of a node class.
    pub fn set_catalog(&mut self, class: &NodeClassKey, catalog: Arc<Catalog>) {
        self.marked.remove(class);
        if self.replace_catalog(class, catalog) {
            self.nodes.mark_all();
        }
    }

    /// Takes a catalog over if it is another one. Returns whether it is.
    fn replace_catalog(&mut self, class: &NodeClassKey, catalog: Arc<Catalog>) -> bool {
        let known = self.state.catalogs.get(class);
        if known.is_some_and(|known| known.version() == catalog.version()) {
            return false;
        }
        Arc::make_mut(&mut self.state.catalogs).insert(class.clone(), catalog);
        self.overlays_changed = true;
        self.changes.node_classes.insert(class.clone());
        self.stale = true;
        true
    }

    /// Marks offerings of a node class as unavailable, until the class is resolved again. The next freeze shows it.
    pub fn mark_unavailable(&mut self, class: &NodeClassKey, offerings: &[UnavailableOffering]) {
        let marked = self.marked.entry(class.clone()).or_default();
        marked.extend_from_slice(offerings);
    }

    /// Nodes stay as they are: their prices are those of their offerings, available or not.
    fn apply_marks(&mut self) {
        for (class, offerings) in std::mem::take(&mut self.marked) {
            if let Some(catalog) = self.state.catalogs.get(&class) {
                let changed = Arc::new(catalog.without_offerings(&offerings));
                self.replace_catalog(&class, changed);
            }
        }
    }

    /// Freezes the state. Until something changes, every call returns the same shared content. Cost: what changed.
    pub fn freeze(&mut self, now: Timestamp) -> Snapshot {
        self.apply_marks();
        let paid_until = self.state.paid.until();
        self.stale |= paid_until.is_some_and(|until| until <= now);
        if self.stale {
            self.apply_overlays();
            demand::resolve_buffers(self);
            requests::resolve(self);
            self.read_commitments(now);
            self.merge_changed_nodes();
            self.state.generation += 1;
            self.stale = false;
        }
        self.state.taken_at = now;
        self.set_time(now);
        self.state.clone()
    }

    /// Applies the overlays again if they, or what they apply to, changed.
    fn apply_overlays(&mut self) {
        if !std::mem::take(&mut self.overlays_changed) {
            return;
        }
        let changed = overlays::apply_overlays(&mut self.state);
        if changed.is_empty() {
            return;
        }
        // Prices of nodes come from the catalog of their NodePool; deciders evaluate node classes whose catalog changed.
        for name in changed {
            if let Some(pool) = self.state.pools.get(&name) {
                self.changes.node_classes.insert(pool.node_class_key());
            }
        }
        self.nodes.mark_all();
    }

    /// Reads the commitments again if a policy changed or one of them has ended: nodes know which may pay for them.
    fn read_commitments(&mut self, now: Timestamp) {
        let until = self.state.paid.until();
        let has_ended = until.is_some_and(|until| until <= now);
        if Arc::ptr_eq(&self.policies, &self.state.policies) && !has_ended {
            return;
        }
        self.policies = Arc::clone(&self.state.policies);
        let paid = PaidCapacities::of(&self.policies, now);
        if paid.all() != self.state.paid.all() {
            self.state.paid = Arc::new(paid);
            self.nodes.mark_all();
        }
    }

    /// Merges the nodes whose objects or pods changed.
    fn merge_changed_nodes(&mut self) {
        for key in self.nodes.take_marked() {
            self.changes.nodes.insert(key.clone());
            let Some(sources) = self.nodes.sources(&key) else {
                continue;
            };
            let claim = sources.claim();
            let claim = claim.and_then(|name| self.state.claims.get(name)).cloned();
            let node = sources.node();
            let node = node.and_then(|name| self.nodes.object(name)).cloned();
            if claim.is_none() && node.is_none() {
                self.nodes.remove(&key);
                self.state.remove_node(&key);
                continue;
            }
            let name = node.as_ref().map(|node| node.metadata.name.as_deref());
            let pods = name.map(|name| self.pods.on_node(name.unwrap_or_default()));
            let pods = pods.into_iter().flatten();
            let pods = pods.filter_map(|pod| self.state.pods.get(pod).cloned());
            let pods: Vec<Arc<Pod>> = pods.collect();
            let duplicate_nodes = sources.duplicate_nodes().cloned().collect();
            let respects = self.respect_cluster_autoscaler;
            let mut merged = merge::merge(&self.state, key, node, claim, pods, respects);
            merged.duplicate_nodes = duplicate_nodes;
            boot_taints::leave_out(self, &mut merged);
            self.state.insert_node(Arc::new(merged));
        }
    }

    /// The next snapshot is a new one although no object changed: the same objects mean something else by now.
    pub const fn outlive(&mut self) {
        self.stale = true;
        // Policies are among the surroundings.
        self.changes.cluster_objects = true;
    }

    /// Whether something changed since the last freeze.
    #[must_use]
    pub const fn is_stale(&self) -> bool {
        self.stale
    }

    /// Returns what changed since the last call. Freeze first: merged nodes count as changes.
    pub fn take_changes(&mut self) -> Changes {
        std::mem::take(&mut self.changes)
    }

    /// Whether a Node has the label of another autoscaler's NodePool.
    #[must_use]
    pub fn is_of_foreign_pool(&self, node: &k8s::Node) -> bool {
        let target = |pool: &str| ObjectRef::Pool(pool.into());
        let target = node.label(NODEPOOL).map(target);
        target.is_some_and(|target| self.state.foreign.contains_key(&target))
    }

    /// A NodeClaim of a served node class, as last applied.
    #[must_use]
    pub fn claim(&self, name: &ClaimName) -> Option<&Arc<NodeClaim>> {
        self.state.claims.get(name)
    }

    /// A pod, as last applied.
    #[must_use]
    pub fn pod(&self, key: &PodKey) -> Option<&Arc<Pod>> {
        self.state.pods.get(key)
    }

    /// A Node, as last applied.
    #[must_use]
    pub fn node(&self, name: &NodeName) -> Option<&Arc<k8s::Node>> {
        self.nodes.object(name)
    }

    /// A CapacityBuffer, as last applied.
    #[must_use]
    pub fn buffer(&self, key: &NamespacedName) -> Option<&Arc<CapacityBuffer>> {
        self.state.buffers.get(key)
    }

    /// A NodePool of a served node class, as last applied.
    #[must_use]
    pub fn pool(&self, name: &PoolName) -> Option<&Arc<NodePool>> {
        self.state.pools.get(name)
    }
}
