//! Applies object events to the index.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Index, ObjectChange, kinds};
use crate::resource_kinds::{EventSource, Object, ObjectEvent, ObjectKey, ObjectKind};

impl Index {
    /// Applies an event. Returns what changed, in the order of the keys.
    pub fn apply(&mut self, event: ObjectEvent) -> Vec<ObjectChange> {
        let changes = match event {
            ObjectEvent::Applied(object, source) => {
                self.apply_object(object, source).into_iter().collect()
            }
            // A watch shows a deletion after the response to an own write showed the next object of the same name.
            ObjectEvent::Deleted(key, version) if self.versions.is_newer_than(&key, version) => {
                Vec::new()
            }
            ObjectEvent::Deleted(key, version) => {
                self.delete_object(key, version).into_iter().collect()
            }
            ObjectEvent::Unreadable(key) => self.insert_unreadable(key).into_iter().collect(),
            ObjectEvent::Listed {
                kind,
                keys,
                version,
            } => self.apply_list(kind, &keys, version),
        };
        self.stale |= !changes.is_empty();
        changes
    }

    fn apply_object(&mut self, object: Object, source: EventSource) -> Option<ObjectChange> {
        let key = object.key();
        let version = object.version().unwrap_or(0);
        if !self.versions.record(&key, version, source) {
            return None;
        }
        self.remove_unreadable(&key);
        let apply = |index: &mut Self, _: &ObjectKey| kinds::apply(index, object);
        Some(ObjectChange::observe(self, key, apply))
    }

    /// Removes an object. `seen_at`: the version at which it was seen deleted.
    fn delete_object(&mut self, key: ObjectKey, seen_at: Option<u64>) -> Option<ObjectChange> {
        let was_unreadable = self.remove_unreadable(&key);
        if !self.versions.record_deletion(&key, seen_at) {
            return was_unreadable.then_some(ObjectChange::Other(key));
        }
        Some(ObjectChange::observe(self, key, kinds::delete))
    }

    /// Removes the known objects that the list proves to be deleted.
    fn apply_list(
        &mut self,
        kind: ObjectKind,
        keys: &BTreeSet<ObjectKey>,
        version: Option<u64>,
    ) -> Vec<ObjectChange> {
        let deleted = self.versions.missing(&kind, keys, version).into_iter();
        let mut changes: Vec<ObjectChange> = deleted
            .filter_map(|key| self.delete_object(key, version))
            .collect();
        let unreadable = self.state.unreadable.iter();
        let omitted = unreadable.filter(|key| key.kind() == kind && !keys.contains(key));
        let omitted: Vec<ObjectKey> = omitted.cloned().collect();
        for key in omitted {
            self.remove_unreadable(&key);
            changes.push(ObjectChange::Other(key));
        }
        if let Some(version) = version {
            self.versions.record_list(kind, version);
        }
        changes
    }

    /// Records that an object cannot be parsed.
    fn insert_unreadable(&mut self, key: ObjectKey) -> Option<ObjectChange> {
        let is_new = !self.state.unreadable.contains(&key);
        is_new.then(|| {
            Arc::make_mut(&mut self.state.unreadable).insert(key.clone());
            ObjectChange::Other(key)
        })
    }

    /// Records that an object can be parsed, or was deleted. Returns whether it could not be parsed before.
    fn remove_unreadable(&mut self, key: &ObjectKey) -> bool {
        self.state.unreadable.contains(key) && Arc::make_mut(&mut self.state.unreadable).remove(key)
    }
}
