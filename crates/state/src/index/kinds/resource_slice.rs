//! ResourceSlices, in which drivers publish the devices of nodes.

use std::sync::Arc;

use super::Ingested;
use crate::index::Index;
use crate::resource_kinds::Watched as _;
use mortise_apis::k8s::ResourceSlice;

impl Ingested for ResourceSlice {
    fn applied(index: &mut Index, slice: Self) {
        let slice = Arc::new(slice);
        let slices = &mut index.state.devices.slices;
        let before = slices.insert(slice.key(), Arc::clone(&slice));
        record_change(index, before.as_deref());
        record_change(index, Some(&slice));
    }

    fn deleted(index: &mut Index, name: &Arc<str>) {
        let before = index.state.devices.slices.remove(name);
        record_change(index, before.as_deref());
    }
}

/// A node is initialized once its drivers have published its devices: it is evaluated again.
fn record_change(index: &mut Index, slice: Option<&ResourceSlice>) {
    index.changes.cluster_objects = true;
    let node = slice.and_then(|slice| slice.spec.node_name.as_deref());
    let key = node.and_then(|node| index.nodes.key(node));
    index.changes.nodes.extend(key.cloned());
}
