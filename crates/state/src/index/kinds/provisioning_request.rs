//! ProvisioningRequests.

use std::sync::Arc;

use super::Ingested;
use crate::index::Index;
use mortise_apis::k8s::ProvisioningRequest;
use mortise_apis::names::NamespacedName;

impl Ingested for ProvisioningRequest {
    fn applied(index: &mut Index, request: Self) {
        let key = request.key();
        index.requests.changed(&key);
        Arc::make_mut(&mut index.state.gangs.requests).insert(key, Arc::new(request));
    }

    fn deleted(index: &mut Index, key: &NamespacedName) {
        index.requests.changed(key);
        Arc::make_mut(&mut index.state.gangs.requests).remove(key);
    }
}
