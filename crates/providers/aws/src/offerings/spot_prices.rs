//! Spot prices by type and zone. Until they could be read once, the on-demand price stands for them: the careful guess. Afterwards
//! a zone without a price sells no spot instance of the type.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::SystemTime;

use crate::offerings::price_list::{AmountByType, PriceError, amount};
use crate::sdk::AwsClients;

/// Rows per page, the reference implementation's number: half the calls of EC2's default.
const PAGE_SIZE: i32 = 2000;
/// Most pages of one answer: twenty times what the largest region has.
const MAX_PAGES: usize = 300;

/// Spot prices by type and zone.
pub(crate) type SpotByType = BTreeMap<Arc<str>, AmountByType>;

/// The spot prices of now. Of several for a type and zone the last counts: EC2 lists one for each product, at one price.
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
    let mut all = SpotByType::new();
    let mut zones: BTreeSet<Arc<str>> = BTreeSet::new(); // one text per zone, not one per price
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
            let zone = zones.get(zone).map_or_else(|| Arc::from(zone), Arc::clone);
            zones.insert(Arc::clone(&zone));
            let own = all.entry(Arc::from(name.as_str())).or_default();
            own.insert(zone, price);
        }
        count += 1;
        if count == MAX_PAGES {
            return Err(PriceError::Endless {
                action: ACTION,
                pages: count,
            });
        }
    }
    if all.is_empty() {
        return Err(PriceError::NoSpot);
    }
    Ok(all)
}
