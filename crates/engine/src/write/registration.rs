//! What a Node gets from its NodeClaim.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Taint;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

/// What a Node lacks of its NodeClaim, in one write.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Registration {
    /// All finalizers of the Node; `None` if they are not changed.
    pub finalizers: Option<Vec<String>>,
    /// All owners of the Node; `None` if they are not changed.
    pub owners: Option<Vec<OwnerReference>>,
    /// Labels that are added or changed.
    pub labels: BTreeMap<String, String>,
    /// Annotations that are added or changed.
    pub annotations: BTreeMap<String, String>,
    /// All taints of the Node; `None` if they are not changed.
    pub taints: Option<Vec<Taint>>,
}

impl Registration {
    /// The Node lacks nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
