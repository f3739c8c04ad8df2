//! Device objects: ResourceClaims, their templates, DeviceClasses and ResourceSlices.

use std::sync::Arc;

use crate::resource_kinds::{Object, ObjectKey};
use crate::snapshot::DeviceObjects;
use mortise_apis::k8s::ResourceSlice;
use mortise_apis::names::NodeName;

/// Nodes whose devices changed: of the ResourceSlice before, and of the one after.
pub(super) type DeviceNodes = [Option<NodeName>; 2];

/// Stores a device object, or removes it. Returns `None` for an object of another kind.
pub(super) fn store(
    devices: &mut DeviceObjects,
    key: &ObjectKey,
    object: Option<&Object>,
) -> Option<DeviceNodes> {
    match (key, object) {
        (ObjectKey::ResourceClaim(name), Some(Object::ResourceClaim(object))) => {
            let object = Arc::new((**object).clone());
            devices.claims.insert(name.clone(), object);
        }
        (ObjectKey::ResourceClaim(name), _) => drop(devices.claims.remove(name)),
        (ObjectKey::ResourceClaimTemplate(name), Some(Object::ResourceClaimTemplate(object))) => {
            let object = Arc::new((**object).clone());
            devices.templates.insert(name.clone(), object);
        }
        (ObjectKey::ResourceClaimTemplate(name), _) => drop(devices.templates.remove(name)),
        (ObjectKey::DeviceClass(name), Some(Object::DeviceClass(object))) => {
            let object = Arc::new((**object).clone());
            devices.classes.insert(Arc::clone(name), object);
        }
        (ObjectKey::DeviceClass(name), _) => drop(devices.classes.remove(name)),
        (ObjectKey::ResourceSlice(name), Some(Object::ResourceSlice(object))) => {
            let slice = Arc::new((**object).clone());
            let before = devices.slices.insert(Arc::clone(name), Arc::clone(&slice));
            return Some([node_of(before.as_deref()), node_of(Some(&slice))]);
        }
        (ObjectKey::ResourceSlice(name), _) => {
            let before = devices.slices.remove(name);
            return Some([node_of(before.as_deref()), None]);
        }
        _ => return None,
    }
    Some([None, None])
}

fn node_of(slice: Option<&ResourceSlice>) -> Option<NodeName> {
    slice?.spec.node_name.as_deref().map(NodeName::from)
}
