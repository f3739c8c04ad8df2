//! How much room the last pass found for virtual pods.

use serde::Serialize;

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
