//! What a launched instance says of its NodeClaim.

use std::collections::BTreeMap;

use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::names::ProviderId;
use mortise_cloudprovider::{Instance, LaunchedInstance};
use mortise_engine::write::InstanceMetadata;

/// What the NodeClaim does not record of its instance yet.
pub(super) fn missing_metadata(claim: &NodeClaim, launched: &LaunchedInstance) -> InstanceMetadata {
    let mut labels = launched.labels.clone();
    labels.retain(|key, _| claim.label(key).is_none());
    let mut annotations = launched.annotations.clone();
    annotations.retain(|key, value| claim.annotation(key) != Some(value));
    InstanceMetadata {
        labels,
        annotations,
        provider_id: launched.provider_id.clone(),
    }
}

/// What is known of an instance that was only found in a list.
pub(super) fn launched_from(instance: &Instance) -> LaunchedInstance {
    LaunchedInstance {
        provider_id: ProviderId::clone(&instance.provider_id),
        image_id: None,
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        capacity: BTreeMap::new(),
        allocatable: BTreeMap::new(),
    }
}
