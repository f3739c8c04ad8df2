//! The most that an instance type can cost, which is what limits on prices count before it is known what is launched.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Bits, Catalog, UNKNOWN_PRICE};
use mortise_apis::labels;
use mortise_apis::requirements::Requirements;
use mortise_apis::values::money::MicroUsd;
use mortise_cloudprovider::{CapacityType, InstanceType};

/// Labels that offerings of several types share.
#[derive(Debug)]
struct OfferingLabels {
    zone: Arc<str>,
    capacity_type: CapacityType,
    others: Vec<(Arc<str>, Arc<str>)>,
}

/// All offerings of a catalog, available or not.
#[derive(Debug)]
pub(super) struct OfferingsByPrice {
    labels: Vec<OfferingLabels>,
    /// By type, position in `labels` and price of each offering, the most expensive first.
    of_types: Vec<Vec<(usize, MicroUsd)>>,
}

/// What the types of a catalog cost at most within some requirements.
#[derive(Clone, Debug)]
pub struct HighestPrices {
    all: Arc<OfferingsByPrice>,
    allowed: Bits,
}

impl HighestPrices {
    /// What each type of a catalog costs at most of the offerings that these requirements allow, whether or not they are available now.
    ///
    /// # Cost
    /// A look-up for each combination of labels that offerings have; the first time for a catalog, one for each offering.
    #[must_use]
    pub fn within(catalog: &Catalog, asked: &Requirements) -> Self {
        let of_all = || Arc::new(OfferingsByPrice::of(&catalog.types));
        let all = Arc::clone(catalog.by_price.get_or_init(of_all));
        let mut allowed = Bits::none(all.labels.len());
        for (at, labels) in all.labels.iter().enumerate() {
            if labels.is_allowed_by(asked) {
                allowed.insert(at);
            }
        }
        Self { all, allowed }
    }

    /// The most that a type costs, by its position: [`UNKNOWN_PRICE`] if one of the prices is unknown; `None` if none of its offerings
    /// is allowed.
    #[must_use]
    pub fn of(&self, at: usize) -> Option<MicroUsd> {
        let mut own = self.all.of_types.get(at)?.iter();
        let found = own.find(|(labels, _)| self.allowed.has(*labels));
        found.map(|(_, price)| *price)
    }
}

impl OfferingLabels {
    fn is_allowed_by(&self, asked: &Requirements) -> bool {
        let allows = |key: &str, value: &str| asked.get(key).is_none_or(|own| own.has(value));
        let mut others = self.others.iter();
        allows(labels::TOPOLOGY_ZONE, &self.zone)
            && allows(labels::CAPACITY_TYPE, self.capacity_type.as_str())
            && others.all(|(key, value)| allows(key, value))
    }
}

impl OfferingsByPrice {
    fn of(types: &[Arc<InstanceType>]) -> Self {
        let mut known = BTreeMap::new();
        let mut all = Vec::new();
        let of_types = types.iter().map(|each| {
            let own = each.offerings.iter().map(|offering| {
                let key = (&offering.zone, offering.capacity_type, &offering.labels);
                let at = *known.entry(key).or_insert_with(|| {
                    all.push(OfferingLabels {
                        zone: Arc::clone(&offering.zone),
                        capacity_type: offering.capacity_type,
                        others: offering.labels.clone(),
                    });
                    all.len() - 1
                });
                (at, offering.price.unwrap_or(UNKNOWN_PRICE))
            });
            let mut own: Vec<(usize, MicroUsd)> = own.collect();
            own.sort_by_key(|(_, price)| std::cmp::Reverse(*price));
            own
        });
        let of_types = of_types.collect();
        Self {
            labels: all,
            of_types,
        }
    }
}
