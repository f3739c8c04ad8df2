//! How much room the last pass found for virtual pods.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};

use mortise_apis::names::NamespacedName;

/// How many virtual pods of a buffer have room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BufferRoom {
    /// Which resolution of the buffer it is about.
    pub revision: u64,
    /// Virtual pods that fit on nodes that are ready.
    pub ready: usize,
    /// Virtual pods that need a node that is coming, or is still to be launched.
    pub coming: usize,
    /// Virtual pods that fit nowhere, not even on a new node.
    pub failed: usize,
}

impl BufferRoom {
    /// All its virtual pods.
    #[must_use]
    pub const fn pods(&self) -> usize {
        self.ready + self.coming + self.failed
    }
}

/// The room of every buffer as the last pass of the scheduler found it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BufferRooms(pub BTreeMap<NamespacedName, BufferRoom>);

impl Serialize for BufferRooms {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(rooms) = self;
        serializer.collect_map(rooms.iter().map(|(key, room)| (key.to_string(), room)))
    }
}
