//! Events of watched objects.

use std::collections::BTreeSet;

use super::object::{Object, ObjectKey, ObjectKind};

/// Source of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventSource {
    /// A watch: in order.
    Watch,
    /// The response to an own write: it may arrive after the watch has shown something newer, even the deletion.
    Write,
}

/// Event of a watched object.
#[derive(Clone, Debug)]
pub enum ObjectEvent {
    /// The object exists, with this content.
    Applied(Object, EventSource),
    /// The object was deleted, as of this version; `None`: regardless of the known version.
    Deleted(ObjectKey, Option<u64>),
    /// An object of this key exists and cannot be parsed. Its last parsed version stays known.
    Unreadable(ObjectKey),
    /// A list of a kind was read completely, and its objects were applied. A known object of the kind that is not among the
    /// keys and not newer than the list was deleted.
    Listed {
        /// The kind.
        kind: ObjectKind,
        /// Keys of every object in the list, including those that could not be parsed.
        keys: BTreeSet<ObjectKey>,
        /// Version of the list, as etcd counts them: it shows every object as of then. `None` if it is not a number: no object
        /// is newer.
        version: Option<u64>,
    },
}
