//! On-demand prices from AWS's price list, for one region in its own currency. Reads; decides nothing.
//!
//! # Source
//! GetProducts of the service AmazonEC2, with the filters of the reference implementation: shared tenancy for all types, dedicated
//! tenancy for bare metal.

use std::collections::BTreeMap;
use std::sync::Arc;

use aws_sdk_pricing::error::SdkError;
use aws_sdk_pricing::operation::get_products::GetProductsError;
use aws_sdk_pricing::types::{Filter, FilterType};
use mortise_apis::values::money::MicroUsd;
use mortise_aws_catalog::Currency;
use serde::Deserialize;

use crate::failure::Failure;
use crate::sdk::AwsClients;

/// Amounts by type, in millionths of the region's currency per hour.
pub(crate) type AmountByType = BTreeMap<Arc<str>, MicroUsd>;

/// Service code of EC2 in the price list.
const SERVICE: &str = "AmazonEC2";
/// Products per page: the most that the API gives.
const PAGE_SIZE: i32 = 100;
/// Most pages of one query: ten times what the largest region has. An answer that does not end is an error, not a full memory.
const MAX_PAGES: usize = 300;

/// The two queries: tenancy and product family.
const QUERIES: [(&str, &str); 2] = [
    ("Shared", "Compute Instance"),
    ("Dedicated", "Compute Instance (bare metal)"),
];

/// Why prices could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PriceError {
    /// A call failed.
    #[error(transparent)]
    Call(#[from] Failure),
    /// The price list answered without a price.
    #[error("no on-demand pricing found")]
    NoOnDemand,
    /// The spot price history answered without a price.
    #[error("no spot pricing found")]
    NoSpot,
    /// The answer does not end.
    #[error("{action}: more than {pages} pages")]
    Endless {
        /// The call.
        action: &'static str,
        /// Pages that were read.
        pages: usize,
    },
}

/// A product, as far as its price goes.
#[derive(Deserialize)]
struct Product {
    product: ProductKind,
    terms: Terms,
}

#[derive(Deserialize)]
struct ProductKind {
    attributes: Attributes,
}

#[derive(Deserialize)]
struct Attributes {
    #[serde(rename = "instanceType")]
    instance_type: Arc<str>,
}

#[derive(Deserialize)]
struct Terms {
    #[serde(rename = "OnDemand", default)]
    on_demand: BTreeMap<String, Term>,
}

#[derive(Deserialize)]
struct Term {
    #[serde(rename = "priceDimensions", default)]
    dimensions: BTreeMap<String, Dimension>,
}

/// Amounts by currency code.
#[derive(Deserialize)]
struct Dimension {
    #[serde(rename = "pricePerUnit", default)]
    per_unit: BTreeMap<String, String>,
}

impl Product {
    /// The type and its amount; the last one where there are several. `None` without one above zero in this currency.
    fn amount(self, currency: Currency) -> Option<(Arc<str>, MicroUsd)> {
        let terms = self.terms.on_demand.into_values();
        let dimensions = terms.flat_map(|term| term.dimensions.into_values());
        let mut amounts = dimensions.filter_map(|each| amount(each.per_unit.get(currency.code())?));
        Some((self.product.attributes.instance_type, amounts.next_back()?))
    }
}

/// An amount as price lists write it; `None` when it is no number above zero.
pub(crate) fn amount(text: &str) -> Option<MicroUsd> {
    let parsed = text.parse().ok().and_then(MicroUsd::from_dollars);
    parsed.filter(|price| price.0 > 0)
}

/// The prices of the clients' region. Both queries run at the same time; one that fails or finds nothing fails all.
pub(crate) async fn on_demand(clients: &AwsClients) -> Result<AmountByType, PriceError> {
    let [shared, metal] = QUERIES.map(|(tenancy, family)| query(clients, tenancy, family));
    let (shared, metal) = futures::join!(shared, metal);
    let (mut all, metal) = (shared?, metal?);
    if all.is_empty() || metal.is_empty() {
        return Err(PriceError::NoOnDemand);
    }
    all.extend(metal);
    Ok(all)
}

async fn query(
    clients: &AwsClients,
    tenancy: &str,
    family: &str,
) -> Result<AmountByType, PriceError> {
    const ACTION: &str = "pricing:GetProducts";
    let currency = Currency::of_region(&clients.region);
    let mut call = clients.pricing.get_products().service_code(SERVICE);
    for (field, value) in [
        ("regionCode", &*clients.region),
        ("serviceCode", SERVICE),
        ("preInstalledSw", "NA"),
        ("operatingSystem", "Linux"),
        ("capacitystatus", "Used"),
        ("marketoption", "OnDemand"),
        ("tenancy", tenancy),
        ("productFamily", family),
    ] {
        let filter = Filter::builder().field(field).value(value);
        let filter = filter.r#type(FilterType::TermMatch).build();
        let filter = filter.map_err(|error| {
            let error: SdkError<GetProductsError, ()> = SdkError::construction_failure(error);
            clients.failure(ACTION, error)
        });
        call = call.filters(filter?);
    }
    let pages = call.max_results(PAGE_SIZE).into_paginator();
    let mut pages = pages.stop_on_duplicate_token(false).send();
    let (mut all, mut count) = (AmountByType::new(), 0);
    while let Some(page) = pages.next().await {
        let page = page.map_err(|error| clients.failure(ACTION, error))?;
        let products = page.price_list().iter();
        let products = products.filter_map(|text| serde_json::from_str::<Product>(text).ok());
        all.extend(products.filter_map(|product| product.amount(currency)));
        count += 1;
        if count == MAX_PAGES {
            return Err(PriceError::Endless {
                action: ACTION,
                pages: count,
            });
        }
    }
    Ok(all)
}
