//! What the last pass found for objects that ask for room.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};

use mortise_apis::names::NamespacedName;

/// What the last pass of the scheduler found, by object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rooms<R>(pub BTreeMap<NamespacedName, R>);

impl<R> Default for Rooms<R> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<R: Serialize> Serialize for Rooms<R> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(rooms) = self;
        serializer.collect_map(rooms.iter().map(|(key, room)| (key.to_string(), room)))
    }
}
