//! Pods by their node and by their UID, and the newest pod of each DaemonSet.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use foldhash::fast::FixedState;
use jiff::Timestamp;

use crate::snapshot::{HoldAnnotations, Pod, PodClasses, Snapshot};
use mortise_apis::k8s;
use mortise_apis::names::{NamespacedName, NodeName, PodKey, Uid};

/// What the index keeps of pods in addition to the snapshot.
#[derive(Debug)]
pub(super) struct PodIndex {
    classes: PodClasses,
    /// Pods count as pending before kube-scheduler has marked them unschedulable.
    ahead: bool,
    /// Never iterated, so that no order is seen.
    by_node: HashMap<NodeName, BTreeSet<PodKey>, FixedState>,
    pending: BTreeMap<Uid, PodKey>,
    /// By DaemonSet: its active pods by age.
    by_daemon_set: BTreeMap<NamespacedName, BTreeSet<(Timestamp, PodKey)>>,
}

impl PodIndex {
    /// Which annotations of Cluster Autoscaler count.
    pub(super) const fn holds(&mut self) -> &mut HoldAnnotations {
        &mut self.classes.holds
    }

    pub(super) fn new(classes: PodClasses, ahead: bool) -> Self {
        Self {
            classes,
            ahead,
            by_node: HashMap::default(),
            pending: BTreeMap::new(),
            by_daemon_set: BTreeMap::new(),
        }
    }

    /// Converts a pod of the API; its class is shared with equal pods.
    pub(super) fn convert(&mut self, object: &k8s::Pod) -> Pod {
        Pod::from_api(object, &mut self.classes)
    }

    /// The classes that pods share.
    pub(super) const fn classes(&mut self) -> &mut PodClasses {
        &mut self.classes
    }

    /// Adds a pod to its node.
    pub(super) fn bind(&mut self, node: &NodeName, pod: &PodKey) {
        let pods = self.by_node.entry(node.clone()).or_default();
        pods.insert(pod.clone());
    }

    /// Removes a pod from its node.
    pub(super) fn unbind(&mut self, node: &NodeName, pod: &PodKey) {
        if let Some(pods) = self.by_node.get_mut(node) {
            pods.remove(pod);
            if pods.is_empty() {
                self.by_node.remove(node);
            }
        }
    }

    /// Pods bound to a node, in the order of their keys.
    pub(super) fn on_node(&self, node: &str) -> impl Iterator<Item = &PodKey> {
        self.by_node.get(node).into_iter().flatten()
    }

    /// Whether a pod is pending and could use a new node.
    pub(super) fn is_provisionable(&self, pod: &Pod) -> bool {
        pod.is_provisionable(self.ahead)
    }

    /// Adds a pending pod.
    pub(super) fn insert_pending(&mut self, pod: &Pod) {
        self.pending.insert(pod.uid.clone(), pod.key.clone());
    }

    /// Removes a pending pod.
    pub(super) fn remove_pending(&mut self, pod: &Uid) {
        self.pending.remove(pod);
    }

    /// Key of a pending pod.
    pub(super) fn pending_key(&self, pod: &str) -> Option<&PodKey> {
        self.pending.get(pod)
    }

    /// Updates the newest pod of each DaemonSet after a pod was created, changed or deleted. The pods of `state` are current.
    pub(super) fn update_daemon_pods(
        &mut self,
        state: &mut Snapshot,
        before: Option<&Pod>,
        after: Option<&Pod>,
    ) {
        let was = before.and_then(|pod| Some((daemon_set(pod)?, pod)));
        let is = after.and_then(|pod| Some((daemon_set(pod)?, pod)));
        if let Some((set, pod)) = &was {
            let all = self.by_daemon_set.entry(set.clone()).or_default();
            all.remove(&(pod.created, pod.key.clone()));
        }
        if let Some((set, pod)) = &is {
            let all = self.by_daemon_set.entry(set.clone()).or_default();
            all.insert((pod.created, pod.key.clone()));
        }
        for (set, _) in was.into_iter().chain(is) {
            self.update_newest(state, set);
        }
    }

    fn update_newest(&mut self, state: &mut Snapshot, set: NamespacedName) {
        let newest = self
            .by_daemon_set
            .get(&set)
            .and_then(|all| all.last())
            .and_then(|(_, key)| state.pods.get(key))
            .cloned();
        let known = state.daemon_pods.get(&set);
        match newest {
            Some(newest) => {
                if !known.is_some_and(|known| Arc::ptr_eq(known, &newest)) {
                    Arc::make_mut(&mut state.daemon_pods).insert(set, newest);
                }
            }
            None => {
                self.by_daemon_set.remove(&set);
                if known.is_some() {
                    Arc::make_mut(&mut state.daemon_pods).remove(&set);
                }
            }
        }
    }
}

/// The DaemonSet that an active pod belongs to.
fn daemon_set(pod: &Pod) -> Option<NamespacedName> {
    let owner = pod
        .owner
        .as_ref()
        .filter(|_| pod.is_daemon() && pod.is_active())?;
    Some(NamespacedName {
        namespace: Arc::clone(&pod.key.namespace),
        name: Arc::clone(&owner.name),
    })
}

/// Whether a change of a pod on a node is a pod event of the node: a pod that is no DaemonSet pod was bound, completed or began
/// to terminate.
pub(super) fn is_pod_event(before: Option<&Pod>, pod: &Pod) -> bool {
    if pod.is_daemon() {
        return false;
    }
    let before = before.filter(|before| before.uid == pod.uid);
    let is_bound = before.is_none_or(|before| before.node.is_none()) && !pod.is_terminal();
    let has_ended = before.is_some_and(|before| {
        pod.is_terminal() || (before.deleted.is_none() && pod.deleted.is_some())
    });
    is_bound || has_ended
}
