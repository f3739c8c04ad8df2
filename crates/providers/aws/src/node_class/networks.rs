//! Subnets and security groups that the terms of a class select.

use std::collections::{BTreeMap, BTreeSet};

use aws_sdk_ec2::types::Filter;
use futures::future::try_join_all;
use mortise_aws_class::spec::{SecurityGroupSelectorTerm, SubnetSelectorTerm};
use mortise_aws_class::status::{SecurityGroup, Subnet};

use crate::failure::Failure;
use crate::sdk::AwsClients;
use crate::sdk::arguments::{filter, tag_filters};

/// A subnet with how many addresses it has left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FoundSubnet {
    /// As the class's status lists it.
    pub(crate) subnet: Subnet,
    /// Free addresses.
    pub(crate) free: i32,
}

/// The selected subnets, those with the most free addresses first.
pub(crate) async fn subnets(
    clients: &AwsClients,
    terms: &[SubnetSelectorTerm],
) -> Result<Vec<FoundSubnet>, Failure> {
    let ids: BTreeSet<&String> = terms.iter().filter_map(|term| term.id.as_ref()).collect();
    let mut queries: Vec<Vec<Filter>> = Vec::new();
    if !ids.is_empty() {
        queries.push(vec![filter("subnet-id", ids)]);
    }
    queries.extend(
        terms
            .iter()
            .filter(|term| term.id.is_none())
            .filter_map(|term| term.tags.as_ref())
            .map(tag_filters),
    );
    let answers = try_join_all(queries.into_iter().map(|filters| async {
        let mut pages = clients
            .ec2
            .describe_subnets()
            .set_filters(Some(filters))
            .max_results(500)
            .into_paginator()
            .send();
        let mut found = Vec::new();
        while let Some(page) = pages.next().await {
            found.extend(
                page.map_err(|error| clients.failure("ec2:DescribeSubnets", error))?
                    .subnets
                    .unwrap_or_default(),
            );
        }
        Ok::<_, Failure>(found)
    }))
    .await?;
    let mut by_id: BTreeMap<String, FoundSubnet> = BTreeMap::new();
    for each in answers.into_iter().flatten() {
        if let Some(id) = each.subnet_id {
            let subnet = Subnet {
                id: id.clone(),
                zone: each.availability_zone.unwrap_or_default(),
                zone_id: each.availability_zone_id,
            };
            by_id.insert(
                id,
                FoundSubnet {
                    subnet,
                    free: each.available_ip_address_count.unwrap_or(0),
                },
            );
        }
    }
    let mut found: Vec<_> = by_id.into_values().collect();
    found.sort_by_key(|each| std::cmp::Reverse(each.free)); // stable: equal ones stay in the order of their ids
    Ok(found)
}

/// The selected security groups, by id.
pub(crate) async fn security_groups(
    clients: &AwsClients,
    terms: &[SecurityGroupSelectorTerm],
) -> Result<Vec<SecurityGroup>, Failure> {
    let ids: BTreeSet<&String> = terms.iter().filter_map(|term| term.id.as_ref()).collect();
    let names: BTreeSet<&String> = terms
        .iter()
        .filter(|term| term.id.is_none())
        .filter_map(|term| term.name.as_ref())
        .collect();
    let mut queries: Vec<Vec<Filter>> = Vec::new();
    if !ids.is_empty() {
        queries.push(vec![filter("group-id", ids)]);
    }
    if !names.is_empty() {
        queries.push(vec![filter("group-name", names)]);
    }
    queries.extend(
        terms
            .iter()
            .filter(|term| term.id.is_none() && term.name.is_none())
            .filter_map(|term| term.tags.as_ref())
            .map(tag_filters),
    );
    let answers = try_join_all(queries.into_iter().map(|filters| async {
        let mut pages = clients
            .ec2
            .describe_security_groups()
            .set_filters(Some(filters))
            .max_results(500)
            .into_paginator()
            .send();
        let mut found = Vec::new();
        while let Some(page) = pages.next().await {
            found.extend(
                page.map_err(|error| clients.failure("ec2:DescribeSecurityGroups", error))?
                    .security_groups
                    .unwrap_or_default(),
            );
        }
        Ok::<_, Failure>(found)
    }))
    .await?;
    let groups = answers
        .into_iter()
        .flatten()
        .filter_map(|each| Some((each.group_id?, each.group_name)));
    let by_id: BTreeMap<String, Option<String>> = groups.collect();
    Ok(by_id
        .into_iter()
        .map(|(id, name)| SecurityGroup { id, name })
        .collect())
}
