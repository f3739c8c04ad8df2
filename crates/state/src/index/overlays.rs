//! Catalogs with NodeOverlays applied.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::catalog::Catalog;
use crate::overlays::overlaid_catalogs;
use crate::snapshot::Snapshot;
use mortise_apis::names::PoolName;

/// Applies the overlays again. Returns the NodePools whose catalog changed. Without overlays this costs nothing.
pub(super) fn apply_overlays(state: &mut Snapshot) -> Vec<PoolName> {
    if state.overlays.is_empty() && state.overlaid_catalogs.is_empty() {
        state.rejected_overlays = Arc::default();
        return Vec::new();
    }
    let (now, rejected) = overlaid_catalogs(&state.overlays, &state.pools, &state.catalogs);
    if *state.rejected_overlays != rejected {
        state.rejected_overlays = Arc::new(rejected);
    }
    let version = |catalogs: &BTreeMap<PoolName, Arc<Catalog>>, name: &PoolName| {
        catalogs.get(name).map(|catalog| catalog.version())
    };
    let names: BTreeSet<&PoolName> = now.keys().chain(state.overlaid_catalogs.keys()).collect();
    let changed: Vec<PoolName> = names
        .into_iter()
        .filter(|name| version(&now, name) != version(&state.overlaid_catalogs, name))
        .cloned()
        .collect();
    if !changed.is_empty() {
        state.overlaid_catalogs = Arc::new(now);
    }
    changed
}
