//! The labels that nodes of an instance type have, as requirements. Pure.
//!
//! Invariant: every well-known label of the provider is there; one that the type does not have is required to be absent, so that
//! nothing that asks for it is matched.

use std::sync::Arc;

use mortise_apis::labels;
use mortise_apis::requirements::{Operator, Requirement, Requirements};
use mortise_aws_class::labels as key;
use mortise_cloudprovider::CapacityType;

use crate::instance_type_info::InstanceTypeInfo;
use crate::label_names;
use crate::launch_zones::{LaunchZones, PlacementGroup, Reservation};
use crate::node_settings::NodeSettings;

/// A label with at most one value; `None` requires it to be absent.
type SingleLabel = (&'static str, Option<Arc<str>>);

/// The labels that nodes of a type have with a class.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TypeLabels<'a> {
    info: &'a InstanceTypeInfo,
    shape: &'a NodeSettings,
    placement: &'a LaunchZones,
}

impl<'a> TypeLabels<'a> {
    /// Of `info`, for a class with these settings, where it can be launched.
    pub(crate) const fn new(
        info: &'a InstanceTypeInfo,
        shape: &'a NodeSettings,
        placement: &'a LaunchZones,
    ) -> Self {
        Self {
            info,
            shape,
            placement,
        }
    }

    /// Every well-known label of the type. A label that the type does not have is required to be absent.
    pub(crate) fn requirements(self) -> Requirements {
        let placement = self.placement;
        let single = self
            .name_labels()
            .into_iter()
            .chain(self.hardware_labels())
            .chain(self.accelerator_labels())
            .map(|(key, value)| listed(key, value));
        self.zone_requirements()
            .chain(reservation_requirements(&placement.reservations))
            .chain(group_requirements(placement.group.as_ref()))
            .chain(single)
            .collect::<Requirements>()
            .shared_by_copies()
    }

    /// Where and how the type can be launched: labels with several values.
    fn zone_requirements(self) -> impl Iterator<Item = Requirement> {
        let Self {
            info,
            shape,
            placement,
        } = self;
        let places = &placement.places;
        let zones = places.iter().map(|place| Arc::clone(&place.zone));
        // Subnets may not say them; then nothing is known of the label.
        let zone_ids: Vec<_> = places
            .iter()
            .filter_map(|place| place.zone_id.clone())
            .collect();
        let zone_ids = (!zone_ids.is_empty()).then(|| listed(key::ZONE_ID, zone_ids));
        let reserved = (!placement.reservations.is_empty()).then_some(CapacityType::Reserved);
        let capacity_types = [CapacityType::OnDemand, CapacityType::Spot]
            .into_iter()
            .filter(|each| info.sold_as(each.as_str()))
            .chain(reserved)
            .map(|each| label_names::shared(each.as_str()));
        let os = match (shape.family.is_windows(), &*info.arch()) {
            (false, _) => Some(labels::OS_LINUX),
            (true, labels::ARCH_AMD64) => Some(labels::OS_WINDOWS),
            (true, _) => None, // no Windows image boots on it: the empty set, which nothing matches
        };
        [
            listed(labels::TOPOLOGY_ZONE, zones),
            listed(labels::CAPACITY_TYPE, capacity_types),
            listed(labels::OS, os.map(label_names::shared)),
            listed(
                key::INSTANCE_TENANCY,
                ["dedicated", "default"].map(label_names::shared),
            ),
        ]
        .into_iter()
        .chain(zone_ids)
    }

    /// The name of the type and its parts.
    fn name_labels(self) -> [SingleLabel; 7] {
        let (info, region) = (self.info, &self.placement.region);
        let parts = info.category_and_generation();
        let (family, size) = (info.family(), info.size());
        [
            (labels::INSTANCE_TYPE, Some(Arc::clone(&info.name))),
            (labels::TOPOLOGY_REGION, Some(Arc::clone(region))),
            (
                key::INSTANCE_CATEGORY,
                parts.map(|(category, _)| Arc::from(category)),
            ),
            (
                key::INSTANCE_GENERATION,
                parts.map(|(_, generation)| Arc::from(generation)),
            ),
            (key::INSTANCE_FAMILY, Some(Arc::from(family))),
            (
                key::INSTANCE_SIZE,
                (!size.is_empty()).then(|| Arc::from(size)),
            ),
            (
                key::INSTANCE_CAPABILITY_FLEX,
                flag(family.contains("-flex")),
            ),
        ]
    }

