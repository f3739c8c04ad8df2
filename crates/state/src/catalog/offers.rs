//! Selection of types: by price, and with enough distinct values.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::table::UNKNOWN_PRICE;
use super::{Bits, Catalog};
use mortise_apis::labels::WellKnown;
use mortise_apis::requirements::Requirements;
use mortise_apis::values::money::MicroUsd;
use mortise_cloudprovider::{CapacityType, InstanceType};

/// A type with its cheapest offering that satisfies the requirements.
#[derive(Clone, Debug, PartialEq)]
pub struct Offer {
    /// The type.
    pub instance_type: Arc<InstanceType>,
    /// Zone of its cheapest compatible available offering.
    pub zone: Arc<str>,
    /// Capacity type of that offering.
    pub capacity_type: CapacityType,
    /// Its price; `None` if unknown.
    pub price: Option<MicroUsd>,
}

/// minValues that cannot be satisfied: label key to the number of distinct values that are left.
///
/// # Shape
/// Never empty.
pub type MinValuesShortfall = BTreeMap<Arc<str>, usize>;

impl Catalog {
    /// Types that satisfy the requirements by their labels and have an available offering that does, cheapest first, ties by
    /// name; types with unknown price last.
    #[must_use]
    pub fn offers(&self, asked: &Requirements, known: &WellKnown) -> Vec<Offer> {
        let kinds = self.table().kinds_meeting(asked, known);
        let mut types = self.table().offered(&kinds);
        types.and(&self.table().meeting(asked));
        self.offers_of(&types, &kinds)
    }

    /// Number of types with an available offering that satisfies the requirements, regardless of the labels of the type.
    #[must_use]
    pub fn count_offered(&self, asked: &Requirements, known: &WellKnown) -> usize {
        self.table()
            .offered(&self.table().kinds_meeting(asked, known))
            .len()
    }

    /// The same for a given set of types and of offering groups.
    pub fn offers_of(&self, types: &Bits, kinds: &Bits) -> Vec<Offer> {
        let mut offers: Vec<Offer> = types
            .iter()
            .filter_map(|at| {
                let cheapest = self.table().cheapest(at, kinds)?;
                let kind = self.table().kinds().get(cheapest.kind)?;
                Some(Offer {
                    instance_type: Arc::clone(self.types().get(at)?),
                    zone: Arc::clone(&kind.zone),
                    capacity_type: kind.capacity_type,
                    price: cheapest.price,
                })
            })
            .collect();
        // The sort is stable and indices follow names.
        offers.sort_by_key(|offer| offer.price.unwrap_or(UNKNOWN_PRICE));
        offers
    }

    /// The highest price of a launch of the type: clouds use prepaid capacity before spot and spot before on-demand, and within
    /// these may select any zone. `None` if nothing is offered or a price is unknown.
    #[must_use]
    pub fn worst_launch_price(
        &self,
        instance_type: &str,
        asked: &Requirements,
        known: &WellKnown,
    ) -> Option<MicroUsd> {
        self.worst_of(instance_type, &self.table().kinds_meeting(asked, known))
    }

    /// The same for given offering groups.
    pub fn worst_of(&self, instance_type: &str, kinds: &Bits) -> Option<MicroUsd> {
        let at = self.position(instance_type)?;
        let priced = || {
            let own = self
                .table()
                .offerings(at)
                .iter()
                .filter(|each| kinds.has(each.kind));
            own.filter_map(|each| {
                Some((
                    self.table().kinds().get(each.kind)?.capacity_type,
                    each.price,
                ))
            })
        };
        let first = priced().map(|(capacity_type, _)| capacity_type).min()?;
        let mut worst = MicroUsd(0);
        for (_, price) in priced().filter(|(capacity_type, _)| *capacity_type == first) {
            worst = worst.max(price?);
        }
        Some(worst)
    }

    /// Whether the types have enough distinct values of every label with minValues.
    ///
    /// # Errors
    /// The labels that fall short, with the number of values that are left.
    pub fn check_min_values(
        &self,
        types: &[Arc<InstanceType>],
        asked: &Requirements,
    ) -> Result<(), MinValuesShortfall> {
        let bits = types
            .iter()
            .filter_map(|each| self.position(&each.name))
            .collect();
        self.check_min_values_of(&bits, asked)
    }

    /// The same for a set of positions.
    ///
    /// # Errors
    /// The keys that have too few values among the types.
    pub fn check_min_values_of(
        &self,
        types: &Bits,
        asked: &Requirements,
    ) -> Result<(), MinValuesShortfall> {
        let short: MinValuesShortfall = asked
            .iter()
            .filter_map(|requirement| {
                let wanted = usize::try_from(requirement.min_values()?).ok()?;
                let left = self.table().count_values(requirement.key(), types);
                (left < wanted).then(|| (Arc::clone(requirement.shared_key()), left))
            })
            .collect();
        if short.is_empty() { Ok(()) } else { Err(short) }
    }

    /// How many types, from the first on, are needed to satisfy every minValues. Zero without minValues.
    ///
    /// # Errors
    /// As [`Self::check_min_values`], if all types are not enough.
    pub fn types_needed(
        &self,
        types: &[Arc<InstanceType>],
        asked: &Requirements,
    ) -> Result<usize, MinValuesShortfall> {
        if !asked.has_min_values() {
            return Ok(0);
        }
        let mut bits = Bits::none(self.types().len());
        for (count, each) in types.iter().enumerate() {
            if let Some(at) = self.position(&each.name) {
                bits.insert(at);
            }
            if self.check_min_values_of(&bits, asked).is_ok() {
                return Ok(count + 1);
            }
        }
        self.check_min_values_of(&bits, asked).map(|()| types.len())
    }
}
