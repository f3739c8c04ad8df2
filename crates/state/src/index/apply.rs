//! Applies object events to the index.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Index, cluster_objects, devices, foreign, pods};
use crate::resource_kinds::{EventSource, Object, ObjectEvent, ObjectKey, ObjectKind};
use crate::snapshot::Pod;
use mortise_apis::k8s;
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::karpenter::nodepool::NodePool;
use mortise_apis::names::{ClaimName, NodeName, ObjectRef, PodKey, PoolName};

impl Index {
    /// Applies an event. Returns whether anything changed.
    pub fn apply(&mut self, event: ObjectEvent) -> bool {
        let changed = match event {
            ObjectEvent::Applied(object, source) => self.apply_object(object, source),
            // A watch shows a deletion after the response to an own write showed the next object of the same name.
            ObjectEvent::Deleted(key, version) => {
                !self.versions.is_newer_than(&key, version) && self.delete_object(&key, version)
            }
            ObjectEvent::Unreadable(key) => self.insert_unreadable(key),
            ObjectEvent::Listed {
                kind,
                keys,
                version,
            } => self.apply_list(kind, &keys, version),
        };
        self.stale |= changed;
        changed
    }

    fn apply_object(&mut self, object: Object, source: EventSource) -> bool {
        let key = object.key();
        let version = object.version().unwrap_or(0);
        if !self.versions.record(&key, version, source) {
            return false;
        }
        self.remove_unreadable(&key);
        if self.apply_foreign(&object) {
            return true;
        }
        match object {
            Object::Pod(pod) => self.apply_pod(&pod),
            Object::Node(node) => self.nodes.insert_node(*node),
            Object::Claim(claim) => self.apply_claim(*claim),
            Object::Pool(pool) => self.apply_pool(*pool),
            Object::NodeClass(class) => {
                self.changes.node_classes.insert(class.key.clone());
                Arc::make_mut(&mut self.state.node_classes).insert(class.key.clone(), class);
            }
            other => self.store_other(&key, Some(other)),
        }
        true
    }

    /// Removes an object. `seen_at`: the version at which it was seen deleted.
    fn delete_object(&mut self, key: &ObjectKey, seen_at: Option<u64>) -> bool {
        let was_unreadable = self.remove_unreadable(key);
        if !self.versions.record_deletion(key, seen_at) {
            return was_unreadable;
        }
        if foreign::remove_key(&mut self.state, key) {
            return true;
        }
        match key {
            ObjectKey::Pod(name) => self.delete_pod(name),
            ObjectKey::Node(name) => {
                self.nodes.remove_node(name);
                self.state.named.remove(name);
            }
            ObjectKey::Claim(name) => self.delete_claim(name),
            ObjectKey::Pool(name) => self.delete_pool(name),
            ObjectKey::NodeClass(name) => {
                Arc::make_mut(&mut self.state.node_classes).remove(name);
                Arc::make_mut(&mut self.state.catalogs).remove(name);
                self.overlays_changed = true;
                self.changes.node_classes.insert(name.clone());
            }
            other => self.store_other(other, None),
        }
        true
    }

    fn apply_list(
        &mut self,
        kind: ObjectKind,
        keys: &BTreeSet<ObjectKey>,
        version: Option<u64>,
    ) -> bool {
        let mut changed = false;
        for key in self.missing(&kind, keys, version) {
            changed |= self.delete_object(&key, version);
        }
        let unreadable = self.state.unreadable.iter();
        let omitted = unreadable.filter(|key| key.kind() == kind && !keys.contains(key));
        let omitted: Vec<ObjectKey> = omitted.cloned().collect();
        for key in omitted {
            changed |= self.remove_unreadable(&key);
        }
        if let Some(version) = version {
            self.versions.record_list(kind, version);
        }
        changed
    }

    /// Records that an object cannot be parsed.
    fn insert_unreadable(&mut self, key: ObjectKey) -> bool {
        let is_new = !self.state.unreadable.contains(&key);
        if is_new {
            Arc::make_mut(&mut self.state.unreadable).insert(key);
        }
        is_new
    }

    /// Records that an object can be parsed, or was deleted. Returns whether it could not be parsed before.
    fn remove_unreadable(&mut self, key: &ObjectKey) -> bool {
        self.state.unreadable.contains(key) && Arc::make_mut(&mut self.state.unreadable).remove(key)
    }

    /// Records an object if it is another autoscaler's. Returns whether it is.
    fn apply_foreign(&mut self, object: &Object) -> bool {
        let Some((target, class)) = foreign::class_of(object) else {
            return false;
        };
        if self.state.served.covers(&class) {
            foreign::remove(&mut self.state, &target);
            return false;
        }
        // References are immutable, but an object may have been replaced by one of the same name.
        match &target {
            ObjectRef::Claim(name) if self.state.claims.contains(name) => self.delete_claim(name),
            ObjectRef::Pool(name) if self.state.pools.contains_key(name) => self.delete_pool(name),
            _ => {}
        }
        foreign::insert(&mut self.state, target, class);
        true
    }

