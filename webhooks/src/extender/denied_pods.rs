//! Pods for which every node was denied, and the moment from which one no longer would be.
//!
//! kube-scheduler asks again about such a pod after an event only. What makes our answer change is often none: a fence is
//! lifted, a nomination runs out. So mortise makes one: an annotation on a node wakes every pod that an extender
//! denied.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use mortise_apis::names::{NodeName, Uid};
use mortise_state::snapshot::Snapshot;

use super::node_filter::{FilterVerdict, NodeFilter};
use super::{ExtenderState, IncomingPod};

/// Pods that are remembered. Beyond, the oldest is forgotten: kube-scheduler tries everything again after five minutes.
const MOST_PODS: usize = 2_000;
/// Nodes that are remembered for a pod: with fewer to look at, one that is freed may be missed, for the same five minutes.
const MOST_NODES: usize = 64;

#[derive(Clone, Debug)]
struct DeniedPod {
    incoming: IncomingPod,
    nodes: Arc<[Box<str>]>,
    at: Timestamp,
}

/// Pods that wait for us.
#[derive(Debug, Default)]
pub struct DeniedPods {
    inner: Mutex<BTreeMap<Uid, DeniedPod>>,
}

impl DeniedPods {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Uid, DeniedPod>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers that the pod was denied all of these nodes.
    pub fn record_denied(&self, incoming: &IncomingPod, names: &[&str], now: Timestamp) {
        let nodes = names.iter().take(MOST_NODES);
        let denied = DeniedPod {
            incoming: incoming.clone(),
            nodes: nodes.map(|name| Box::from(*name)).collect(),
            at: now,
        };
        let mut inner = self.lock();
        inner.insert(incoming.pod.uid.clone(), denied);
        if inner.len() > MOST_PODS {
            let oldest = inner.iter().min_by_key(|(_, denied)| denied.at);
            if let Some(uid) = oldest.map(|(uid, _)| uid.clone()) {
                inner.remove(&uid);
            }
        }
    }

    /// The pod was not denied everything.
    pub fn forget(&self, uid: &Uid) {
        let mut inner = self.lock();
        if !inner.is_empty() {
            inner.remove(uid);
        }
    }

    /// How many pods wait for us.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether none does.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl ExtenderState {
    /// A node that is no longer denied to a pod that was denied everything, if there is any. Pods of which this is true are
    /// forgotten: they will be asked about again. Cost: the pods denied times their nodes.
    #[must_use]
    pub fn allowed_node(&self, snapshot: &Snapshot, now: Timestamp) -> Option<NodeName> {
        // The node_filter look at other parts of the state, never at this one, but the scheduler should not wait for us.
        let all: Vec<(Uid, DeniedPod)> = {
            let inner = self.denied_pods.lock();
            inner
                .iter()
                .map(|(uid, denied)| (uid.clone(), denied.clone()))
                .collect()
        };
        let mut freed = None;
        for (uid, denied) in all {
            let pod = snapshot.pods.get(&denied.incoming.pod.key);
            let waits = pod.is_some_and(|pod| pod.uid == uid && pod.node.is_none());
            let node_filter = NodeFilter::new(snapshot, self, &denied.incoming, now);
            let allowed = |name: &&str| {
                snapshot.node(name).is_some()
                    && !matches!(node_filter.decide(name), FilterVerdict::Denied(_))
            };
            let node = if waits {
                denied.nodes.iter().map(AsRef::as_ref).find(allowed)
            } else {
                None
            };
            if !waits || node.is_some() {
                let mut inner = self.denied_pods.lock();
                // Unless it was denied again since.
                if inner.get(&uid).is_some_and(|newest| newest.at == denied.at) {
                    inner.remove(&uid);
                }
            }
            if freed.is_none() {
                freed = node.map(NodeName::from);
            }
        }
        freed
    }
}
