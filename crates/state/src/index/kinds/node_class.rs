//! Node classes of every provider.

use std::sync::Arc;

use super::Ingested;
use crate::index::Index;
use mortise_apis::names::NodeClassKey;
use mortise_apis::node_class::NodeClassObject;

impl Ingested for NodeClassObject {
    fn applied(index: &mut Index, class: Self) {
        index.changes.node_classes.insert(class.key.clone());
        Arc::make_mut(&mut index.state.node_classes).insert(class.key.clone(), class);
    }

    fn deleted(index: &mut Index, key: &NodeClassKey) {
        Arc::make_mut(&mut index.state.node_classes).remove(key);
        Arc::make_mut(&mut index.state.catalogs).remove(key);
        index.overlays_changed = true;
        index.changes.node_classes.insert(key.clone());
    }
}
