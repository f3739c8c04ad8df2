//! NodePools.

use std::sync::Arc;

use super::Ingested;
use crate::index::{Index, foreign};
use mortise_apis::karpenter::nodepool::NodePool;
use mortise_apis::names::{ObjectRef, PoolName};

impl Ingested for NodePool {
    fn applied(index: &mut Index, pool: Self) {
        let name = pool.name();
        if foreign::update(
            &mut index.state,
            ObjectRef::Pool(name.clone()),
            pool.node_class_key(),
        ) {
            // References are immutable, but an object may have been replaced by one of the same name.
            if index.state.pools.contains_key(&name) {
                delete(index, &name);
            }
            return;
        }
        let known = index.state.pools.get(&name);
        index.overlays_changed |=
            known.is_none_or(|known| known.spec.template != pool.spec.template);
        Arc::make_mut(&mut index.state.pools).insert(name.clone(), Arc::new(pool));
        index.changes.pools.insert(name);
    }

    fn deleted(index: &mut Index, name: &PoolName) {
        if !foreign::remove(&mut index.state, &ObjectRef::Pool(name.clone())) {
            delete(index, name);
        }
    }
}

fn delete(index: &mut Index, name: &PoolName) {
    Arc::make_mut(&mut index.state.pools).remove(name);
    index.overlays_changed = true;
    index.changes.pools.insert(name.clone());
}
