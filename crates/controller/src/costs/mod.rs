//! What nodes cost, by NodePool, by namespace and by a label of pods: cost allocation.
//!
//! # Rule
//! A node costs the price of its offering while its NodeClaim is there. A pod is charged the largest share that it requests of any
//! resource of its node; if these shares come to more than the node, each is scaled down. What no pod requests is an account of its
//! own, so that the namespaces and this account come to what the NodePools cost, exactly.
//!
//! # Invariant
//! Amounts are prices times milliseconds, added up as integers. What changes between two readings counts from the second one on, so an
//! amount is wrong by ten seconds of what changed at most.
//!
//! # Cost
//! A reading compares one pointer per node, and divides the price of the nodes that changed.

mod account;
mod allocation;
mod csv;

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use jiff::Timestamp;
use mortise_apis::values::since;
use mortise_state::snapshot::Snapshot;

pub(crate) use account::CostAccount;
use allocation::Allocation;
pub(crate) use allocation::{Amounts, CostOfAccount, HourlyCosts};

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

pub(crate) use csv::csv;

#[cfg(test)]
mod tests;
