//! Zones that traffic was shifted away from: their instances are left as they are.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Ids of shifted zones, such as `use1-az1`. Whoever watches the shifts replaces them.
#[derive(Debug, Default)]
pub(crate) struct ShiftedZones {
    ids: Mutex<Arc<BTreeSet<String>>>,
}

impl ShiftedZones {
    /// Whether a zone is shifted; a zone without known id is not.
    pub(crate) fn contains(&self, zone_id: Option<&str>) -> bool {
        zone_id.is_some_and(|id| self.lock().contains(id))
    }

    /// These zones are shifted, and no others.
    pub(crate) fn replace(&self, ids: BTreeSet<String>) {
        *self.lock() = Arc::new(ids);
    }

    fn lock(&self) -> MutexGuard<'_, Arc<BTreeSet<String>>> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
