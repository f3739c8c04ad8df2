//! From an instance type's description to what the core plans with: labels, capacity, overhead and offerings. Pure.
//!
//! # Source
//! The rules are those of Karpenter's AWS provider 1.14 and are checked against its recorded answers for every instance type of
//! the embedded data (`tests` below, and the recorded cases in the workspace's test data).

use std::collections::BTreeMap;
use std::sync::Arc;

use mortise_apis::labels;
use mortise_apis::requirements::{Operator, Requirement, Requirements};
use mortise_apis::resources::Resources;
use mortise_apis::values::money::MicroUsd;
use mortise_aws_class::labels as key;
use mortise_cloudprovider::{CapacityType, InstanceType, Offering};

use crate::ami_family::AmiFamily;
use crate::instance_type_info::InstanceTypeInfo;
use crate::node_settings::{GIB, MIB, NodeSettings, Threshold};

/// Resource: branch network interfaces for pods with security groups of their own.
const POD_ENI: &str = "vpc.amazonaws.com/pod-eni";
/// Resource: elastic fabric adapters.
pub const EFA: &str = "vpc.amazonaws.com/efa";
/// Resource: addresses for Windows pods.
const PRIVATE_IPV4: &str = "vpc.amazonaws.com/PrivateIPv4Address";
/// Resource: Neuron devices.
const NEURON: &str = "aws.amazon.com/neuron";
/// Resource: Neuron cores.
const NEURON_CORE: &str = "aws.amazon.com/neuroncore";
/// Resources by the maker of a graphics processor. Only these exact names count.
const GPUS: [(&str, &str); 3] = [
    ("NVIDIA", "nvidia.com/gpu"),
    ("AMD", "amd.com/gpu"),
    ("Habana", "habana.ai/gaudi"),
];

/// Memory that ARM instances lose before the hypervisor's share, in MiB.
const ARM_MEMORY_MIB: i64 = 64;
/// Pods per node where network interfaces set no limit.
const DEFAULT_MAX_PODS: i64 = 110;

/// Labels that no instance has yet: reservations and placement groups are not used.
const UNUSED_LABELS: [&str; 5] = [
    key::CAPACITY_RESERVATION_ID,
    key::CAPACITY_RESERVATION_TYPE,
    key::CAPACITY_RESERVATION_INTERRUPTIBLE,
    key::PLACEMENT_GROUP_ID,
    key::PLACEMENT_GROUP_PARTITION,
];

/// A label with at most one value; `None` requires it to be absent.
type SingleLabel = (&'static str, Option<Arc<str>>);

/// One zone in which a type is sold, with what it costs there; `None` is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZonePrices {
    /// Zone name.
    pub zone: Arc<str>,
    /// Zone id, which is the same in every account.
    pub zone_id: Option<Arc<str>>,
    /// On-demand price per hour.
    pub on_demand: Option<MicroUsd>,
    /// Spot price per hour.
    pub spot: Option<MicroUsd>,
}

/// Where a type can be launched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LaunchZones {
    /// Region name.
    pub region: Arc<str>,
    /// Zones that both sell the type and have a subnet of the class.
    pub places: Vec<ZonePrices>,
}

/// What keeps a type from being launched with a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Incompatibility {
    /// The image family does not boot on it.
    Family,
    /// It lacks the network cards or interfaces that the class asks for.
    NetworkInterfaces,
    /// It does not support nested virtualization.
    NestedVirtualization,
    /// It cannot take connection tracking times.
    ConnectionTracking,
}

impl InstanceTypeInfo {
    /// The type as the core plans with it.
    /// # Shape
    /// Offerings are sorted by (zone, capacity type); a spot one without a price, and all of a type that the class cannot use, are not
    /// available.
    #[must_use]
    pub fn instance_type(&self, shape: &NodeSettings, placement: &LaunchZones) -> InstanceType {
        let capacity = self.capacity(shape);
        InstanceType {
            name: Arc::clone(&self.name),
            requirements: self.requirements(shape, placement),
            overhead: self.overhead(shape, &capacity),
            capacity,
            offerings: self.offerings(shape, placement),
            devices: Arc::default(),
        }
    }

