//! Devices and claims for them.

use std::sync::Arc;

use super::Index;
use crate::resource_kinds::{Object, ObjectKey};
use mortise_apis::k8s::ResourceSlice;
use mortise_apis::names::NodeName;

impl Index {
    /// Keeps a device object, or drops it. Returns whether it was one.
    pub(super) fn device_object(&mut self, key: &ObjectKey, object: Option<&Object>) -> bool {
        let all = &mut self.state.devices;
        match (key, object) {
            (ObjectKey::ResourceClaim(name), Some(Object::ResourceClaim(object))) => {
                drop(
                    all.claims
                        .insert(name.clone(), Arc::new((**object).clone())),
                );
            }
            (ObjectKey::ResourceClaim(name), _) => drop(all.claims.remove(name)),
            (
                ObjectKey::ResourceClaimTemplate(name),
                Some(Object::ResourceClaimTemplate(object)),
            ) => {
                drop(
                    all.templates
                        .insert(name.clone(), Arc::new((**object).clone())),
                );
            }
            (ObjectKey::ResourceClaimTemplate(name), _) => drop(all.templates.remove(name)),
            (ObjectKey::DeviceClass(name), Some(Object::DeviceClass(object))) => {
                drop(
                    all.classes
                        .insert(Arc::clone(name), Arc::new((**object).clone())),
                );
            }
            (ObjectKey::DeviceClass(name), _) => drop(all.classes.remove(name)),
            (ObjectKey::ResourceSlice(name), Some(Object::ResourceSlice(object))) => {
                let slice = Arc::new((**object).clone());
                let before = all.slices.insert(Arc::clone(name), Arc::clone(&slice));
                self.slice_changed(before.as_deref());
                self.slice_changed(Some(&slice));
            }
            (ObjectKey::ResourceSlice(name), _) => {
                let before = all.slices.remove(name);
                self.slice_changed(before.as_deref());
            }
            _ => return false,
        }
        self.changes.cluster_objects = true;
        true
    }

    /// A machine waits for its drivers to publish its devices: it is looked at again.
    fn slice_changed(&mut self, slice: Option<&ResourceSlice>) {
        let node = slice.and_then(|slice| slice.spec.node_name.as_deref());
        let key = node.and_then(|node| self.node_key_of.get(&NodeName::from(node)));
        if let Some(key) = key {
            self.changes.nodes.insert(key.clone());
        }
    }
}
