//! Prices that launches are ordered by: of whole offerings, prepaid ones included. Pure.

use mortise_apis::values::money::MicroUsd;
use mortise_cloudprovider::{CapacityType, InstanceType, Offering};

/// How much cheaper than on demand prepaid capacity counts: so much that it always comes first, in the order of what it saves.
/// # Source
/// The reference implementation's number.
const PREPAID: i64 = 10_000_000;

/// A price in ten-millionths of a micro dollar, so that prepaid capacity can be compared exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LaunchPrice(i64);

impl LaunchPrice {
    /// The price of an offering; `None` when it is not known.
    pub(crate) fn of(instance_type: &InstanceType, offering: &Offering) -> Option<Self> {
        let price = Self(offering.price?.0.saturating_mul(PREPAID));
        if offering.capacity_type != CapacityType::Reserved {
            return Some(price);
        }
        // Such a price is rounded, often to nothing. What the type costs on demand tells it exactly, unless it was set by hand.
        let exact = Self(on_demand(instance_type, offering).map_or(0, |price| price.0));
        let is_rounded = (price.0 - exact.0).abs() <= PREPAID / 2;
        Some(if is_rounded { exact } else { price })
    }

    /// In dollars, as EC2 takes it.
    #[expect(clippy::cast_precision_loss, reason = "EC2 takes no more precision")]
    pub(crate) fn dollars(self) -> f64 {
        self.0 as f64 / (1e6 * PREPAID as f64)
    }
}

/// What the type costs on demand in the zone of the offering, or else anywhere.
fn on_demand(instance_type: &InstanceType, offering: &Offering) -> Option<MicroUsd> {
    let is_on_demand = |other: &&Offering| other.capacity_type == CapacityType::OnDemand;
    let mut offerings = instance_type.offerings.iter().filter(is_on_demand);
    let first = offerings.clone().next()?;
    let here = offerings.find(|other| other.zone == offering.zone);
    here.unwrap_or(first).price
}

/// Known prices before unknown ones, low before high.
pub(crate) fn by_price(a: Option<LaunchPrice>, b: Option<LaunchPrice>) -> std::cmp::Ordering {
    match (a, b) {
        (Some(a), Some(b)) => a.cmp(&b),
        (a, b) => b.is_some().cmp(&a.is_some()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn reservations_are_told_apart_by_what_they_save() {
        let types = mortise_aws_catalog::embedded("us-east-1", &["us-east-1a"]).unwrap();
        let price = |name: &str, own: i64| {
            let each = types.iter().find(|each| &*each.name == name).unwrap();
            let reserved = Offering {
                zone: Arc::from("us-east-1a"),
                capacity_type: CapacityType::Reserved,
                price: Some(MicroUsd(own)),
                available: true,
                reservation: Some((Arc::from("cr-1"), 1)),
                labels: Vec::new(),
            };
            LaunchPrice::of(each, &reserved).unwrap()
        };
        assert!(price("m5.large", 0) < price("m5.xlarge", 0));
        assert_eq!(price("m5.large", 0).dollars().to_string(), "0.0000000096");
        assert_eq!(price("m5.large", 5).dollars().to_string(), "0.000005");
        assert!(by_price(None, Some(price("m5.large", 0))).is_gt());
    }
}
