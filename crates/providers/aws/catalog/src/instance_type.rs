//! From an instance type's description to what the core plans with: labels, capacity, overhead and offerings. Pure.
//!
//! # Source
//! The rules are those of Karpenter's AWS provider 1.14 and are checked against its recorded answers for every instance type of
//! the embedded data (`tests` below, and the recorded cases in the workspace's test data).

use std::collections::BTreeMap;
use std::sync::Arc;

use mortise_apis::labels;
use mortise_apis::resources::Resources;
use mortise_cloudprovider::InstanceType;

use crate::expression_values::ExpressionValues;
use crate::instance_type_info::InstanceTypeInfo;
use crate::launch_zones::LaunchZones;
use crate::node_settings::{GIB, MIB, NodeSettings, Threshold};
use crate::type_requirements::TypeLabels;

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
/// Addresses of a block that the VPC CNI assigns instead of an address: a /28.
const PREFIX_ADDRESSES: i64 = 16;

/// Most pods that AWS recommends on a node, whatever its addresses allow.
/// # Source
/// The maximum pods calculator of EKS (`max-pods-calculator.sh`).
const fn recommended_pods(vcpus: i64) -> i64 {
    if vcpus > 30 { 250 } else { 110 }
}

impl InstanceTypeInfo {
    /// The type as the core plans with it.
    /// # Shape
    /// Offerings are sorted by (zone, capacity type); one without a price, and all of a type that the class cannot use, are not available.
    #[must_use]
    pub fn instance_type(&self, shape: &NodeSettings, placement: &LaunchZones) -> InstanceType {
        let capacity = self.capacity(shape);
        InstanceType {
            name: Arc::clone(&self.name),
            requirements: TypeLabels::new(self, shape, placement).requirements(),
            overhead: self.overhead(shape, &capacity),
            capacity,
            offerings: self.offerings(shape, placement),
            devices: Arc::default(),
        }
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
    pub(crate) fn memory_bytes(&self, shape: &NodeSettings) -> i64 {
        let arm = self
            .architectures
            .first()
            .is_some_and(|first| &**first == "arm64");
        let mib = self.memory_mib - if arm { ARM_MEMORY_MIB } else { 0 };
        let product = i128::from(mib) * i128::from(shape.options.vm_overhead_ppm);
        let kept = product.div_euclid(1_000_000) + i128::from(product.rem_euclid(1_000_000) != 0);
        (mib - i64::try_from(kept).unwrap_or(mib)).max(0) * MIB
    }

    /// Network interfaces that give pods addresses.
    fn usable_interfaces(&self, shape: &NodeSettings, reserved: i64) -> i64 {
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
        (most - reserved - fabric).max(0)
    }

    /// Pods that the addresses of the network interfaces allow.
    fn eni_pods(&self, shape: &NodeSettings, reserved: i64) -> i64 {
        match self.usable_interfaces(shape, reserved) {
            0 => 0,
            usable => usable * (self.ipv4_per_interface - 1) + 2,
        }
    }

    /// Pods that the container network gives addresses to. With a block in place of each address there are more than a node should
    /// run, so the number has a limit.
    fn network_pods(&self, shape: &NodeSettings) -> i64 {
        let reserved = shape.options.reserved_enis;
        let has_blocks =
            shape.options.prefix_delegation && self.hypervisor.as_deref() == Some("nitro");
        if !has_blocks {
            return self.eni_pods(shape, reserved);
        }
        match self.usable_interfaces(shape, reserved) {
            0 => 0,
            usable => {
                let addresses = usable * (self.ipv4_per_interface - 1) * PREFIX_ADDRESSES + 2;
                addresses.min(recommended_pods(self.vcpus))
            }
        }
    }

    /// Pods that a node may run.
    #[must_use]
    pub fn pods(&self, shape: &NodeSettings) -> i64 {
        let by_family = || {
            if shape.family.eni_limited_pods() {
                self.network_pods(shape)
            } else {
                DEFAULT_MAX_PODS
            }
        };
        let most = match (shape.max_pods, &shape.max_pods_expression) {
            (Some(most), _) => most,
            (None, Some(expression)) => ExpressionValues::new(self, shape)
                .max_pods(expression, by_family())
                .unwrap_or_else(|_| by_family()), // such a type is refused, see `max_pods_failure`
            (None, None) => by_family(),
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
        let own = ExpressionValues::new(self, shape)
            .reserved(&shape.kube_reserved, &shape.kube_reserved_expressions);
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
        let (amounts, expressions) = (&shape.system_reserved, &shape.system_reserved_expressions);
        let own = ExpressionValues::new(self, shape).reserved(amounts, expressions);
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

fn count<T>(items: impl Iterator<Item = T>) -> i64 {
    i64::try_from(items.count()).unwrap_or(i64::MAX)
}
