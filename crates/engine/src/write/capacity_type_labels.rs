//! The labels that say how an instance is paid for.

use std::collections::BTreeSet;

use mortise_cloudprovider::CapacityType;

/// What an object's labels become when its instance is paid for in another way than it was launched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapacityTypeLabels {
    /// How it is paid for now.
    pub capacity_type: CapacityType,
    /// Labels of the provider that only instances of the former capacity type have; they go.
    pub removed: BTreeSet<String>,
}
