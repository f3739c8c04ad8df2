//! The one writable picture of the cluster: objects in, snapshots out.
//!
//! One owner applies [`ObjectEvent`] and freezes; readers hold frozen [`Snapshot`]s. The index is pure, so the simulator feeds
//! the same one as the watches do. Applying costs the logarithm of what exists; freezing costs what changed.

mod changes;
mod devices;
mod foreign;
mod listed;
mod node;
mod nominations;
mod overlay;
mod pod_labels;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

pub use changes::Changes;

use crate::catalog::Catalog;
use crate::ledger::LedgerOp;
use crate::resource_kinds::{EventSource, Object, ObjectEvent, ObjectKey, ObjectKind};
use crate::snapshot::{NodeKey, Pod, PodClasses, Snapshot};
use mortise_apis::k8s;
use mortise_apis::labels::WellKnown;
use mortise_apis::names::{
    ClaimName, NamespacedName, NodeClassKey, NodeName, PodKey, PoolName, Uid,
};
use mortise_cloudprovider::UnavailableOffering;

/// The writable picture.
#[derive(Debug)]
pub struct Index {
    state: Snapshot,
    classes: PodClasses,
    versions: BTreeMap<ObjectKey, u64>,
    deleted: BTreeMap<ObjectKey, u64>,
    deletion_order: std::collections::VecDeque<(ObjectKey, u64)>,
    /// The version of the newest list of each kind.
    lists: BTreeMap<ObjectKind, u64>,
    nodes: BTreeMap<NodeName, Arc<k8s::Node>>,
    node_key_of: BTreeMap<NodeName, NodeKey>,
    claim_key_of: BTreeMap<ClaimName, NodeKey>,
    machines: BTreeMap<NodeKey, node::NodeSources>,
    pods_of: BTreeMap<NodeName, BTreeSet<PodKey>>,
    /// By DaemonSet: its active pods by age.
    daemon_pods_of: BTreeMap<NamespacedName, BTreeSet<(Timestamp, PodKey)>>,
    pending_keys: BTreeMap<Uid, PodKey>,
    /// Pods that wait and whose promise on this claim was ended.
    over: BTreeMap<Uid, ClaimName>,
    ends: nominations::PromiseEnds,
    /// The newest time that was told.
    now: Timestamp,
    ahead: bool,
    dirty: BTreeSet<NodeKey>,
    /// Overlays, or what they are about, changed.
    overlays_changed: bool,
    changes: Changes,
    stale: bool,
}

impl Index {
    /// An empty index. `ahead`: pods count as pending before kube-scheduler has marked them unschedulable.
    #[must_use]
    pub fn new(well_known: WellKnown, ahead: bool, now: Timestamp) -> Self {
        let state = Snapshot::unseen(well_known, now);
        Self {
            state,
            classes: PodClasses::default(),
            versions: BTreeMap::new(),
            deleted: BTreeMap::new(),
            deletion_order: std::collections::VecDeque::new(),
            lists: BTreeMap::new(),
            nodes: BTreeMap::new(),
            node_key_of: BTreeMap::new(),
            claim_key_of: BTreeMap::new(),
            machines: BTreeMap::new(),
            pods_of: BTreeMap::new(),
            daemon_pods_of: BTreeMap::new(),
            pending_keys: BTreeMap::new(),
            over: BTreeMap::new(),
            ends: nominations::PromiseEnds::default(),
            now,
            ahead,
            dirty: BTreeSet::new(),
            overlays_changed: false,
            changes: Changes::everything(),
            stale: true,
        }
    }

    /// Says that every list has been read.
    pub fn set_synced(&mut self) {
        if !self.state.synced {
            self.state.synced = true;
            self.read_all_promises();
            self.changes.everything = true;
            self.stale = true;
        }
    }

    /// Whether every list has been read.
    #[must_use]
    pub const fn is_synced(&self) -> bool {
        self.state.synced
    }

    /// Tells the time at which the next news came.
    pub fn set_time(&mut self, now: Timestamp) {
        self.now = self.now.max(now);
    }

    /// Takes news in. Returns whether anything changed.
    pub fn apply(&mut self, news: ObjectEvent) -> bool {
        let changed = match news {
            ObjectEvent::Applied(object, source) => self.applied(object, source),
            ObjectEvent::Deleted(key, version) => {
                // A watch shows the end of an object after the answer to our own write showed the next one of its name.
                let known = self.versions.get(&key).copied();
                !is_newer(known, version) && self.gone(&key, version)
            }
            ObjectEvent::Unreadable(key) => self.unreadable(key),
            ObjectEvent::Listed {
                kind,
                keys,
                version,
            } => self.listed(kind, &keys, version),
        };
        self.stale |= changed;
        changed
    }