    /// Why the class cannot use the type; `None` when it can.
    #[must_use]
    pub fn unfit(&self, shape: &NodeSettings) -> Option<Incompatibility> {
        if shape.family == AmiFamily::Al2023 && self.name.starts_with("a1.") {
            return Some(Incompatibility::Family);
        }
        let asked = &shape.interfaces;
        let fits = |each: &crate::node_settings::Interface| {
            self.interfaces
                .get(each.card)
                .is_some_and(|most| each.device < *most)
        };
        let efa_only = count(asked.iter().filter(|each| each.efa_only));
        if !asked.is_empty() && (!self.ena || !asked.iter().all(fits) || efa_only > self.efa) {
            return Some(Incompatibility::NetworkInterfaces);
        }
        if shape.nested_virtualization && !self.nested_virtualization {
            return Some(Incompatibility::NestedVirtualization);
        }
        if shape.connection_tracking && self.hypervisor.as_deref() != Some("nitro") {
            return Some(Incompatibility::ConnectionTracking);
        }
        None
    }

    fn offerings(&self, shape: &NodeSettings, placement: &LaunchZones) -> Vec<Offering> {
        let fits = self.unfit(shape).is_none();
        let mut offerings = Vec::with_capacity(placement.places.len() * 2);
        for place in &placement.places {
            for (capacity_type, price) in [
                (CapacityType::Spot, place.spot),
                (CapacityType::OnDemand, place.on_demand),
            ] {
                if !self.sold_as(capacity_type.as_str()) {
                    continue;
                }
                let zone_id = place
                    .zone_id
                    .iter()
                    .map(|id| (Arc::from(key::ZONE_ID), Arc::clone(id)));
                offerings.push(Offering {
                    zone: Arc::clone(&place.zone),
                    capacity_type,
                    price,
                    // Without a price it is offered last; a spot market without a price does not exist.
                    available: fits && (price.is_some() || capacity_type == CapacityType::OnDemand),
                    reservation: None,
                    labels: zone_id.collect(),
                });
            }
        }
        offerings.sort_by(|a, b| (&a.zone, a.capacity_type).cmp(&(&b.zone, b.capacity_type)));
        offerings
    }

    /// Every well-known label of the type. A label that the type does not have is required to be absent.
    fn requirements(&self, shape: &NodeSettings, placement: &LaunchZones) -> Requirements {
        let single = self
            .name_labels(&placement.region)
            .into_iter()
            .chain(self.hardware_labels(shape))
            .chain(self.accelerator_labels())
            .chain(UNUSED_LABELS.map(|key| (key, None)));
        let single = single.map(|(key, value)| {
            value.map_or_else(
                || Requirement::does_not_exist(key),
                |value| Requirement::is(key, value),
            )
        });
        self.placement_requirements(shape, placement)
            .into_iter()
            .chain(single)
            .collect()
    }

    /// Where and how the type can be launched: labels with several values.
    fn placement_requirements(
        &self,
        shape: &NodeSettings,
        placement: &LaunchZones,
    ) -> [Requirement; 5] {
        let places = &placement.places;
        let zones = places.iter().map(|place| Arc::clone(&place.zone));
        let zone_ids = places.iter().filter_map(|place| place.zone_id.clone());
        let capacity_types = [CapacityType::OnDemand, CapacityType::Spot]
            .into_iter()
            .filter(|each| self.sold_as(each.as_str()));
        let os = match (shape.family.is_windows(), &*self.arch()) {
            (false, _) => vec![labels::OS_LINUX],
            (true, labels::ARCH_AMD64) => vec![labels::OS_WINDOWS],
            (true, _) => Vec::new(), // no Windows image boots on it: the empty set, which nothing matches
        };
        [
            Requirement::new(labels::TOPOLOGY_ZONE, Operator::In, zones),
            Requirement::new(key::ZONE_ID, Operator::In, zone_ids),
            Requirement::new(
                labels::CAPACITY_TYPE,
                Operator::In,
                capacity_types.map(CapacityType::as_str),
            ),
            Requirement::new(labels::OS, Operator::In, os),
            Requirement::new(
                key::INSTANCE_TENANCY,
                Operator::In,
                ["dedicated", "default"],
            ),
        ]
    }

