//! Label keys of the kwok provider.

use mortise_apis::labels::WellKnown;
use mortise_apis::node_class::{KeyLocation, LabelTable};

/// Group of `KWOKNodeClass`, and the provider's restricted label domain.
pub const GROUP: &str = "karpenter.kwok.sh";
/// Label: number of CPUs of the type.
pub const INSTANCE_CPU: &str = "karpenter.kwok.sh/instance-cpu";
/// Label: memory of the type.
pub const INSTANCE_MEMORY: &str = "karpenter.kwok.sh/instance-memory";
/// Label: family of the type.
pub const INSTANCE_FAMILY: &str = "karpenter.kwok.sh/instance-family";
/// Label: size of the type, an integer.
pub const INSTANCE_SIZE: &str = "karpenter.kwok.sh/instance-size";
/// Labels that NodePools may require without defining them.
pub const WELL_KNOWN: [&str; 4] = [
    INSTANCE_CPU,
    INSTANCE_MEMORY,
    INSTANCE_FAMILY,
    INSTANCE_SIZE,
];

/// Names in [`GROUP`] that requirements of users may have.
const OPEN: &[&str] = &[
    "kwoknodeclass",
    "instance-cpu",
    "instance-memory",
    "instance-family",
    "instance-size",
];

/// The labels of this node class.
pub const LABELS: LabelTable = LabelTable {
    domain: GROUP,
    well_known: &WELL_KNOWN,
    zone_id: None,
    values: &[],
    open: &[
        (KeyLocation::PoolRequirement, OPEN),
        (KeyLocation::ClaimRequirement, OPEN),
    ],
};

/// The core's keys and those of this provider.
#[must_use]
pub fn well_known() -> WellKnown {
    LABELS.added_to(WellKnown::core())
}
