//! What the last pass found for ProvisioningRequests.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Serialize, Serializer};

use mortise_apis::names::{NamespacedName, Uid};

/// What a pass found for a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RequestRoom {
    /// UID of the request.
    pub uid: Uid,
    /// Pods of it for which there is no room.
    pub lacking: usize,
    /// Why, for the first of them; `None` if there is none, or if nothing is known of it.
    pub why: Option<Arc<str>>,
}

/// What the last pass found for every request of which pods wait.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestRooms(pub BTreeMap<NamespacedName, RequestRoom>);

impl Serialize for RequestRooms {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(rooms) = self;
        serializer.collect_map(rooms.iter().map(|(key, room)| (key.to_string(), room)))
    }
}
