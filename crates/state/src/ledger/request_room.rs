//! What the last pass found for ProvisioningRequests.

use std::sync::Arc;

use serde::Serialize;

use mortise_apis::names::Uid;

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
