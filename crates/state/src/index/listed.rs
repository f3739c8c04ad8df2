//! Lists of a kind: what a list shows to be gone, and what is newer than the list.
//!
//! A list is the truth of one version. While its pages are on their way the answers to our own writes come in, so an object
//! may be newer than the list that leaves it out, or be gone although a page still has it. Versions tell them apart.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Index, is_newer};
use crate::resource_kinds::{EventSource, ObjectKey, ObjectKind};

impl Index {
    /// Known objects of a kind that a list at `version` shows to be gone: they are not among its keys, and are not newer
    /// than it. A list without a version is newer than everything. Costs one look at every known object.
    #[must_use]
    pub fn missing(
        &self,
        kind: &ObjectKind,
        keys: &BTreeSet<ObjectKey>,
        version: Option<u64>,
    ) -> Vec<ObjectKey> {
        let known = self.versions.iter();
        known
            .filter(|(key, _)| key.kind() == *kind && !keys.contains(key))
            .filter(|(_, known)| !is_newer(Some(**known), version))
            .map(|(key, _)| key.clone())
            .collect()
    }

    pub(super) fn listed(
        &mut self,
        kind: ObjectKind,
        keys: &BTreeSet<ObjectKey>,
        version: Option<u64>,
    ) -> bool {
        let mut changed = false;
        for key in self.missing(&kind, keys, version) {
            changed |= self.gone(&key, version);
        }
        let unreadable = self.state.unreadable.iter();
        let left_out = unreadable.filter(|key| key.kind() == kind && !keys.contains(key));
        let left_out: Vec<ObjectKey> = left_out.cloned().collect();
        for key in left_out {
            changed |= self.readable(&key);
        }
        if let Some(version) = version {
            let last = self.lists.entry(kind).or_default();
            *last = version.max(*last);
        }
        changed
    }

    /// Remembers that an object cannot be read.
    pub(super) fn unreadable(&mut self, key: ObjectKey) -> bool {
        let is_new = !self.state.unreadable.contains(&key);
        if is_new {
            Arc::make_mut(&mut self.state.unreadable).insert(key);
        }
        is_new
    }

    /// An object can be read, or is gone. Returns whether it could not be read before.
    pub(super) fn readable(&mut self, key: &ObjectKey) -> bool {
        self.state.unreadable.contains(key) && Arc::make_mut(&mut self.state.unreadable).remove(key)
    }

    /// Whether an object of this version is known to have gone since: deleted, or left out by a newer list.
    pub(super) fn has_gone(&self, key: &ObjectKey, version: u64, source: EventSource) -> bool {
        let deleted = self.deleted.get(key).is_some_and(|at| *at >= version);
        match source {
            // A page that was read before the deletion. A watch shows no object without a version.
            EventSource::Watch => version != 0 && deleted,
            EventSource::Write => {
                let last = self.lists.get(&key.kind());
                let left_out =
                    !self.versions.contains_key(key) && last.is_some_and(|last| *last >= version);
                deleted || left_out
            }
        }
    }

    /// Remembers that the object of this version, and every older one, is gone.
    pub(super) fn remember_deletion(&mut self, key: ObjectKey, version: u64) {
        self.deleted.insert(key.clone(), version);
        self.deletion_order.push_back((key, version));
        if self.deletion_order.len() > REMEMBERED_DELETIONS
            && let Some((oldest, version)) = self.deletion_order.pop_front()
            && self.deleted.get(&oldest) == Some(&version)
        {
            self.deleted.remove(&oldest);
        }
    }
}

/// How many deletions are remembered, so that a late answer to an own write does not bring an object back.
/// A write is answered within its timeout (30 s); at 100 deletions a second that is 3,000.
const REMEMBERED_DELETIONS: usize = 4096;
