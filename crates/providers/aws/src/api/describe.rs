//! What EC2 sells: instance types, zones and spot prices, in our words.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use aws_sdk_ec2::types::{self, Filter, LocationType};
use mortise_core::money::MicroUsd;

use super::Api;
use crate::catalog::Catalog;
use crate::failure::Failure;
use crate::instance_type_info::{Accelerator, Gpu, InstanceTypeInfo, Neuron};

/// One filter of a describe call.
pub(crate) fn filter<V: Into<String>>(
    name: impl Into<String>,
    values: impl IntoIterator<Item = V>,
) -> Filter {
    Filter::builder()
        .name(name)
        .set_values(Some(values.into_iter().map(Into::into).collect()))
        .build()
}

/// All instance types that nodes can be made of. # Shape: sorted by name.
pub(crate) async fn instance_types(
    api: &Api,
    tables: &Catalog,
) -> Result<Vec<InstanceTypeInfo>, Failure> {
    let mut pages = api
        .ec2
        .describe_instance_types()
        .filters(filter("supported-virtualization-type", ["hvm"]))
        .filters(filter(
            "processor-info.supported-architecture",
            ["x86_64", "arm64"],
        ))
        .max_results(100)
        .into_paginator()
        .send();
    let mut all = Vec::new();
    while let Some(page) = pages.next().await {
        let page = page.map_err(|error| api.failure("ec2:DescribeInstanceTypes", error))?;
        all.extend(
            page.instance_types()
                .iter()
                .filter_map(|each| convert(each, tables)),
        );
    }
    all.retain(InstanceTypeInfo::usable);
    all.sort_by(|a: &InstanceTypeInfo, b| a.name.cmp(&b.name));
    Ok(all)
}

/// Which zones offer which types.
pub(crate) async fn offerings(
    api: &Api,
) -> Result<BTreeMap<Arc<str>, BTreeSet<Arc<str>>>, Failure> {
    let mut pages = api
        .ec2
        .describe_instance_type_offerings()
        .location_type(LocationType::AvailabilityZone)
        .max_results(1000)
        .into_paginator()
        .send();
    let mut all: BTreeMap<Arc<str>, BTreeSet<Arc<str>>> = BTreeMap::new();
    let mut zones: BTreeSet<Arc<str>> = BTreeSet::new(); // one text per zone, not one per offering
    while let Some(page) = pages.next().await {
        let page = page.map_err(|error| api.failure("ec2:DescribeInstanceTypeOfferings", error))?;
        for offering in page.instance_type_offerings() {
            if let (Some(name), Some(zone)) = (offering.instance_type(), offering.location()) {
                let zone = zones.get(zone).map_or_else(|| Arc::from(zone), Arc::clone);
                zones.insert(Arc::clone(&zone));
                all.entry(Arc::from(name.as_str()))
                    .or_default()
                    .insert(zone);
            }
        }
    }
    Ok(all)
}

/// Spot prices by type and zone.
pub(crate) type SpotPrices = BTreeMap<Arc<str>, BTreeMap<Arc<str>, MicroUsd>>;

/// By zone: when a price was set (seconds), and the price.
type LatestByZone = BTreeMap<Arc<str>, (i64, MicroUsd)>;

/// The spot prices of now. Where EC2 gives several for a type and zone, the latest counts.
pub(crate) async fn spot_prices(api: &Api) -> Result<SpotPrices, Failure> {
    let mut pages = api
        .ec2
        .describe_spot_price_history()
        .product_descriptions("Linux/UNIX")
        .product_descriptions("Linux/UNIX (Amazon VPC)")
        .start_time(std::time::SystemTime::now().into())
        .max_results(1000)
        .into_paginator()
        .send();
    let mut latest: BTreeMap<Arc<str>, LatestByZone> = BTreeMap::new();
    while let Some(page) = pages.next().await {
        let page = page.map_err(|error| api.failure("ec2:DescribeSpotPriceHistory", error))?;
        for row in page.spot_price_history() {
            let price = row
                .spot_price()
                .and_then(|price| price.parse().ok())
                .and_then(MicroUsd::from_dollars)
                .filter(|price| price.0 > 0);
            let (Some(name), Some(zone), Some(price)) =
                (row.instance_type(), row.availability_zone(), price)
            else {
                continue;
            };
            let at = row
                .timestamp()
                .map_or(0, aws_sdk_ec2::primitives::DateTime::secs);
            let known = latest
                .entry(Arc::from(name.as_str()))
                .or_default()
                .entry(Arc::from(zone))
                .or_insert((at, price));
            if at >= known.0 {
                *known = (at, price);
            }
        }
    }
    Ok(latest
        .into_iter()
        .map(|(name, zones)| {
            (
                name,
                zones
                    .into_iter()
                    .map(|(zone, (_, price))| (zone, price))
                    .collect(),
            )
        })
        .collect())
}

