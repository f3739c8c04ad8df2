//! Prices that change.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use mortise_apis::labels;
use mortise_apis::values::money::MicroUsd;
use mortise_cloudprovider::{InstanceType, UnavailableOffering};

use super::Cloud;
use crate::price_factor::PriceFactor;

/// What becomes of a price.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewPrice(Kind);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Times(PriceFactor),
    Is(MicroUsd),
}

impl NewPrice {
    /// The price times a factor, rounded to the nearest millionth; `None`: it is not from 0.000001 to 1000. An unknown price
    /// stays unknown.
    #[must_use]
    pub fn times(factor: f64) -> Option<Self> {
        PriceFactor::from_number(factor).map(|factor| Self(Kind::Times(factor)))
    }

    /// This price.
    #[must_use]
    pub const fn is(price: MicroUsd) -> Self {
        Self(Kind::Is(price))
    }

    fn of(self, price: Option<MicroUsd>) -> Option<MicroUsd> {
        match self.0 {
            Kind::Times(factor) => price.map(|price| factor.times(price)),
            Kind::Is(price) => Some(price),
        }
    }
}

/// The changes that hold now.
#[derive(Debug, Default)]
pub(super) struct PriceChanges {
    /// Types with the prices before all changes; empty before the first one.
    list: Vec<Arc<InstanceType>>,
    /// By id, in which order they apply.
    now: BTreeMap<usize, (BTreeSet<UnavailableOffering>, NewPrice)>,
}

impl PriceChanges {
    /// The type with the prices that hold now.
    fn apply(&self, each: &Arc<InstanceType>) -> Arc<InstanceType> {
        let mut changed = Arc::clone(each);
        for (meant, to) in self.now.values() {
            for (at, offering) in each.offerings.iter().enumerate() {
                if meant.contains(&each.capacity_pool(offering)) {
                    let offering = &mut Arc::make_mut(&mut changed).offerings[at];
                    offering.price = to.of(offering.price);
                }
            }
        }
        changed
    }
}

impl Cloud {
    /// The offerings that match have another price until the change ends.
    pub(crate) fn change_prices(
        &mut self,
        id: usize,
        to: NewPrice,
        is_meant: impl Fn(&UnavailableOffering) -> bool,
    ) {
        if self.price_changes.list.is_empty() {
            self.price_changes.list.clone_from(&self.types);
        }
        let all = self.types.iter().flat_map(|each| {
            let offerings = each.offerings.iter();
            offerings.map(|offering| each.capacity_pool(offering))
        });
        let meant = all.filter(|pool| is_meant(pool)).collect();
        self.price_changes.now.insert(id, (meant, to));
        self.set_prices();
    }

    /// Ends a change.
    pub(crate) fn end_price_change(&mut self, id: usize) {
        if self.price_changes.now.remove(&id).is_some() {
            self.set_prices();
        }
    }

    /// Instances that run are paid for at the new prices too, as clouds do.
    fn set_prices(&mut self) {
        let list = self.price_changes.list.iter();
        self.types = list.map(|each| self.price_changes.apply(each)).collect();
        self.instance_changes += 1;
        for instance in self.instances.values_mut() {
            let name = &instance.instance_type.name;
            let zone = instance.labels.get(labels::TOPOLOGY_ZONE);
            let mut offerings = self
                .types
                .iter()
                .filter(|each| each.name == *name)
                .flat_map(|each| &each.offerings);
            let own = offerings.find(|offering| {
                zone.is_some_and(|zone| *offering.zone == **zone)
                    && offering.capacity_type == instance.capacity_type
            });
            if let Some(price) = own.and_then(|offering| offering.price) {
                instance.price = price;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use mortise_cloudprovider::CapacityType;

    use super::*;
    use crate::test_cluster::instance_type;
    /// Spot and on-demand price of the first type in its first zone.
    fn prices(cloud: &Cloud) -> (i64, i64) {
        let of = |kind: CapacityType| {
            let mut offerings = cloud.types[0].offerings.iter();
            let found = offerings.find(|offering| offering.capacity_type == kind);
            found.and_then(|offering| offering.price).unwrap().0
        };
        (of(CapacityType::Spot), of(CapacityType::OnDemand))
    }

    #[test]
    fn changes_overlap_and_end() {
        let offers = [("spot", 40), ("on-demand", 100)];
        let mut cloud = Cloud::new(vec![instance_type("small", 2, &offers)], 0);
        let (spot, on_demand) = prices(&cloud);
        let is_spot = |pool: &UnavailableOffering| pool.capacity_type == CapacityType::Spot;
        cloud.change_prices(0, NewPrice::times(2.0).unwrap(), is_spot);
        assert_eq!(prices(&cloud), (2 * spot, on_demand));
        cloud.change_prices(1, NewPrice::times(3.0).unwrap(), |_| true);
        assert_eq!(prices(&cloud), (6 * spot, 3 * on_demand));
        cloud.change_prices(2, NewPrice::is(MicroUsd(7)), is_spot);
        assert_eq!(prices(&cloud), (7, 3 * on_demand));
        cloud.end_price_change(0);
        cloud.end_price_change(2);
        assert_eq!(prices(&cloud), (3 * spot, 3 * on_demand));
        cloud.end_price_change(1);
        cloud.end_price_change(1);
        assert_eq!(prices(&cloud), (spot, on_demand));
    }

    #[test]
    fn an_unknown_price_is_not_multiplied() {
        let twice = NewPrice::times(2.0).unwrap();
        assert_eq!(twice.of(None), None);
        let fixed = NewPrice::is(MicroUsd(5));
        assert_eq!(fixed.of(None), Some(MicroUsd(5)));
    }
}
