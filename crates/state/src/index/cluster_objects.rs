//! Objects that the snapshot has as they are stored: budgets, DaemonSets, volumes, overlays, namespaces, workloads.

use std::sync::Arc;

use crate::resource_kinds::{Object, ObjectKey};
use crate::snapshot::Snapshot;

/// Stores an object, or removes it. Returns `false` for an object of another kind.
pub(super) fn store(state: &mut Snapshot, key: &ObjectKey, object: Option<Object>) -> bool {
    match (key, object) {
        (ObjectKey::Pdb(name), Some(Object::Pdb(object))) => {
            Arc::make_mut(&mut state.pdbs).insert(name.clone(), Arc::new(*object));
        }
        (ObjectKey::Pdb(name), _) => drop(Arc::make_mut(&mut state.pdbs).remove(name)),
        (ObjectKey::DaemonSet(name), Some(Object::DaemonSet(object))) => {
            Arc::make_mut(&mut state.daemon_sets).insert(name.clone(), Arc::new(*object));
        }
        (ObjectKey::DaemonSet(name), _) => drop(Arc::make_mut(&mut state.daemon_sets).remove(name)),
        (ObjectKey::StorageClass(name), Some(Object::StorageClass(object))) => {
            let classes = Arc::make_mut(&mut state.storage_classes);
            classes.insert(Arc::clone(name), Arc::new(*object));
        }
        (ObjectKey::StorageClass(name), _) => {
            drop(Arc::make_mut(&mut state.storage_classes).remove(name));
        }
        (ObjectKey::Overlay(name), Some(Object::Overlay(object))) => {
            Arc::make_mut(&mut state.overlays).insert(Arc::clone(name), Arc::new(*object));
        }
        (ObjectKey::Overlay(name), _) => drop(Arc::make_mut(&mut state.overlays).remove(name)),
        (ObjectKey::Namespace(name), Some(Object::Namespace(object))) => {
            Arc::make_mut(&mut state.namespaces).insert(Arc::clone(name), Arc::new(*object));
        }
        (ObjectKey::Namespace(name), _) => drop(Arc::make_mut(&mut state.namespaces).remove(name)),
        (ObjectKey::Selecting(kind, name), Some(Object::Selecting(_, object))) => {
            Arc::make_mut(&mut state.workloads).insert(*kind, name.clone(), &object);
        }
        (ObjectKey::Selecting(kind, name), _) => {
            Arc::make_mut(&mut state.workloads).remove(*kind, name);
        }
        (key, object) => return store_volume(state, key, object),
    }
    true
}

/// [`store`] for volumes, their claims and attachments, and CSI nodes.
fn store_volume(state: &mut Snapshot, key: &ObjectKey, object: Option<Object>) -> bool {
    match (key, object) {
        (ObjectKey::VolumeClaim(name), Some(Object::VolumeClaim(object))) => {
            drop(state.volume_claims.insert(name.clone(), Arc::new(*object)));
        }
        (ObjectKey::VolumeClaim(name), _) => drop(state.volume_claims.remove(name)),
        (ObjectKey::Volume(name), Some(Object::Volume(object))) => {
            drop(state.volumes.insert(Arc::clone(name), Arc::new(*object)));
        }
        (ObjectKey::Volume(name), _) => drop(state.volumes.remove(name)),
        (ObjectKey::CsiNode(name), Some(Object::CsiNode(object))) => {
            drop(state.csi_nodes.insert(name.clone(), Arc::new(*object)));
        }
        (ObjectKey::CsiNode(name), _) => drop(state.csi_nodes.remove(name)),
        (ObjectKey::Attachment(name), Some(Object::Attachment(object))) => {
            let object = Arc::new(*object);
            drop(state.attachments.insert(Arc::clone(name), object));
        }
        (ObjectKey::Attachment(name), _) => drop(state.attachments.remove(name)),
        _ => return false,
    }
    true
}

/// Whether an overlay event changes catalogs: own writes, to the status, do not.
pub(super) fn changes_overlays(state: &Snapshot, key: &ObjectKey, object: Option<&Object>) -> bool {
    let ObjectKey::Overlay(name) = key else {
        return false;
    };
    let (Some(known), Some(Object::Overlay(object))) = (state.overlays.get(name), object) else {
        return true;
    };
    known.spec != object.spec
        || known.metadata.deletion_timestamp != object.metadata.deletion_timestamp
}