    /// Stores or removes an object that the snapshot has as it is.
    fn store_other(&mut self, key: &ObjectKey, object: Option<Object>) {
        if let Some(nodes) = devices::store(&mut self.state.devices, key, object.as_ref()) {
            self.changes.cluster_objects = true;
            // A node is initialized once its drivers have published its devices: it is evaluated again.
            let keys = nodes
                .iter()
                .flatten()
                .filter_map(|node| self.nodes.key(node));
            self.changes.nodes.extend(keys.cloned());
            return;
        }
        self.overlays_changed |=
            cluster_objects::changes_overlays(&self.state, key, object.as_ref());
        if cluster_objects::store(&mut self.state, key, object) {
            self.changes.cluster_objects = true;
        }
    }

    fn apply_pool(&mut self, pool: NodePool) {
        let name = pool.name();
        let known = self.state.pools.get(&name);
        self.overlays_changed |=
            known.is_none_or(|known| known.spec.template != pool.spec.template);
        Arc::make_mut(&mut self.state.pools).insert(name.clone(), Arc::new(pool));
        self.changes.pools.insert(name);
    }

    fn delete_pool(&mut self, name: &PoolName) {
        Arc::make_mut(&mut self.state.pools).remove(name);
        self.overlays_changed = true;
        self.changes.pools.insert(name.clone());
    }

    fn apply_claim(&mut self, claim: NodeClaim) {
        let name = claim.name();
        self.nodes.insert_claim(&claim);
        self.restore_fence(&claim);
        self.restore_nominations(&claim);
        self.shorten_nominations_when_ready(&claim);
        self.restore_expected_claim(&claim);
        self.changes.claims.insert(name.clone());
        self.state.claims.insert(name, Arc::new(claim));
    }

    fn delete_claim(&mut self, name: &ClaimName) {
        self.state.claims.remove(name);
        self.changes.claims.insert(name.clone());
        self.nodes.remove_claim(name);
        Arc::make_mut(&mut self.state.ledger).remove_claim(name);
        self.changes.ledger = true;
    }

    fn apply_pod(&mut self, object: &k8s::Pod) {
        let pod = self.pods.convert(object);
        let key = pod.key.clone();
        let before = self.state.pods.get(&key).cloned();
        if let Some(before) = &before
            && (before.uid != pod.uid || before.node != pod.node)
        {
            self.unbind(before);
        }
        if let Some(node) = &pod.node
            && self.state.synced
            && pods::is_pod_event(before.as_deref(), &pod)
        {
            self.changes.pod_events.insert(node.clone());
        }
        if pod.node.is_some() || pod.is_terminal() {
            self.end_nomination(&pod);
        }
        self.changes.pods.insert(key.clone());
        if pod.is_terminal() {
            self.unbind(&pod);
            self.state.pods.remove(&key);
            self.remove_pending(&key);
            self.update_pod_counts(before.as_deref(), None);
            return;
        }
        if let Some(node) = &pod.node {
            self.pods.bind(node, &key);
            self.nodes.mark(node);
        }
        let pod = Arc::new(pod);
        if self.pods.is_provisionable(&pod) {
            self.apply_pending(before.as_deref(), &pod);
        } else {
            self.remove_pending(&key);
        }
        self.state.pods.insert(key, Arc::clone(&pod));
        self.update_pod_counts(before.as_deref(), Some(&pod));
    }

    fn apply_pending(&mut self, before: Option<&Pod>, pod: &Arc<Pod>) {
        let known = self.state.pending.get(&pod.key);
        if known.is_some_and(|known| known.uid != pod.uid) {
            self.remove_pending(&pod.key);
        }
        self.pods.insert_pending(pod);
        self.state.pending.insert(pod.key.clone(), Arc::clone(pod));
        let before = before.filter(|before| before.uid == pod.uid);
        let last_refusal = before.and_then(|before| before.refusal.as_ref());
        if pod.refusal.is_some() && last_refusal != pod.refusal.as_ref() {
            self.shorten_refused_nomination(&pod.uid);
        }
    }

    fn delete_pod(&mut self, key: &PodKey) {
        self.changes.pods.insert(key.clone());
        self.remove_pending(key);
        if let Some(pod) = self.state.pods.remove(key) {
            self.unbind(&pod);
            self.end_nomination(&pod);
            self.update_pod_counts(Some(&pod), None);
        }
    }

    fn remove_pending(&mut self, key: &PodKey) {
        if let Some(pod) = self.state.pending.remove(key) {
            self.pods.remove_pending(&pod.uid);
            self.nominations.forget(&pod.uid);
        }
    }

    fn unbind(&mut self, pod: &Pod) {
        let node: Option<&NodeName> = pod.node.as_ref();
        if let Some(node) = node {
            self.pods.unbind(node, &pod.key);
            self.nodes.mark(node);
        }
    }

    /// Updates what is counted pod by pod.
    fn update_pod_counts(&mut self, before: Option<&Pod>, after: Option<&Pod>) {
        self.state.pod_labels.update(before, after);
        self.pods.update_daemon_pods(&mut self.state, before, after);
    }
}
