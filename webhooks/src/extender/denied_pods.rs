//! Pods for which every node was denied, and the moment from which one no longer would be.
//!
//! kube-scheduler asks again about such a pod after an event only. What makes our answer change is often none: a fence is
//! lifted, a promise runs out. So somebody has to make one: an annotation on a node wakes every pod that an extender denied.

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
    asker: IncomingPod,
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
    pub fn hold(&self, asker: &IncomingPod, names: &[&str], now: Timestamp) {
        let nodes = names.iter().take(MOST_NODES);
        let held = DeniedPod {
            asker: asker.clone(),
            nodes: nodes.map(|name| Box::from(*name)).collect(),
            at: now,
        };
        let mut inner = self.lock();
        inner.insert(asker.pod.uid.clone(), held);
        if inner.len() > MOST_PODS {
            let oldest = inner.iter().min_by_key(|(_, held)| held.at);
            if let Some(uid) = oldest.map(|(uid, _)| uid.clone()) {
                inner.remove(&uid);
            }
        }
    }

    /// The pod was not denied everything.
    pub fn passed(&self, uid: &Uid) {
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
    /// forgotten: they will be asked about again. Cost: the pods held times their nodes.
    #[must_use]
    pub fn allowed_node(&self, snapshot: &Snapshot, now: Timestamp) -> Option<NodeName> {
        // The verdicts look at other parts of the memory, never at this one, but the scheduler should not wait for us.
        let all: Vec<(Uid, DeniedPod)> = {
            let inner = self.held.lock();
            inner
                .iter()
                .map(|(uid, held)| (uid.clone(), held.clone()))
                .collect()
        };
        let mut freed = None;
        for (uid, held) in all {
            let pod = snapshot.pods.get(&held.asker.pod.key);
            let waits = pod.is_some_and(|pod| pod.uid == uid && pod.node.is_none());
            let verdicts = NodeFilter::new(snapshot, self, &held.asker, now);
            let allowed = |name: &&str| {
                snapshot.node(name).is_some()
                    && !matches!(verdicts.on(name), FilterVerdict::Denied(_))
            };
            let node = if waits {
                held.nodes.iter().map(AsRef::as_ref).find(allowed)
            } else {
                None
            };
            if !waits || node.is_some() {
                let mut inner = self.held.lock();
                // Unless it was denied again since.
                if inner.get(&uid).is_some_and(|newest| newest.at == held.at) {
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
