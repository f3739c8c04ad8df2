//! What a NodeClaim records of its instance as labels and annotations.

use std::collections::BTreeMap;

use mortise_apis::names::ProviderId;

/// Written before the status: capacity is never visible without the labels that locate it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceMetadata {
    /// Labels that the NodeClaim lacks.
    pub labels: BTreeMap<String, String>,
    /// Annotations that the NodeClaim lacks.
    pub annotations: BTreeMap<String, String>,
    /// The instance. Until the status contains it, this annotation relates the Node to its NodeClaim.
    pub provider_id: ProviderId,
}
