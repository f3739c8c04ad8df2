//! Spot prices by type and zone. Until they could be read once, the on-demand price stands for them: the careful guess. Afterwards
//! a zone without a price sells no spot instance of the type.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::SystemTime;

use aws_sdk_ec2::primitives::DateTime;
use mortise_apis::values::money::MicroUsd;

use crate::offerings::price_list::{AmountByType, PriceError, amount};
use crate::sdk::AwsClients;

/// Rows per page, the reference implementation's number: half the calls of EC2's default.
const PAGE_SIZE: i32 = 2000;
/// Most pages of one answer: twenty times what the largest region has.
const MAX_PAGES: usize = 300;

/// When a price was set (seconds and their fraction), and the price.
type DatedPrice = ((i64, u32), MicroUsd);

/// Spot prices by type and zone.
pub(crate) type SpotByType = BTreeMap<Arc<str>, AmountByType>;

/// The spot prices of now. Where EC2 gives several for a type and zone, the latest counts, and of several at one time the last.
pub(crate) async fn read(clients: &AwsClients) -> Result<SpotByType, PriceError> {
    const ACTION: &str = "ec2:DescribeSpotPriceHistory";
    let call = clients.ec2.describe_spot_price_history();
    let pages = call
        .product_descriptions("Linux/UNIX")
        .product_descriptions("Linux/UNIX (Amazon VPC)")
        .start_time(SystemTime::now().into())
        .max_results(PAGE_SIZE)
        .into_paginator();
    let mut pages = pages.stop_on_duplicate_token(false).send();
    let mut latest: BTreeMap<Arc<str>, BTreeMap<Arc<str>, DatedPrice>> = BTreeMap::new();
    let mut names: BTreeSet<Arc<str>> = BTreeSet::new(); // one text per zone, not one per price
    let mut count = 0;
    while let Some(page) = pages.next().await {
        let page = page.map_err(|error| clients.failure(ACTION, error))?;
        for row in page.spot_price_history() {
            let (Some(name), Some(zone), Some(price)) = (
                row.instance_type(),
                row.availability_zone(),
                row.spot_price().and_then(amount),
            ) else {
                continue;
            };
            let set = row.timestamp().map_or((0, 0), set_at);
            let zones = latest.entry(Arc::from(name.as_str())).or_default();
            let zone = names.get(zone).map_or_else(|| Arc::from(zone), Arc::clone);
            names.insert(Arc::clone(&zone));
            let known = zones.entry(zone).or_insert((set, price));
            if set >= known.0 {
                *known = (set, price);
            }
        }
        count += 1;
        if count == MAX_PAGES {
            return Err(PriceError::Endless {
                action: ACTION,
                pages: count,
            });
        }
    }
    if latest.is_empty() {
        return Err(PriceError::NoSpot);
    }
    let undated = |zones: BTreeMap<Arc<str>, DatedPrice>| {
        let prices = zones.into_iter().map(|(zone, (_, price))| (zone, price));
        prices.collect()
    };
    let prices = latest
        .into_iter()
        .map(|(name, zones)| (name, undated(zones)));
    Ok(prices.collect())
}

fn set_at(time: &DateTime) -> (i64, u32) {
    (time.secs(), time.subsec_nanos())
}
