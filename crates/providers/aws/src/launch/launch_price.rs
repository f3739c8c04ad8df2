//! Prices that launches are ordered by: of whole offerings, prepaid ones included. Pure.

use mortise_apis::values::money::MicroUsd;
use mortise_cloudprovider::{CapacityType, InstanceType, Offering};

/// How much cheaper than on demand prepaid capacity counts: so much that it always comes first, in the order of what it saves.
/// # Source
/// The reference implementation's number.
const PREPAID: i64 = 10_000_000;

/// A price in ten-millionths of a micro dollar, so that prepaid capacity can be compared exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LaunchPrice(i64);

impl LaunchPrice {
    /// The price of an offering; `None` when it is not known.
    pub(super) fn of(instance_type: &InstanceType, offering: &Offering) -> Option<Self> {
        let whole = |price: MicroUsd| Self(price.0.saturating_mul(PREPAID));
        let price = offering.price?;
        if offering.capacity_type != CapacityType::Reserved || price > MicroUsd(0) {
            return Some(whole(price));
        }
        // The price rounds to nothing. What an instance of the type costs on demand still tells which reservation saves more.
        let on_demand = |other: &&Offering| other.capacity_type == CapacityType::OnDemand;
        let offerings = || instance_type.offerings.iter().filter(on_demand);
        let other = offerings()
            .find(|other| other.zone == offering.zone)
            .or_else(|| offerings().next());
        Some(Self(
            other
                .and_then(|other| other.price)
                .map_or(0, |price| price.0),
        ))
    }

    /// In dollars, as EC2 takes it.
    #[expect(clippy::cast_precision_loss, reason = "EC2 takes no more precision")]
    pub(super) fn dollars(self) -> f64 {
        self.0 as f64 / (1e6 * PREPAID as f64)
    }
}

/// Known prices before unknown ones, low before high.
pub(super) fn by_price(a: Option<LaunchPrice>, b: Option<LaunchPrice>) -> std::cmp::Ordering {
    match (a, b) {
        (Some(a), Some(b)) => a.cmp(&b),
        (a, b) => b.is_some().cmp(&a.is_some()),
    }
}