    /// The name of the type and its parts.
    fn name_labels(&self, region: &Arc<str>) -> [SingleLabel; 7] {
        let parts = self.category_and_generation();
        let (family, size) = (self.family(), self.size());
        [
            (labels::INSTANCE_TYPE, Some(Arc::clone(&self.name))),
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
    fn hardware_labels(&self, shape: &NodeSettings) -> [SingleLabel; 12] {
        [
            (labels::ARCH, Some(self.arch())),
            (
                labels::WINDOWS_BUILD,
                shape.family.windows_build().map(Arc::from),
            ),
            (key::INSTANCE_CPU, number(self.vcpus)),
            (
                key::INSTANCE_CPU_MANUFACTURER,
                self.cpu_manufacturer.as_ref().map(|maker| kebab(maker)),
            ),
            (
                key::INSTANCE_CPU_SUSTAINED_CLOCK_SPEED_MHZ,
                number(self.clock_mhz.unwrap_or_default()),
            ),
            (key::INSTANCE_MEMORY, number(self.memory_mib)),
            (key::INSTANCE_EBS_BANDWIDTH, self.ebs_mbps.and_then(number)),
            (
                key::INSTANCE_NETWORK_BANDWIDTH,
                self.network_mbps.and_then(number),
            ),
            (
                key::INSTANCE_LOCAL_NVME,
                if self.nvme {
                    number(self.disk_gb)
                } else {
                    None
                },
            ),
            (
                key::INSTANCE_HYPERVISOR,
                Some(self.hypervisor.clone().unwrap_or_else(|| Arc::from(""))),
            ),
            (
                key::INSTANCE_ENCRYPTION_IN_TRANSIT_SUPPORTED,
                flag(self.encryption_in_transit),
            ),
            (key::NITRO_SANDBOX, flag(self.enclaves)),
        ]
    }

    /// Graphics processors and accelerators; a type with several kinds of one has no label for it.
    fn accelerator_labels(&self) -> [SingleLabel; 7] {
        let gpu = match self.gpus.as_slice() {
            [gpu] => Some(gpu),
            _ => None,
        };
        let accelerator = match (self.inference.as_slice(), self.neuron.as_slice()) {
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

    /// What an instance has. Units as [`Resources`].
    #[must_use]
    pub fn capacity(&self, shape: &NodeSettings) -> Resources {
        let disk = if shape.raid0 && self.disk_gb > 0 {
            self.disk_gb.saturating_mul(1_000_000_000)
        } else {
            shape.volume_bytes()
        };
        let efa = if shape.interfaces.is_empty() {
            self.efa
        } else {
            count(shape.interfaces.iter().filter(|each| each.efa_only))
        };
        let mut capacity = Resources {
            cpu: self.vcpus * 1000,
            memory: self.memory_bytes(shape),
            pods: self.pods(shape),
            ephemeral_storage: disk,
            ..Resources::default()
        };
        let mut gpus: BTreeMap<&str, i64> = BTreeMap::new();
        for (maker, resource) in GPUS {
            let counted = self
                .gpus
                .iter()
                .filter(|gpu| &*gpu.manufacturer == maker)
                .map(|gpu| gpu.count);
            *gpus.entry(resource).or_default() += counted.sum::<i64>();
        }
        let neuron = self.neuron.iter().map(|device| device.count).sum();
        let cores = self
            .neuron
            .first()
            .map_or(0, |device| device.count * device.cores);
        let addresses = if shape.family.is_windows() && &*self.arch() == labels::ARCH_AMD64 {
            self.windows_addresses
        } else {
            0
        };
        let others = [
            (POD_ENI, self.branch_interfaces),
            (EFA, efa),
            (NEURON, neuron),
            (NEURON_CORE, cores),
            (PRIVATE_IPV4, addresses),
        ];
        for (name, amount) in gpus.into_iter().chain(others) {
            capacity.set(name, amount);
        }
        capacity
    }

    /// Memory that the guest sees: less what ARM instances and the hypervisor keep.
    fn memory_bytes(&self, shape: &NodeSettings) -> i64 {
        let arm = self
            .architectures
            .first()
            .is_some_and(|first| &**first == "arm64");
        let mib = self.memory_mib - if arm { ARM_MEMORY_MIB } else { 0 };
        let product = i128::from(mib) * i128::from(shape.options.vm_overhead_ppm);
        let kept = product.div_euclid(1_000_000) + i128::from(product.rem_euclid(1_000_000) != 0);
        (mib - i64::try_from(kept).unwrap_or(mib)).max(0) * MIB
    }

    /// Pods that the addresses of the network interfaces allow.
    fn eni_pods(&self, shape: &NodeSettings, reserved: i64) -> i64 {
        let most = self
            .interfaces
            .get(self.default_card)
            .copied()
            .unwrap_or_default();
        let fabric = count(
            shape
                .interfaces
                .iter()
                .filter(|each| each.efa_only && each.card == 0),
        );
        let usable = most - reserved - fabric;
        if usable <= 0 {
            0
        } else {
            usable * (self.ipv4_per_interface - 1) + 2
        }
    }

    /// Pods that a node may run.
    #[must_use]
    pub fn pods(&self, shape: &NodeSettings) -> i64 {
        let most = match shape.max_pods {
            Some(most) => most,
            None if shape.family.eni_limited_pods() => {
                self.eni_pods(shape, shape.options.reserved_enis)
            }
            None => DEFAULT_MAX_PODS,
        };
        match shape
            .pods_per_core
            .filter(|per_core| *per_core > 0 && shape.family.pods_per_core())
        {
            Some(per_core) => most.min(per_core.saturating_mul(self.vcpus)),
            None => most,
        }
    }

    /// What the kubelet keeps for itself. Units as [`Resources`].
    #[must_use]
    pub fn kube_reserved(&self, shape: &NodeSettings) -> Resources {
        // Interfaces kept from pods still count here: the reference implementation does so for these families.
        let pods = if shape.family.eni_limited_memory_overhead() {
            self.eni_pods(shape, 0)
        } else {
            self.pods(shape)
        };
        let own = &shape.kube_reserved;
        Resources {
            cpu: own.cpu.unwrap_or_else(|| reserved_cpu(self.vcpus * 1000)),
            memory: own.memory.unwrap_or((11 * pods + 255) * MIB),
            ephemeral_storage: own.ephemeral_storage.unwrap_or(GIB),
            ..Resources::default()
        }
    }

    /// What the system keeps. Units as [`Resources`].
    #[must_use]
    pub fn system_reserved(&self, shape: &NodeSettings) -> Resources {
        let own = &shape.system_reserved;
        Resources {
            cpu: own.cpu.unwrap_or_default(),
            memory: own.memory.unwrap_or_default(),
            ephemeral_storage: own.ephemeral_storage.unwrap_or_default(),
            ..Resources::default()
        }
    }

    /// What must stay free or the kubelet evicts pods: 100 MiB of memory and a tenth of the disk unless the class says otherwise.
    #[must_use]
    pub fn eviction_threshold(&self, shape: &NodeSettings, capacity: &Resources) -> Resources {
        let memory = shape
            .evict_memory
            .unwrap_or(Threshold::Bytes(100 * MIB))
            .of(capacity.memory);
        let disk = shape
            .evict_disk
            .unwrap_or(Threshold::Percent {
                digits: 10,
                scale: 0,
            })
            .of(capacity.ephemeral_storage);
        Resources {
            memory,
            ephemeral_storage: disk,
            ..Resources::default()
        }
    }

    fn overhead(&self, shape: &NodeSettings, capacity: &Resources) -> Resources {
        self.kube_reserved(shape)
            .add(&self.system_reserved(shape))
            .add(&self.eviction_threshold(shape, capacity))
    }
}

/// CPU that the kubelet keeps, in milli: 6 % of the first core, 1 % of the second, 0.5 % of the next two, 0.25 % of the rest; each
/// step is cut to whole millicores.
fn reserved_cpu(milli: i64) -> i64 {
    let steps = [
        (0, 1000, 600),
        (1000, 2000, 100),
        (2000, 4000, 50),
        (4000, i64::MAX, 25),
    ]; // hundredths of a per cent
    steps
        .into_iter()
        .map(|(from, to, share)| (milli.min(to) - from).max(0) * share / 10_000)
        .sum()
}

/// A name as a label value: lower case, dashes for spaces.
fn kebab(name: &str) -> Arc<str> {
    Arc::from(name.to_lowercase().replace(' ', "-"))
}

fn flag(yes: bool) -> Option<Arc<str>> {
    Some(Arc::from(if yes { "true" } else { "false" }))
}

fn number(value: i64) -> Option<Arc<str>> {
    Some(Arc::from(value.to_string()))
}

fn count<T>(items: impl Iterator<Item = T>) -> i64 {
    i64::try_from(items.count()).unwrap_or(i64::MAX)
}
