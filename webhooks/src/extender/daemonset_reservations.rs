//! What DaemonSet pods will take of young nodes.
//!
//! A node that becomes ready is offered to kube-scheduler before its DaemonSet pods are made for it. Whoever is faster
//! takes the room, and a DaemonSet pod then waits, or preempts another pod. So that room counts as taken until the pods
//! are there, for the first quarter of an hour: a DaemonSet pod that has not come by then has a reason of its own.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use foldhash::fast::FixedState;
use jiff::Timestamp;
use mortise_apis::k8s::DaemonSet;
use mortise_apis::names::NamespacedName;
use mortise_apis::resources::Resources;
use mortise_apis::values::since;
use mortise_planning::scheduling::DaemonSetPods;
use mortise_state::snapshot::{Pod, Snapshot, StateNode};

/// Until this age of its claim a node is young.
const RECENTLY_CREATED_MS: i64 = 15 * 60_000;
/// Nodes that are remembered; beyond, all are forgotten, which costs a look at each again.
const MOST: usize = 8_192;

type Sets = Arc<BTreeMap<NamespacedName, Arc<DaemonSet>>>;
type Pods = Arc<BTreeMap<NamespacedName, Arc<Pod>>>;

/// What was found out about nodes, as long as neither they nor the DaemonSets change.
#[derive(Debug, Default)]
pub struct DaemonSetReservations {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    source: Option<(Sets, Pods, DaemonSetPods)>,
    missing: HashMap<Box<str>, (Arc<StateNode>, Resources), FixedState>,
}

impl DaemonSetReservations {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What DaemonSet pods that are not there yet will take of a node; `None` when it is not young, or nothing is missing.
    #[must_use]
    pub fn missing_on(
        &self,
        snapshot: &Snapshot,
        name: &str,
        node: &Arc<StateNode>,
        now: Timestamp,
    ) -> Option<Resources> {
        if snapshot.daemon_sets.is_empty() || !is_recently_created(node, now) {
            return None;
        }
        let mut inner = self.lock();
        let missing = inner.compute_missing(snapshot, name, node);
        (!missing.is_zero()).then_some(missing)
    }
}

impl Inner {
    fn compute_missing(
        &mut self,
        snapshot: &Snapshot,
        name: &str,
        node: &Arc<StateNode>,
    ) -> Resources {
        let current = self.source.as_ref().is_some_and(|(sets, pods, _)| {
            Arc::ptr_eq(sets, &snapshot.daemon_sets) && Arc::ptr_eq(pods, &snapshot.daemon_pods)
        });
        if !current {
            self.source = Some((
                Arc::clone(&snapshot.daemon_sets),
                Arc::clone(&snapshot.daemon_pods),
                DaemonSetPods::from_snapshot(snapshot),
            ));
            self.missing.clear();
        }
        if let Some((known, missing)) = self.missing.get(name)
            && Arc::ptr_eq(known, node)
        {
            return missing.clone();
        }
        let missing = self
            .source
            .as_ref()
            .map_or_else(Resources::zero, |(_, _, daemons)| daemons.missing_on(node));
        if self.missing.len() >= MOST {
            self.missing.clear();
        }
        self.missing
            .insert(name.into(), (Arc::clone(node), missing.clone()));
        missing
    }
}

fn is_recently_created(node: &StateNode, now: Timestamp) -> bool {
    node.claim.is_some()
        && node
            .created()
            .is_some_and(|created| since(now, created) < RECENTLY_CREATED_MS)
}
