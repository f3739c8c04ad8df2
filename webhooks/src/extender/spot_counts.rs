//! How many pods of a workload are on spot capacity, and how many are not.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use mortise_apis::labels;
use mortise_apis::names::Uid;
use mortise_state::snapshot::{Pod, Snapshot};

/// Workloads whose numbers are kept for a generation of the snapshot.
const MOST: usize = 256;

/// Counts, valid for one generation: a burst of one workload is counted once for each snapshot, not for each pod.
#[derive(Debug, Default)]
pub struct SpotCounts {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    generation: u64,
    /// By owner: pods on spot capacity, and the others.
    counts: BTreeMap<Uid, (i64, i64)>,
}

impl SpotCounts {
    /// Pods of the same owner on spot capacity, and those that are not. Cost: every pod of the cluster, at most once for a
    /// workload and generation.
    #[must_use]
    pub fn count_for_owner(&self, snapshot: &Snapshot, pod: &Pod) -> (i64, i64) {
        let Some(owner) = &pod.owner else {
            return (0, 0);
        };
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.generation != snapshot.generation || inner.counts.len() > MOST {
            *inner = Inner {
                generation: snapshot.generation,
                counts: BTreeMap::new(),
            };
        }
        if let Some(known) = inner.counts.get(&owner.uid) {
            return *known;
        }
        let mut counts = (0, 0);
        for node in snapshot.nodes.values() {
            let own = node.pods.iter().filter(|other| {
                other.is_active() && other.owner.as_ref().is_some_and(|of| of.uid == owner.uid)
            });
            let own = i64::try_from(own.count()).unwrap_or(i64::MAX);
            if node.label(labels::CAPACITY_TYPE) == Some(labels::CAPACITY_TYPE_SPOT) {
                counts.0 += own;
            } else {
                counts.1 += own;
            }
        }
        inner.counts.insert(owner.uid.clone(), counts);
        counts
    }
}