    fn applied(&mut self, object: Object, source: EventSource) -> bool {
        let key = object.key();
        let version = object.version().unwrap_or(0);
        if let Some(known) = self.versions.get(&key)
            && version != 0
            && *known >= version
        {
            return false;
        }
        if self.has_gone(&key, version, source) {
            return false;
        }
        self.versions.insert(key.clone(), version);
        self.readable(&key);
        if self.is_foreign(&object) {
            return true;
        }
        match object {
            Object::Pod(pod) => self.pod_applied(&pod),
            Object::Node(node) => self.node_applied(*node),
            Object::Claim(claim) => self.claim_applied(*claim),
            Object::Pool(pool) => {
                let name = pool.name();
                let known = self.state.pools.get(&name);
                self.overlays_changed |=
                    known.is_none_or(|known| known.spec.template != pool.spec.template);
                Arc::make_mut(&mut self.state.pools).insert(name.clone(), Arc::new(*pool));
                self.changes.pools.insert(name);
            }
            Object::NodeClass(class) => {
                self.changes.node_classes.insert(class.key.clone());
                Arc::make_mut(&mut self.state.node_classes).insert(class.key.clone(), class);
            }
            Object::Pdb(pdb) => self.put(|state| &mut state.pdbs, &key, *pdb),
            Object::DaemonSet(set) => self.put(|state| &mut state.daemon_sets, &key, *set),
            other if self.device_object(&key, Some(&other)) => {}
            other => self.surrounding(&key, Some(other)),
        }
        true
    }

    fn put<V: Clone>(
        &mut self,
        map: impl Fn(&mut Snapshot) -> &mut Arc<BTreeMap<NamespacedName, Arc<V>>>,
        key: &ObjectKey,
        value: V,
    ) {
        if let ObjectKey::Pdb(name) | ObjectKey::DaemonSet(name) = key {
            Arc::make_mut(map(&mut self.state)).insert(name.clone(), Arc::new(value));
            self.changes.cluster_objects = true;
        }
    }

    /// Overlays, volumes, storage classes, CSI nodes, attachments, namespaces: kept as they are.
    fn surrounding(&mut self, key: &ObjectKey, object: Option<Object>) {
        let state = &mut self.state;
        match (key, object) {
            (ObjectKey::VolumeClaim(name), Some(Object::VolumeClaim(object))) => {
                drop(state.volume_claims.insert(name.clone(), Arc::new(*object)))
            }
            (ObjectKey::VolumeClaim(name), _) => drop(state.volume_claims.remove(name)),
            (ObjectKey::Volume(name), Some(Object::Volume(object))) => {
                drop(state.volumes.insert(Arc::clone(name), Arc::new(*object)))
            }
            (ObjectKey::Volume(name), _) => drop(state.volumes.remove(name)),
            (ObjectKey::StorageClass(name), Some(Object::StorageClass(object))) => {
                Arc::make_mut(&mut state.storage_classes)
                    .insert(Arc::clone(name), Arc::new(*object));
            }
            (ObjectKey::StorageClass(name), _) => {
                drop(Arc::make_mut(&mut state.storage_classes).remove(name))
            }
            (ObjectKey::CsiNode(name), Some(Object::CsiNode(object))) => {
                drop(state.csi_nodes.insert(name.clone(), Arc::new(*object)))
            }
            (ObjectKey::CsiNode(name), _) => drop(state.csi_nodes.remove(name)),
            (ObjectKey::Attachment(name), Some(Object::Attachment(object))) => drop(
                state
                    .attachments
                    .insert(Arc::clone(name), Arc::new(*object)),
            ),
            (ObjectKey::Attachment(name), _) => drop(state.attachments.remove(name)),
            (ObjectKey::Overlay(name), Some(Object::Overlay(object))) => {
                // What we write ourselves, the status, changes nothing.
                self.overlays_changed |= state.overlays.get(name).is_none_or(|known| {
                    known.spec != object.spec
                        || known.metadata.deletion_timestamp != object.metadata.deletion_timestamp
                });
                Arc::make_mut(&mut state.overlays).insert(Arc::clone(name), Arc::new(*object));
            }
            (ObjectKey::Overlay(name), _) => {
                self.overlays_changed = true;
                drop(Arc::make_mut(&mut state.overlays).remove(name));
            }
            (ObjectKey::Namespace(name), Some(Object::Namespace(object))) => {
                Arc::make_mut(&mut state.namespaces).insert(Arc::clone(name), Arc::new(*object));
            }
            (ObjectKey::Namespace(name), _) => {
                drop(Arc::make_mut(&mut state.namespaces).remove(name))
            }
            (ObjectKey::Selecting(kind, name), Some(Object::Selecting(_, object))) => {
                Arc::make_mut(&mut state.workloads).insert(*kind, name.clone(), &object);
            }
            (ObjectKey::Selecting(kind, name), _) => {
                Arc::make_mut(&mut state.workloads).remove(*kind, name);
            }
            _ => return,
        }
        self.changes.cluster_objects = true;
    }

