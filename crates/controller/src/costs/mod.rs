//! Cost allocation of this process: its accounts, read from the snapshots that the engine publishes.
//!
//! # Invariant
//! Nodes are read every ten seconds, so an amount is wrong by ten seconds of what changed at most.

mod csv;

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use jiff::Timestamp;
use mortise_apis::values::since;
use mortise_state::costs::{Allocation, CostOfAccount, HourlyCosts};
use mortise_state::snapshot::Snapshot;

pub(crate) use csv::csv;

/// Time in milliseconds between two readings of the nodes.
const READ_MS: i64 = 10_000;

/// The accounts, followed from snapshot to snapshot.
#[derive(Debug, Default)]
pub(crate) struct Costs {
    label: OnceLock<Arc<str>>,
    allocation: Mutex<Allocation>,
}

impl Costs {
    /// Sets the key of the label of pods by whose values costs are divided. The first call wins.
    pub(crate) fn set_label(&self, key: Arc<str>) {
        self.label.get_or_init(|| key);
    }

    /// The label.
    pub(crate) fn label(&self) -> Option<&Arc<str>> {
        self.label.get()
    }

    /// Reads the nodes, if the last time is long enough ago. `is_leading`: counters of metrics go on.
    pub(crate) fn follow(&self, snapshot: &Snapshot, now: Timestamp, is_leading: bool) {
        let mut allocation = self.lock();
        if since(now, allocation.read_at()) >= READ_MS {
            allocation.read(snapshot, now, (is_leading, self.label.get()));
        }
    }

    /// The accounts now.
    pub(crate) fn now(
        &self,
        snapshot: &Snapshot,
        now: Timestamp,
        is_leading: bool,
    ) -> Vec<CostOfAccount> {
        let mut allocation = self.lock();
        allocation.read(snapshot, now, (is_leading, self.label.get()));
        allocation.accounts()
    }

    /// The hours that are over, the first of them first.
    pub(crate) fn hours(&self) -> Vec<Arc<HourlyCosts>> {
        self.lock().hours().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Allocation> {
        self.allocation
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
