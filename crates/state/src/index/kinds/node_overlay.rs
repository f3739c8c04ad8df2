//! NodeOverlays.

use std::sync::Arc;

use super::Ingested;
use crate::index::Index;
use mortise_apis::karpenter::nodeoverlay::NodeOverlay;

impl Ingested for NodeOverlay {
    fn applied(index: &mut Index, overlay: Self) {
        let name: Arc<str> = overlay.metadata.name.as_deref().unwrap_or_default().into();
        // Own writes, to the status, do not change catalogs.
        let is_changed = index.state.overlays.get(&name).is_none_or(|known| {
            known.spec != overlay.spec
                || known.metadata.deletion_timestamp != overlay.metadata.deletion_timestamp
        });
        index.overlays_changed |= is_changed;
        Arc::make_mut(&mut index.state.overlays).insert(name, Arc::new(overlay));
        index.changes.cluster_objects = true;
    }

    fn deleted(index: &mut Index, name: &Arc<str>) {
        Arc::make_mut(&mut index.state.overlays).remove(name);
        index.overlays_changed = true;
        index.changes.cluster_objects = true;
    }
}
