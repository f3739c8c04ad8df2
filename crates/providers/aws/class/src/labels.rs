//! Label keys of the AWS provider.

use mortise_apis::labels::WellKnown;
use mortise_apis::node_class::{KeyLocation, LabelTable};

/// Group of `EC2NodeClass`, and the provider's restricted label domain.
pub const GROUP: &str = "karpenter.k8s.aws";
/// Label on claims and nodes: name of the EC2NodeClass.
pub const NODE_CLASS: &str = "karpenter.k8s.aws/ec2nodeclass";
/// Label: zone identifier that is the same for all accounts, such as `use1-az1`.
pub const ZONE_ID: &str = "topology.k8s.aws/zone-id";
/// Label: capacity reservation.
pub const CAPACITY_RESERVATION_ID: &str = "karpenter.k8s.aws/capacity-reservation-id";
/// Label: whether the capacity reservation can be reclaimed.
pub const CAPACITY_RESERVATION_INTERRUPTIBLE: &str =
    "karpenter.k8s.aws/capacity-reservation-interruptible";
/// Label: kind of capacity reservation.
pub const CAPACITY_RESERVATION_TYPE: &str = "karpenter.k8s.aws/capacity-reservation-type";
/// Value of [`CAPACITY_RESERVATION_TYPE`] for Capacity Blocks, and EC2's word for the reservation and the market.
pub const CAPACITY_BLOCK: &str = "capacity-block";
/// Label: number of accelerators.
pub const INSTANCE_ACCELERATOR_COUNT: &str = "karpenter.k8s.aws/instance-accelerator-count";
/// Label: maker of the accelerators.
pub const INSTANCE_ACCELERATOR_MANUFACTURER: &str =
    "karpenter.k8s.aws/instance-accelerator-manufacturer";
/// Label: name of the accelerators.
pub const INSTANCE_ACCELERATOR_NAME: &str = "karpenter.k8s.aws/instance-accelerator-name";
/// Label: whether it is a flex type.
pub const INSTANCE_CAPABILITY_FLEX: &str = "karpenter.k8s.aws/instance-capability-flex";
/// Label: letters before the generation, such as `m`.
pub const INSTANCE_CATEGORY: &str = "karpenter.k8s.aws/instance-category";
/// Label: number of vCPUs.
pub const INSTANCE_CPU: &str = "karpenter.k8s.aws/instance-cpu";
/// Label: maker of the processor.
pub const INSTANCE_CPU_MANUFACTURER: &str = "karpenter.k8s.aws/instance-cpu-manufacturer";
/// Label: sustained clock speed in MHz.
pub const INSTANCE_CPU_SUSTAINED_CLOCK_SPEED_MHZ: &str =
    "karpenter.k8s.aws/instance-cpu-sustained-clock-speed-mhz";
/// Label: EBS bandwidth in Mbit/s.
pub const INSTANCE_EBS_BANDWIDTH: &str = "karpenter.k8s.aws/instance-ebs-bandwidth";
/// Label: whether traffic between instances is encrypted.
pub const INSTANCE_ENCRYPTION_IN_TRANSIT_SUPPORTED: &str =
    "karpenter.k8s.aws/instance-encryption-in-transit-supported";
