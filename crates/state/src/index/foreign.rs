//! NodeClaims and NodePools of another autoscaler: known by name, otherwise ignored.

use std::sync::Arc;

use crate::resource_kinds::{Object, ObjectKey};
use crate::snapshot::Snapshot;
use mortise_apis::names::{NodeClassKey, ObjectRef};

/// The NodeClaim or NodePool that an object is, with its node class; `None` for other kinds.
pub(super) fn class_of(object: &Object) -> Option<(ObjectRef, NodeClassKey)> {
    match object {
        Object::Claim(claim) => Some((ObjectRef::Claim(claim.name()), claim.node_class_key())),
        Object::Pool(pool) => Some((ObjectRef::Pool(pool.name()), pool.node_class_key())),
        _ => None,
    }
}

/// Records an object of another autoscaler.
pub(super) fn insert(state: &mut Snapshot, target: ObjectRef, class: NodeClassKey) {
    Arc::make_mut(&mut state.foreign).insert(target, class);
}

/// Forgets an object of another autoscaler. Returns whether it was one.
pub(super) fn remove(state: &mut Snapshot, target: &ObjectRef) -> bool {
    state.foreign.contains_key(target) && Arc::make_mut(&mut state.foreign).remove(target).is_some()
}

/// [`remove`] by the key of the object.
pub(super) fn remove_key(state: &mut Snapshot, key: &ObjectKey) -> bool {
    match key {
        ObjectKey::Claim(name) => remove(state, &ObjectRef::Claim(name.clone())),
        ObjectKey::Pool(name) => remove(state, &ObjectRef::Pool(name.clone())),
        _ => false,
    }
}
