//! What EC2 offers: instance types, zones and spot prices.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use aws_sdk_ec2::types::LocationType;
use mortise_apis::values::money::MicroUsd;

use crate::failure::Failure;
use crate::offerings::described_type;
use crate::sdk::AwsClients;
use crate::sdk::arguments::filter;
use mortise_aws_catalog::Ec2Catalog;
use mortise_aws_catalog::instance_type_info::InstanceTypeInfo;

/// All instance types that nodes can be made of. # Shape: sorted by name.
pub(crate) async fn instance_types(
    clients: &AwsClients,
    tables: &Ec2Catalog,
) -> Result<Vec<InstanceTypeInfo>, Failure> {
    let mut pages = clients
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
        let page = page.map_err(|error| clients.failure("ec2:DescribeInstanceTypes", error))?;
        all.extend(
            page.instance_types()
                .iter()
                .filter_map(|each| described_type::convert(each, tables)),
        );
    }
    all.retain(InstanceTypeInfo::usable);
    all.sort_by(|a: &InstanceTypeInfo, b| a.name.cmp(&b.name));
    Ok(all)
}

/// Which zones offer which types.
pub(crate) async fn offerings(
    clients: &AwsClients,
) -> Result<BTreeMap<Arc<str>, BTreeSet<Arc<str>>>, Failure> {
    let mut pages = clients
        .ec2
        .describe_instance_type_offerings()
        .location_type(LocationType::AvailabilityZone)
        .max_results(1000)
        .into_paginator()
        .send();
    let mut all: BTreeMap<Arc<str>, BTreeSet<Arc<str>>> = BTreeMap::new();
    let mut zones: BTreeSet<Arc<str>> = BTreeSet::new(); // one text per zone, not one per offering
    while let Some(page) = pages.next().await {
        let page =
            page.map_err(|error| clients.failure("ec2:DescribeInstanceTypeOfferings", error))?;
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
pub(crate) async fn spot_prices(clients: &AwsClients) -> Result<SpotPrices, Failure> {
    let mut pages = clients
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
        let page = page.map_err(|error| clients.failure("ec2:DescribeSpotPriceHistory", error))?;
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
