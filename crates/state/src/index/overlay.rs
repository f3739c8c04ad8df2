//! Catalogues with what overlays change.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Index;
use crate::catalog::Catalog;
use crate::overlays::overlaid;
use mortise_apis::names::PoolName;

impl Index {
    /// Applies the overlays anew when they, or what they are about, changed. Without overlays this costs nothing.
    pub(super) fn overlay(&mut self) {
        if !std::mem::take(&mut self.overlays_changed) {
            return;
        }
        let state = &mut self.state;
        if state.overlays.is_empty() && state.overlaid_catalogs.is_empty() {
            state.rejected_overlays = Arc::default();
            return;
        }
        let (now, rejected) = overlaid(&state.overlays, &state.pools, &state.catalogs);
        if *state.rejected_overlays != rejected {
            state.rejected_overlays = Arc::new(rejected);
        }
        let version = |of: &BTreeMap<PoolName, Arc<Catalog>>, name: &PoolName| {
            of.get(name).map(|catalog| catalog.version())
        };
        let names: BTreeSet<&PoolName> = now.keys().chain(state.overlaid_catalogs.keys()).collect();
        let changed: Vec<PoolName> = names
            .into_iter()
            .filter(|name| version(&now, name) != version(&state.overlaid_catalogs, name))
            .cloned()
            .collect();
        if changed.is_empty() {
            return;
        }
        state.overlaid_catalogs = Arc::new(now);
        // Prices of machines come from the catalogue of their pool; deciders look at classes whose catalogue changed.
        for name in changed {
            if let Some(pool) = state.pools.get(&name) {
                self.changes.node_classes.insert(pool.node_class_key());
            }
        }
        self.dirty.extend(self.machines.keys().cloned());
    }
}
