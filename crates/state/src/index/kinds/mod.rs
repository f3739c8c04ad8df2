//! What the index does with an object of each kind: generated from the table of watched kinds, and one file for each kind that
//! is more than stored.

mod capacity_buffer;
mod node;
mod node_claim;
mod node_class;
mod node_overlay;
mod node_pool;
pub(super) mod pod;
mod provisioning_request;
mod resource_slice;
mod workloads;

use std::collections::BTreeMap;
use std::hash::Hash;
use std::sync::Arc;

use super::Index;
use crate::resource_kinds::table::watched_kinds;
use crate::resource_kinds::{Object, ObjectKey, Watched};
use crate::sharded_map::ShardedMap;
use mortise_apis::k8s;
use mortise_apis::karpenter::capacitybuffer::CapacityBuffer;
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::karpenter::nodeoverlay::NodeOverlay;
use mortise_apis::karpenter::nodepool::NodePool;
use mortise_apis::node_class::NodeClassObject;

/// A kind whose objects the index evaluates, in addition to or instead of storing them.
pub(super) trait Ingested: Watched {
    /// The object exists, with this content, which is newer than the known one.
    fn applied(index: &mut Index, object: Self);

    /// A known object was deleted.
    fn deleted(index: &mut Index, key: &Self::Key);
}

/// A map of the snapshot with objects as they are.
trait ObjectMap<K, V> {
    fn store(&mut self, key: K, object: Arc<V>);
    fn forget(&mut self, key: &K);
}

impl<K: Clone + Ord, V> ObjectMap<K, V> for Arc<BTreeMap<K, Arc<V>>> {
    fn store(&mut self, key: K, object: Arc<V>) {
        Self::make_mut(self).insert(key, object);
    }

    fn forget(&mut self, key: &K) {
        Self::make_mut(self).remove(key);
    }
}

impl<K: Clone + Ord + Hash, V> ObjectMap<K, V> for ShardedMap<K, V> {
    fn store(&mut self, key: K, object: Arc<V>) {
        self.insert(key, object);
    }

    fn forget(&mut self, key: &K) {
        self.remove(key);
    }
}

macro_rules! apply_stored {
    ($index:ident, $object:ident, $type:ty, ingested) => {
        <$type as Ingested>::applied($index, *$object)
    };
    ($index:ident, $object:ident, $type:ty, as_is($($field:ident).+)) => {{
        $index.state.$($field).+.store(Watched::key(&*$object), Arc::new(*$object));
        $index.changes.cluster_objects = true;
    }};
}

macro_rules! delete_stored {
    ($index:ident, $key:ident, $type:ty, ingested) => {
        <$type as Ingested>::deleted($index, $key)
    };
    ($index:ident, $key:ident, $type:ty, as_is($($field:ident).+)) => {{
        $index.state.$($field).+.forget($key);
        $index.changes.cluster_objects = true;
    }};
}

macro_rules! define_dispatch {
    ($(
        $name:ident $({ $($parameter:ident),* })?:
        $type:ty, $key:ty, $condition:ident, $storage:ident $(($($field:ident).+))?;
    )*) => {
        /// Takes a new or changed object in.
        pub(super) fn apply(index: &mut Index, object: Object) {
            match object {
                $(Object::$name(object) => {
                    apply_stored!(index, object, $type, $storage $(($($field).+))?);
                })*
            }
        }

        /// Takes the deletion of a known object in.
        pub(super) fn delete(index: &mut Index, key: &ObjectKey) {
            match key {
                $(ObjectKey::$name(key) => {
                    delete_stored!(index, key, $type, $storage $(($($field).+))?);
                })*
            }
        }
    };
}
watched_kinds!(define_dispatch);