    /// Processor, memory, disks and network.
    fn hardware_labels(self) -> [SingleLabel; 12] {
        let (info, shape) = (self.info, self.shape);
        [
            (labels::ARCH, Some(info.arch())),
            (
                labels::WINDOWS_BUILD,
                shape.family.windows_build().map(Arc::from),
            ),
            (key::INSTANCE_CPU, number(info.vcpus)),
            (
                key::INSTANCE_CPU_MANUFACTURER,
                Some(kebab(info.cpu_manufacturer.as_deref().unwrap_or_default())),
            ),
            (
                key::INSTANCE_CPU_SUSTAINED_CLOCK_SPEED_MHZ,
                number(info.clock_mhz.unwrap_or_default()),
            ),
            (key::INSTANCE_MEMORY, number(info.memory_mib)),
            (key::INSTANCE_EBS_BANDWIDTH, info.ebs_mbps.and_then(number)),
            (
                key::INSTANCE_NETWORK_BANDWIDTH,
                info.network_mbps.and_then(number),
            ),
            (
                key::INSTANCE_LOCAL_NVME,
                if info.nvme {
                    number(info.disk_gb)
                } else {
                    None
                },
            ),
            (
                key::INSTANCE_HYPERVISOR,
                Some(info.hypervisor.clone().unwrap_or_else(|| Arc::from(""))),
            ),
            (
                key::INSTANCE_ENCRYPTION_IN_TRANSIT_SUPPORTED,
                flag(info.encryption_in_transit),
            ),
            (key::NITRO_SANDBOX, flag(info.enclaves)),
        ]
    }

    /// Graphics processors and accelerators; a type with several kinds of one has no label for it.
    fn accelerator_labels(self) -> [SingleLabel; 7] {
        let gpu = match self.info.gpus.as_slice() {
            [gpu] => Some(gpu),
            _ => None,
        };
        let accelerator = match (self.info.inference.as_slice(), self.info.neuron.as_slice()) {
            ([one], []) => Some((&one.name, kebab(&one.manufacturer), one.count)),
            (_, [one]) => Some((&one.name, Arc::from("aws"), one.count)),
            _ => None,
        };
        [
            (key::INSTANCE_GPU_NAME, gpu.map(|gpu| kebab(&gpu.name))),
            (
                key::INSTANCE_GPU_MANUFACTURER,
                gpu.map(|gpu| kebab(&gpu.manufacturer)),
            ),
            (
                key::INSTANCE_GPU_COUNT,
                gpu.and_then(|gpu| number(gpu.count)),
            ),
            (
                key::INSTANCE_GPU_MEMORY,
                gpu.and_then(|gpu| number(gpu.memory_mib)),
            ),
            (
                key::INSTANCE_ACCELERATOR_NAME,
                accelerator.as_ref().map(|(name, _, _)| kebab(name)),
            ),
            (
                key::INSTANCE_ACCELERATOR_MANUFACTURER,
                accelerator.as_ref().map(|(_, maker, _)| Arc::clone(maker)),
            ),
            (
                key::INSTANCE_ACCELERATOR_COUNT,
                accelerator
                    .as_ref()
                    .and_then(|(_, _, count)| number(*count)),
            ),
        ]
    }
}

/// A label with these values; without any it is required to be absent.
fn listed(key: &str, values: impl IntoIterator<Item = Arc<str>>) -> Requirement {
    Requirement::new(label_names::shared(key), Operator::In, values)
}

/// Prepaid capacity for the type: its ids, kinds, and whether it can be reclaimed.
fn reservation_requirements(reservations: &[Reservation]) -> [Requirement; 3] {
    let values = |value: fn(&Reservation) -> Arc<str>| reservations.iter().map(value);
    [
        listed(
            key::CAPACITY_RESERVATION_ID,
            values(|each| Arc::clone(&each.id)),
        ),
        listed(
            key::CAPACITY_RESERVATION_TYPE,
            values(|each| label_names::shared(each.kind())),
        ),
        listed(
            key::CAPACITY_RESERVATION_INTERRUPTIBLE,
            values(|each| label_names::shared(each.reclaimable())),
        ),
    ]
}

/// The placement group of the class, and its partitions.
fn group_requirements(group: Option<&PlacementGroup>) -> [Requirement; 2] {
    let id = group.map(|group| Arc::clone(&group.id));
    let partitions = group.into_iter().flat_map(PlacementGroup::partitions);
    [
        listed(key::PLACEMENT_GROUP_ID, id),
        listed(key::PLACEMENT_GROUP_PARTITION, partitions),
    ]
}

/// A name as a label value: lower case, dashes for spaces.
fn kebab(name: &str) -> Arc<str> {
    Arc::from(name.to_lowercase().replace(' ', "-"))
}

fn flag(yes: bool) -> Option<Arc<str>> {
    Some(label_names::shared(if yes { "true" } else { "false" }))
}

fn number(value: i64) -> Option<Arc<str>> {
    Some(Arc::from(value.to_string()))
}