fn shared(text: &str) -> Arc<str> {
    Arc::from(text)
}

/// EC2's description in our words; `None` when it lacks what a node cannot be planned without.
pub(crate) fn convert(
    info: &types::InstanceTypeInfo,
    tables: &Catalog,
) -> Option<InstanceTypeInfo> {
    let name = shared(info.instance_type()?.as_str());
    let processor = info.processor_info()?;
    let network = info.network_info()?;
    let ebs = info.ebs_info();
    let disks = info.instance_storage_info();
    let optimised =
        ebs.filter(|ebs| ebs.ebs_optimized_support() == Some(&types::EbsOptimizedSupport::Default));
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
    let known = tables.tables(&name);
    let gpus = info
        .gpu_info()
        .map(types::GpuInfo::gpus)
        .unwrap_or_default();
    let inference = info
        .inference_accelerator_info()
        .map(types::InferenceAcceleratorInfo::accelerators)
        .unwrap_or_default();
    let neuron = info
        .neuron_info()
        .map(types::NeuronInfo::neuron_devices)
        .unwrap_or_default();
    let count = |number: Option<i32>| i64::from(number.unwrap_or(0));
    let word = |text: Option<&str>| shared(text.unwrap_or_default());
    Some(InstanceTypeInfo {
        architectures: processor
            .supported_architectures()
            .iter()
            .map(|each| shared(each.as_str()))
            .collect(),
        vcpus: i64::from(info.v_cpu_info()?.default_v_cpus()?),
        memory_mib: info.memory_info()?.size_in_mib()?,
        cpu_manufacturer: processor.manufacturer().map(shared),
        clock_mhz: processor.sustained_clock_speed_in_ghz().and_then(megahertz),
        nested_virtualization: processor
            .supported_features()
            .iter()
            .any(|each| each.as_str() == "nested-virtualization"),
        usage: info
            .supported_usage_classes()
            .iter()
            .map(|each| shared(each.as_str()))
            .collect(),
        virtualization: info
            .supported_virtualization_types()
            .iter()
            .map(|each| shared(each.as_str()))
            .collect(),
        hypervisor: info.hypervisor().map(|each| shared(each.as_str())),
        enclaves: info.nitro_enclaves_support() == Some(&types::NitroEnclavesSupport::Supported),
        placement: info
            .placement_group_info()
            .map(types::PlacementGroupInfo::supported_strategies)
            .unwrap_or_default()
            .iter()
            .map(|each| shared(each.as_str()))
            .collect(),
        ebs_mbps: optimised
            .and_then(types::EbsInfo::ebs_optimized_info)
            .and_then(types::EbsOptimizedInfo::maximum_bandwidth_in_mbps)
            .map(i64::from),
        network_mbps: known.and_then(|tables| tables.network_mbps),
        disk_gb: disks
            .and_then(types::InstanceStorageInfo::total_size_in_gb)
            .unwrap_or(0),
        nvme: disks.is_some_and(|disks| {
            disks.nvme_support() != Some(&types::EphemeralNvmeSupport::Unsupported)
        }),
        ena: network
            .ena_support()
            .is_some_and(|support| *support != types::EnaSupport::Unsupported),
        encryption_in_transit: network.encryption_in_transit_supported().unwrap_or(false),
        ipv4_per_interface: i64::from(network.ipv4_addresses_per_interface()?),
        interfaces: cards.iter().map(|(_, most)| i64::from(*most)).collect(),
        default_card: usize::try_from(network.default_network_card_index().unwrap_or(0))
            .unwrap_or(0),
        efa: network
            .efa_info()
            .and_then(types::EfaInfo::maximum_efa_interfaces)
            .map_or(0, i64::from),
        gpus: gpus
            .iter()
            .map(|gpu| Gpu {
                name: word(gpu.name()),
                manufacturer: word(gpu.manufacturer()),
                count: count(gpu.count()),
                memory_mib: count(
                    gpu.memory_info()
                        .and_then(types::GpuDeviceMemoryInfo::size_in_mib),
                ),
            })
            .collect(),
        inference: inference
            .iter()
            .map(|each| Accelerator {
                name: word(each.name()),
                manufacturer: word(each.manufacturer()),
                count: count(each.count()),
            })
            .collect(),
        neuron: neuron
            .iter()
            .map(|each| Neuron {
                name: word(each.name()),
                count: count(each.count()),
                cores: count(
                    each.core_info()
                        .and_then(types::NeuronDeviceCoreInfo::count),
                ),
            })
            .collect(),
        branch_interfaces: known.map_or(0, |tables| tables.branch_interfaces),
        windows_addresses: known.map_or(0, |tables| tables.windows_addresses),
        name,
    })
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
