//! Versions of objects: which version is known, which was deleted, and what a list proves to be deleted.
//!
//! A list shows one version of the cluster. Responses to own writes arrive while its pages are read, so an object may be newer
//! than a list that omits it, or deleted although a page still has it. Versions tell these cases apart.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use foldhash::fast::FixedState;

use crate::resource_kinds::{EventSource, ObjectKey, ObjectKind};

/// How many deletions are remembered, so that a late response to an own write does not restore a deleted object.
/// A write is answered within its timeout (30 s); at 100 deletions a second that is 3,000.
const REMEMBERED_DELETIONS: usize = 4096;

/// Versions of the objects that exist, and of those that were deleted recently.
#[derive(Debug, Default)]
pub(super) struct ObjectVersions {
    /// Version of each existing object; 0 for an object without one.
    known: HashMap<ObjectKey, u64, FixedState>,
    deleted: BTreeMap<ObjectKey, u64>,
    deletion_order: VecDeque<(ObjectKey, u64)>,
    /// Version of the newest list of each kind.
    lists: BTreeMap<ObjectKind, u64>,
}

impl ObjectVersions {
    /// Records an object. `false`, and nothing changes, if this version is outdated: a newer one is known, or the object was
    /// deleted since.
    pub(super) fn record(&mut self, key: &ObjectKey, version: u64, source: EventSource) -> bool {
        if let Some(known) = self.known.get(key)
            && version != 0
            && *known >= version
        {
            return false;
        }
        if self.is_deleted(key, version, source) {
            return false;
        }
        self.known.insert(key.clone(), version);
        true
    }

    /// Records that an object does not exist. `seen_at`: the version at which it was seen deleted. Returns whether the object
    /// was known.
    pub(super) fn record_deletion(&mut self, key: &ObjectKey, seen_at: Option<u64>) -> bool {
        let Some(version) = self.known.remove(key) else {
            return false;
        };
        let version = version.max(seen_at.unwrap_or(0));
        self.deleted.insert(key.clone(), version);
        self.deletion_order.push_back((key.clone(), version));
        if self.deletion_order.len() > REMEMBERED_DELETIONS
            && let Some((oldest, version)) = self.deletion_order.pop_front()
            && self.deleted.get(&oldest) == Some(&version)
        {
            self.deleted.remove(&oldest);
        }
        true
    }

    /// Records the version of a list that was read completely.
    pub(super) fn record_list(&mut self, kind: ObjectKind, version: u64) {
        let last = self.lists.entry(kind).or_default();
        *last = version.max(*last);
    }

    /// Whether the known object is newer than this version.
    pub(super) fn is_newer_than(&self, key: &ObjectKey, version: Option<u64>) -> bool {
        is_newer(self.known.get(key).copied(), version)
    }

    /// Known objects of a kind that a list at `version` proves to be deleted: they are not among its keys, and are not newer
    /// than it, by their keys. A list without a version is newer than every object. Cost: the number of known objects.
    pub(super) fn missing(
        &self,
        kind: &ObjectKind,
        keys: &BTreeSet<ObjectKey>,
        version: Option<u64>,
    ) -> Vec<ObjectKey> {
        let mut missing: Vec<ObjectKey> = self
            .known
            .iter()
            .filter(|(key, _)| key.kind() == *kind && !keys.contains(key))
            .filter(|(_, known)| !is_newer(Some(**known), version))
            .map(|(key, _)| key.clone())
            .collect();
        missing.sort_unstable();
        missing
    }

    /// Whether an object of this version was deleted since, or is missing in a newer list.
    fn is_deleted(&self, key: &ObjectKey, version: u64, source: EventSource) -> bool {
        let deleted = self.deleted.get(key).is_some_and(|at| *at >= version);
        match source {
            // A page that was read before the deletion. A watch shows no object without a version.
            EventSource::Watch => version != 0 && deleted,
            EventSource::Write => {
                let last = self.lists.get(&key.kind());
                let is_omitted =
                    !self.known.contains_key(key) && last.is_some_and(|last| *last >= version);
                deleted || is_omitted
            }
        }
    }
}

/// Whether the known version is newer than another. An absent version is newer than none and older than none.
fn is_newer(known: Option<u64>, than: Option<u64>) -> bool {
    matches!((known, than), (Some(known), Some(than)) if known > than)
}
