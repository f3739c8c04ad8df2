//! Instance types, and the zones, capacity types and prices at which they are offered.

use std::sync::Arc;

use crate::capacity_type::CapacityType;
use crate::launch::UnavailableOffering;
use mortise_apis::k8s::devices::ResourceSliceSpec;
use mortise_apis::requirements::Requirements;
use mortise_apis::resources::Resources;
use mortise_apis::values::money::MicroUsd;

/// Offer of an instance type: a zone and a capacity type at a price.
#[derive(Clone, Debug, PartialEq)]
pub struct Offering {
    /// Zone name, the value of `topology.kubernetes.io/zone`.
    pub zone: Arc<str>,
    /// Capacity type.
    pub capacity_type: CapacityType,
    /// Price; `None` if unknown.
    pub price: Option<MicroUsd>,
    /// `false` while the cloud has no capacity (insufficient capacity, subnet full).
    pub available: bool,
    /// Reservation ID and the number of instances left in it, for `reserved`.
    pub reservation: Option<(Arc<str>, u32)>,
    /// Further labels of this offering, such as `topology.k8s.aws/zone-id`. Sorted by key.
    pub labels: Vec<(Arc<str>, Arc<str>)>,
}

/// An instance type.
#[derive(Clone, Debug, PartialEq)]
pub struct InstanceType {
    /// Name, the value of `node.kubernetes.io/instance-type`.
    pub name: Arc<str>,
    /// Every well-known label of the type, as requirements (zone and capacity type are the union over offerings).
    pub requirements: Requirements,
    /// Capacity.
    pub capacity: Resources,
    /// Resources reserved for the system and the kubelet.
    pub overhead: Resources,
    /// Offerings. Sorted by (zone, capacity type).
    pub offerings: Vec<Offering>,
    /// Devices of its nodes, as their drivers will publish them, without the node.
    pub devices: Arc<[ResourceSliceSpec]>,
}

impl InstanceType {
    /// The same, in the memory of a known version where its requirements are equal: they are most of what a type takes.
    #[must_use]
    pub fn sharing_requirements(mut self, known: &Self) -> Self {
        if self.requirements == known.requirements {
            self.requirements = known.requirements.clone();
        }
        self
    }

    /// Price of its on-demand offering in a zone; `None` without one, or if it is not known.
    #[must_use]
    pub fn on_demand_price(&self, zone: &str) -> Option<MicroUsd> {
        let is_meant =
            |each: &&Offering| each.capacity_type == CapacityType::OnDemand && *each.zone == *zone;
        self.offerings.iter().find(is_meant)?.price
    }

    /// The capacity pool of one of its offerings.
    #[must_use]
    pub fn capacity_pool(&self, offering: &Offering) -> UnavailableOffering {
        UnavailableOffering {
            instance_type: Arc::clone(&self.name),
            zone: Arc::clone(&offering.zone),
            capacity_type: offering.capacity_type,
        }
    }

    /// Resources that pods can use: capacity minus overhead, never negative; memory minus huge pages.
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