    /// Takes an object out. `seen_at`: it was seen to be gone at this version.
    fn gone(&mut self, key: &ObjectKey, seen_at: Option<u64>) -> bool {
        let was_unreadable = self.readable(key);
        let Some(version) = self.versions.remove(key) else {
            return was_unreadable;
        };
        self.remember_deletion(key.clone(), version.max(seen_at.unwrap_or(0)));
        if self.foreign_gone(key) {
            return true;
        }
        match key {
            ObjectKey::Pod(name) => self.pod_gone(name),
            ObjectKey::Node(name) => self.node_gone(name),
            ObjectKey::Claim(name) => self.claim_gone(name),
            ObjectKey::Pool(name) => self.pool_gone(name),
            ObjectKey::NodeClass(name) => {
                Arc::make_mut(&mut self.state.node_classes).remove(name);
                Arc::make_mut(&mut self.state.catalogs).remove(name);
                self.overlays_changed = true;
                self.changes.node_classes.insert(name.clone());
            }
            ObjectKey::Pdb(name) => {
                Arc::make_mut(&mut self.state.pdbs).remove(name);
                self.changes.cluster_objects = true;
            }
            ObjectKey::DaemonSet(name) => {
                Arc::make_mut(&mut self.state.daemon_sets).remove(name);
                self.changes.cluster_objects = true;
            }
            other if self.device_object(other, None) => {}
            other => self.surrounding(other, None),
        }
        true
    }

    fn pool_gone(&mut self, name: &PoolName) {
        Arc::make_mut(&mut self.state.pools).remove(name);
        self.overlays_changed = true;
        self.changes.pools.insert(name.clone());
    }

    fn pod_applied(&mut self, object: &k8s::Pod) {
        let pod = Pod::from_api(object, &mut self.classes);
        let key = pod.key.clone();
        let before = self.state.pods.get(&key).cloned();
        if let Some(before) = &before
            && (before.uid != pod.uid || before.node != pod.node)
        {
            self.unplace(before);
        }
        let event = pod
            .node
            .as_ref()
            .filter(|_| !pod.is_daemon() && self.state.synced)
            .filter(|_| {
                let was = before.as_ref().filter(|before| before.uid == pod.uid);
                was.is_none_or(|was| was.node.is_none()) && !pod.is_terminal()
                    || was.is_some_and(|was| {
                        pod.is_terminal() || (was.deleted.is_none() && pod.deleted.is_some())
                    })
            });
        if let Some(node) = event {
            self.changes.pod_events.insert(node.clone());
        }
        if pod.node.is_some() || pod.is_terminal() {
            self.release(&pod);
        }
        self.changes.pods.insert(key.clone());
        if pod.is_terminal() {
            self.unplace(&pod);
            self.state.pods.remove(&key);
            self.not_pending(&key);
            self.recount(before.as_deref(), None);
            return;
        }
        if let Some(node) = &pod.node {
            self.pods_of
                .entry(node.clone())
                .or_default()
                .insert(key.clone());
            self.touch_node(node);
        }
        let pod = Arc::new(pod);
        if pod.is_provisionable(self.ahead) {
            let known = self.state.pending.get(&key);
            if known.is_some_and(|known| known.uid != pod.uid) {
                self.not_pending(&key);
            }
            self.pending_keys.insert(pod.uid.clone(), key.clone());
            self.state.pending.insert(key.clone(), Arc::clone(&pod));
            let said = |of: &Pod| of.refusal.clone();
            let before = before.as_deref().filter(|before| before.uid == pod.uid);
            if pod.refusal.is_some() && before.and_then(said) != pod.refusal {
                self.refused(&pod.uid);
            }
        } else {
            self.not_pending(&key);
        }
        self.state.pods.insert(key, Arc::clone(&pod));
        self.recount(before.as_deref(), Some(&pod));
    }

