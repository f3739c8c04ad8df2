//! NodeClaims and NodePools of another autoscaler: known by name, otherwise ignored.

use std::sync::Arc;

use crate::snapshot::Snapshot;
use mortise_apis::names::{NodeClassKey, ObjectRef};

/// Records whether an object is of another autoscaler, which its node class shows. Returns whether it is.
pub(super) fn update(state: &mut Snapshot, target: ObjectRef, class: NodeClassKey) -> bool {
    if state.served.covers(&class) {
        remove(state, &target);
        return false;
    }
    Arc::make_mut(&mut state.foreign).insert(target, class);
    true
}

/// Forgets an object of another autoscaler. Returns whether it was one.
pub(super) fn remove(state: &mut Snapshot, target: &ObjectRef) -> bool {
    state.foreign.contains_key(target) && Arc::make_mut(&mut state.foreign).remove(target).is_some()
}
