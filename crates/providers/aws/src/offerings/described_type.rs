//! From EC2's description of an instance type to [`InstanceTypeInfo`]. Pure.

use std::sync::Arc;

use aws_sdk_ec2::types;

use mortise_aws_catalog::Ec2Catalog;
use mortise_aws_catalog::instance_type_info::{Accelerator, Gpu, InstanceTypeInfo, Neuron};

/// EC2's description in our words; `None` when it lacks what a node cannot be planned without.
pub(crate) fn convert(
    info: &types::InstanceTypeInfo,
    tables: &Ec2Catalog,
) -> Option<InstanceTypeInfo> {
    let name = shared(info.instance_type()?.as_str());
    let processor = info.processor_info()?;
    let network = info.network_info()?;
    let disks = info.instance_storage_info();
    let known = tables.tables(&name);
    Some(InstanceTypeInfo {
        architectures: words(processor.supported_architectures(), |each| each.as_str()),
        vcpus: i64::from(info.v_cpu_info()?.default_v_cpus()?),
        memory_mib: info.memory_info()?.size_in_mib()?,
        cpu_manufacturer: processor.manufacturer().map(shared),
        clock_mhz: processor.sustained_clock_speed_in_ghz().and_then(megahertz),
        nested_virtualization: processor
            .supported_features()
            .iter()
            .any(|each| each.as_str() == "nested-virtualization"),
        usage: words(info.supported_usage_classes(), |each| each.as_str()),
        virtualization: words(info.supported_virtualization_types(), |each| each.as_str()),
        hypervisor: info.hypervisor().map(|each| shared(each.as_str())),
        enclaves: info.nitro_enclaves_support() == Some(&types::NitroEnclavesSupport::Supported),
        placement: words(
            info.placement_group_info()
                .map(types::PlacementGroupInfo::supported_strategies)
                .unwrap_or_default(),
            |each| each.as_str(),
        ),
        ebs_mbps: ebs_mbps(info),
        network_mbps: known.and_then(|tables| tables.network_mbps),
        disk_gb: disks
            .and_then(types::InstanceStorageInfo::total_size_in_gb)
            .unwrap_or(0),
        nvme: disks.is_some_and(|disks| {
            disks.nvme_support() != Some(&types::EphemeralNvmeSupport::Unsupported)
        }),
        ena: network.ena_support() != Some(&types::EnaSupport::Unsupported),
        encryption_in_transit: network.encryption_in_transit_supported().unwrap_or(false),
        ipv4_per_interface: i64::from(network.ipv4_addresses_per_interface()?),
        interfaces: interfaces(network)?,
        default_card: usize::try_from(network.default_network_card_index().unwrap_or(0))
            .unwrap_or(0),
        efa: network
            .efa_info()
            .and_then(types::EfaInfo::maximum_efa_interfaces)
            .map_or(0, i64::from),
        gpus: gpus(info),
        inference: inference(info),
        neuron: neuron(info),
        branch_interfaces: known.map_or(0, |tables| tables.branch_interfaces),
        windows_addresses: known.map_or(0, |tables| tables.windows_addresses),
        name,
    })
}

fn shared(text: &str) -> Arc<str> {
    Arc::from(text)
}

fn words<T>(all: &[T], word: impl Fn(&T) -> &str) -> Vec<Arc<str>> {
    all.iter().map(|each| shared(word(each))).collect()
}

/// A name that EC2 may leave out.
fn name_or_empty(text: Option<&str>) -> Arc<str> {
    shared(text.unwrap_or_default())
}

fn count(number: Option<i32>) -> i64 {
    i64::from(number.unwrap_or(0))
}

/// Most bandwidth to EBS, where EBS optimization is on by default.
fn ebs_mbps(info: &types::InstanceTypeInfo) -> Option<i64> {
    info.ebs_info()
        .filter(|ebs| ebs.ebs_optimized_support() == Some(&types::EbsOptimizedSupport::Default))
        .and_then(types::EbsInfo::ebs_optimized_info)
        .and_then(types::EbsOptimizedInfo::maximum_bandwidth_in_mbps)
        .map(i64::from)
}

/// Most interfaces by card index. A type whose cards EC2 does not list has one card.
fn interfaces(network: &types::NetworkInfo) -> Option<Vec<i64>> {
    let mut cards: Vec<_> = network
        .network_cards()
        .iter()
        .map(|card| {
            (
                card.network_card_index().unwrap_or(0),
                card.maximum_network_interfaces().unwrap_or(0),
            )
        })
        .collect();
    cards.sort_unstable();
    if cards.is_empty() {
        cards.push((0, network.maximum_network_interfaces()?));
    }
    Some(cards.iter().map(|(_, most)| i64::from(*most)).collect())
}

fn gpus(info: &types::InstanceTypeInfo) -> Vec<Gpu> {
    let gpus = info
        .gpu_info()
        .map(types::GpuInfo::gpus)
        .unwrap_or_default();
    gpus.iter()
        .map(|gpu| Gpu {
            name: name_or_empty(gpu.name()),
            manufacturer: name_or_empty(gpu.manufacturer()),
            count: count(gpu.count()),
            memory_mib: count(
                gpu.memory_info()
                    .and_then(types::GpuDeviceMemoryInfo::size_in_mib),
            ),
        })
        .collect()
}

fn inference(info: &types::InstanceTypeInfo) -> Vec<Accelerator> {
    let accelerators = info
        .inference_accelerator_info()
        .map(types::InferenceAcceleratorInfo::accelerators)
        .unwrap_or_default();
    accelerators
        .iter()
        .map(|each| Accelerator {
            name: name_or_empty(each.name()),
            manufacturer: name_or_empty(each.manufacturer()),
            count: count(each.count()),
        })
        .collect()
}

fn neuron(info: &types::InstanceTypeInfo) -> Vec<Neuron> {
    let devices = info
        .neuron_info()
        .map(types::NeuronInfo::neuron_devices)
        .unwrap_or_default();
    devices
        .iter()
        .map(|each| Neuron {
            name: name_or_empty(each.name()),
            count: count(each.count()),
            cores: count(
                each.core_info()
                    .and_then(types::NeuronDeviceCoreInfo::count),
            ),
        })
        .collect()
}

/// A clock speed in GHz as whole MHz. It is a label, nothing is decided by the fraction.
#[expect(
    clippy::cast_possible_truncation,
    reason = "range is checked before the cast"
)]
fn megahertz(ghz: f64) -> Option<i64> {
    let mhz = (ghz * 1000.0).round();
    (1.0..1e6).contains(&mhz).then_some(mhz as i64)
}