    fn not_pending(&mut self, key: &PodKey) {
        if let Some(pod) = self.state.pending.remove(key) {
            self.pending_keys.remove(&pod.uid);
            self.over.remove(&pod.uid);
        }
    }

    fn pod_gone(&mut self, key: &PodKey) {
        self.changes.pods.insert(key.clone());
        self.not_pending(key);
        if let Some(pod) = self.state.pods.remove(key) {
            self.unplace(&pod);
            self.release(&pod);
            self.recount(Some(&pod), None);
        }
    }

    /// A pod that is bound, over or gone no longer needs its promise.
    fn release(&mut self, pod: &Pod) {
        let Some(promise) = self.state.ledger.nomination(&pod.uid) else {
            return;
        };
        let Some(node) = &pod.node else {
            self.change_ledger(LedgerOp::Withdraw(pod.uid.clone()));
            return;
        };
        let there = self.is_at(node, &promise.place);
        Arc::make_mut(&mut self.state.ledger).bound(&pod.uid, there);
        self.changes.ledger = true;
        self.stale = true;
    }

    fn unplace(&mut self, pod: &Pod) {
        let Some(node) = &pod.node else { return };
        if let Some(pods) = self.pods_of.get_mut(node) {
            pods.remove(&pod.key);
            if pods.is_empty() {
                self.pods_of.remove(node);
            }
        }
        self.touch_node(&node.clone());
    }

    fn touch_node(&mut self, node: &NodeName) {
        if let Some(key) = self.node_key_of.get(node) {
            self.dirty.insert(key.clone());
        }
    }

    /// Sets the catalogue of a node class.
    pub fn set_catalog(&mut self, class: &NodeClassKey, catalog: Arc<Catalog>) {
        let same = self
            .state
            .catalogs
            .get(class)
            .is_some_and(|old| old.version() == catalog.version());
        if same {
            return;
        }
        Arc::make_mut(&mut self.state.catalogs).insert(class.clone(), catalog);
        self.overlays_changed = true;
        self.changes.node_classes.insert(class.clone());
        self.dirty.extend(self.machines.keys().cloned());
        self.stale = true;
    }

    /// Marks offerings as empty in the catalogue of a node class, until it is resolved again.
    pub fn mark_unavailable(&mut self, class: &NodeClassKey, offerings: &[UnavailableOffering]) {
        if let Some(catalog) = self.state.catalogs.get(class) {
            let changed = Arc::new(catalog.without(offerings));
            self.set_catalog(class, changed);
        }
    }

    /// Freezes. The same `Arc`-shared picture is returned to everyone until something changes. Cost: what changed.
    pub fn freeze(&mut self, now: Timestamp) -> Snapshot {
        if self.stale {
            self.overlay();
            self.rebuild();
            self.state.generation += 1;
            self.stale = false;
        }
        self.state.taken_at = now;
        self.set_time(now);
        self.state.clone()
    }

    /// Whether something changed since the last freeze.
    #[must_use]
    pub const fn is_stale(&self) -> bool {
        self.stale
    }

    /// Takes what changed since the last call. Freeze first: rebuilt machines count as changes.
    pub fn take_changes(&mut self) -> Changes {
        std::mem::take(&mut self.changes)
    }

    /// A claim of ours, as last heard of.
    #[must_use]
    pub fn claim(
        &self,
        name: &ClaimName,
    ) -> Option<&Arc<mortise_apis::karpenter::nodeclaim::NodeClaim>> {
        self.state.claims.get(name)
    }

    /// A pod, as last heard of.
    #[must_use]
    pub fn pod(&self, key: &PodKey) -> Option<&Arc<Pod>> {
        self.state.pods.get(key)
    }

    /// A Node, as last heard of.
    #[must_use]
    pub fn node(&self, name: &NodeName) -> Option<&Arc<k8s::Node>> {
        self.nodes.get(name)
    }

    /// Pools, by name.
    #[must_use]
    pub fn pool(
        &self,
        name: &PoolName,
    ) -> Option<&Arc<mortise_apis::karpenter::nodepool::NodePool>> {
        self.state.pools.get(name)
    }
}

/// Whether what is known is newer than what is said. What has no version is as good as any other.
fn is_newer(known: Option<u64>, than: Option<u64>) -> bool {
    matches!((known, than), (Some(known), Some(than)) if known > than)
}
