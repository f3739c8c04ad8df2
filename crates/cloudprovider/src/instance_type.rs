//! Instance types, and the zones, capacity types and prices at which they are offered.

use std::sync::Arc;

use crate::capacity_type::CapacityType;
use mortise_apis::k8s::devices::ResourceSliceSpec;
use mortise_apis::requirements::Requirements;
use mortise_apis::resources::Resources;
use mortise_apis::values::money::MicroUsd;

/// One way to buy an instance type: a zone and a capacity type at a price.
#[derive(Clone, Debug, PartialEq)]
pub struct Offering {
    /// Zone name, the value of `topology.kubernetes.io/zone`.
    pub zone: Arc<str>,
    /// How it is paid for.
    pub capacity_type: CapacityType,
    /// Price; `None` when it is not known.
    pub price: Option<MicroUsd>,
    /// `false` while the cloud has none of it (insufficient capacity, subnet full).
    pub available: bool,
    /// Reservation id and how many machines are left in it, for `reserved`.
    pub reservation: Option<(Arc<str>, u32)>,
    /// Further labels of this offering, such as `topology.k8s.aws/zone-id`. Sorted by key.
    pub labels: Vec<(Arc<str>, Arc<str>)>,
}

/// A kind of machine.
#[derive(Clone, Debug, PartialEq)]
pub struct InstanceType {
    /// Name, the value of `node.kubernetes.io/instance-type`.
    pub name: Arc<str>,
    /// Every well-known label of the type, as requirements (zone and capacity type are the union over offerings).
    pub requirements: Requirements,
    /// What the machine has.
    pub capacity: Resources,
    /// What the system and the kubelet keep of it.
    pub overhead: Resources,
    /// Ways to buy it. Sorted by (zone, capacity type).
    pub offerings: Vec<Offering>,
    /// Devices that its machines bring, as their drivers will publish them. Which node they are on is left out.
    pub devices: Arc<[ResourceSliceSpec]>,
}

impl InstanceType {
    /// What pods can use: capacity less overhead, never negative, and memory less what huge pages take.
    #[must_use]
    pub fn allocatable(&self) -> Resources {
        let mut free = Resources::max(&self.capacity.sub(&self.overhead), &Resources::zero());
        let huge: i64 = self
            .capacity
            .extended
            .iter()
            .filter(|(name, _)| name.starts_with("hugepages-"))
            .map(|(_, bytes)| bytes)
            .sum();
        free.memory = free.memory.saturating_sub(huge).max(0);
        free
    }
}
