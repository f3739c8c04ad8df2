//! What EC2 offers: instance types and zones.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use aws_sdk_ec2::types::LocationType;

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