/// Label: text before the dot, such as `m5`.
pub const INSTANCE_FAMILY: &str = "karpenter.k8s.aws/instance-family";
/// Label: generation number.
pub const INSTANCE_GENERATION: &str = "karpenter.k8s.aws/instance-generation";
/// Label: number of GPUs.
pub const INSTANCE_GPU_COUNT: &str = "karpenter.k8s.aws/instance-gpu-count";
/// Label: maker of the GPUs.
pub const INSTANCE_GPU_MANUFACTURER: &str = "karpenter.k8s.aws/instance-gpu-manufacturer";
/// Label: GPU memory in MiB.
pub const INSTANCE_GPU_MEMORY: &str = "karpenter.k8s.aws/instance-gpu-memory";
/// Label: name of the GPUs.
pub const INSTANCE_GPU_NAME: &str = "karpenter.k8s.aws/instance-gpu-name";
/// Label: hypervisor; absent on bare metal.
pub const INSTANCE_HYPERVISOR: &str = "karpenter.k8s.aws/instance-hypervisor";
/// Label: local NVMe storage in GB.
pub const INSTANCE_LOCAL_NVME: &str = "karpenter.k8s.aws/instance-local-nvme";
/// Label: memory in MiB.
pub const INSTANCE_MEMORY: &str = "karpenter.k8s.aws/instance-memory";
/// Label: network bandwidth in Mbit/s.
pub const INSTANCE_NETWORK_BANDWIDTH: &str = "karpenter.k8s.aws/instance-network-bandwidth";
/// Label: text after the dot, such as `large`.
pub const INSTANCE_SIZE: &str = "karpenter.k8s.aws/instance-size";
/// Label: tenancy, `default` or `dedicated`.
pub const INSTANCE_TENANCY: &str = "karpenter.k8s.aws/instance-tenancy";
/// Label: whether the type can run Nitro enclaves.
pub const NITRO_SANDBOX: &str = "karpenter.k8s.aws/nitro-sandbox";
/// Label: placement group.
pub const PLACEMENT_GROUP_ID: &str = "karpenter.k8s.aws/placement-group-id";
/// Label: partition in a placement group.
pub const PLACEMENT_GROUP_PARTITION: &str = "karpenter.k8s.aws/placement-group-partition";
/// Labels that NodePools may require without defining them.
pub const WELL_KNOWN: [&str; 29] = [
    CAPACITY_RESERVATION_ID,
    CAPACITY_RESERVATION_INTERRUPTIBLE,
    CAPACITY_RESERVATION_TYPE,
    INSTANCE_ACCELERATOR_COUNT,
    INSTANCE_ACCELERATOR_MANUFACTURER,
    INSTANCE_ACCELERATOR_NAME,
    INSTANCE_CAPABILITY_FLEX,
    INSTANCE_CATEGORY,
    INSTANCE_CPU,
    INSTANCE_CPU_MANUFACTURER,
    INSTANCE_CPU_SUSTAINED_CLOCK_SPEED_MHZ,
    INSTANCE_EBS_BANDWIDTH,
    INSTANCE_ENCRYPTION_IN_TRANSIT_SUPPORTED,
    INSTANCE_FAMILY,
    INSTANCE_GENERATION,
    INSTANCE_GPU_COUNT,
    INSTANCE_GPU_MANUFACTURER,
    INSTANCE_GPU_MEMORY,
    INSTANCE_GPU_NAME,
    INSTANCE_HYPERVISOR,
    INSTANCE_LOCAL_NVME,
    INSTANCE_MEMORY,
    INSTANCE_NETWORK_BANDWIDTH,
    INSTANCE_SIZE,
    INSTANCE_TENANCY,
    NITRO_SANDBOX,
    PLACEMENT_GROUP_ID,
    PLACEMENT_GROUP_PARTITION,
    ZONE_ID,
];

/// Keys that describe what was launched: the first and the last of [`OPEN`]. They can be required, but an overlay cannot
/// depend on them.
const LAUNCH_KEYS: usize = 4;
const PLACEMENT_KEYS: usize = 2;

/// Names in [`GROUP`] that users may set.
const OPEN: [&str; 29] = [
    "instance-tenancy",
    "capacity-reservation-type",
    "capacity-reservation-id",
    "capacity-reservation-interruptible",
    "ec2nodeclass",
    "instance-encryption-in-transit-supported",
    "nitro-sandbox",
    "instance-category",
    "instance-hypervisor",
    "instance-family",
    "instance-generation",
    "instance-local-nvme",
    "instance-size",
    "instance-cpu",
    "instance-cpu-manufacturer",
    "instance-cpu-sustained-clock-speed-mhz",
    "instance-memory",
    "instance-ebs-bandwidth",
    "instance-network-bandwidth",
    "instance-gpu-name",
    "instance-gpu-manufacturer",
    "instance-gpu-count",
    "instance-gpu-memory",
    "instance-accelerator-name",
    "instance-accelerator-manufacturer",
    "instance-accelerator-count",
    "instance-capability-flex",
    "placement-group-id",
    "placement-group-partition",
];

/// Names in [`GROUP`] that overlays may require.
const OPEN_TO_OVERLAYS: &[&str] = {
    let (_, rest) = OPEN.split_at(LAUNCH_KEYS);
    let (open, _) = rest.split_at(rest.len() - PLACEMENT_KEYS);
    open
};

/// The labels of this node class.
pub const LABELS: LabelTable = LabelTable {
    domain: GROUP,
    well_known: &WELL_KNOWN,
    zone_id: Some(ZONE_ID),
    values: &[(INSTANCE_TENANCY, &["dedicated", "default"])],
    open: &[
        (KeyLocation::PoolLabels, &OPEN),
        (KeyLocation::PoolRequirement, &OPEN),
        (KeyLocation::ClaimRequirement, &OPEN),
        (KeyLocation::OverlayRequirement, OPEN_TO_OVERLAYS),
    ],
};

/// The core's keys and those of this provider.
#[must_use]
pub fn well_known() -> WellKnown {
    LABELS.added_to(WellKnown::core())
}
