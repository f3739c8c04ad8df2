//! Instance types that one node class can launch, prepared for lookups by requirements.
//!
//! # Problem
//! "Which of 1,400 types can run this?" is evaluated for every pod, NodeClaim and simulation. A catalog therefore has one bit
//! set of types per (label, value), so that a set of requirements is an AND of a few words, and offerings grouped by their
//! labels (zone, capacity type, further labels).
//!
//! Invariant: a catalog never changes. A change of prices or availability creates a new one with another version.

mod bits;
mod diagnostics;
mod highest_prices;
mod offers;
mod table;

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher as _, Hash, Hasher as _};
use std::sync::{Arc, OnceLock};

use foldhash::fast::FixedState;

pub use bits::Bits;
pub use diagnostics::EliminatingRequirement;
pub use highest_prices::HighestPrices;
use highest_prices::OfferingsByPrice;
pub use offers::{MinValuesShortfall, Offer};
pub use table::{InstanceTypeTable, OfferingGroup, PricedOffering, UNKNOWN_PRICE};

use mortise_apis::values::money::MicroUsd;
use mortise_cloudprovider::{CapacityType, InstanceType, Offering, UnavailableOffering};

/// All instance types of a node class, with their offerings.
#[derive(Clone, Debug)]
pub struct Catalog {
    types: Vec<Arc<InstanceType>>,
    /// Position of each type.
    positions: Arc<HashMap<Arc<str>, usize, FixedState>>,
    /// Hash of each type.
    hashes: Vec<u64>,
    version: u64,
    table: Arc<InstanceTypeTable>,
    /// Once a limit on the price asks for it.
    by_price: OnceLock<Arc<OfferingsByPrice>>,
}

impl Catalog {
    /// Builds a catalog. Of types with the same name the first is kept; otherwise their order does not matter.
    ///
    /// # Cost
    /// A few milliseconds for 1,400 types.
    #[must_use]
    pub fn build(types: Vec<InstanceType>) -> Self {
        let mut types: Vec<Arc<InstanceType>> = types.into_iter().map(Arc::new).collect();
        types.sort_by(|a, b| a.name.cmp(&b.name));
        types.dedup_by(|later, kept| later.name == kept.name);
        Self::from_sorted(types)
    }

    fn from_sorted(types: Vec<Arc<InstanceType>>) -> Self {
        let hashes: Vec<u64> = types.iter().map(|each| hash_of(each)).collect();
        let table = Arc::new(InstanceTypeTable::build(&types));
        let names = types.iter().map(|each| Arc::clone(&each.name));
        let positions: HashMap<Arc<str>, usize, FixedState> = names.zip(0..).collect();
        Self {
            positions: Arc::new(positions),
            version: version_of(&hashes),
            hashes,
            table,
            by_price: OnceLock::new(),
            types,
        }
    }

    /// Hash of the content: equal content has the same number in every process of this build.
    #[must_use]
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// The types, sorted by name.
    #[must_use]
    pub fn types(&self) -> &[Arc<InstanceType>] {
        &self.types
    }

    /// A type by name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<InstanceType>> {
        self.types.get(self.position(name)?)
    }

    /// Position of a type in [`types`](Self::types), and of its bit in every set of types. Cost: a hash of the name.
    #[must_use]
    pub fn position(&self, name: &str) -> Option<usize> {
        self.positions.get(name).copied()
    }

    /// Columns of the types, as bit sets.
    #[must_use]
    pub fn table(&self) -> &InstanceTypeTable {
        &self.table
    }

    /// Price of an offering, available or not; `None` when there is no such offering or its price is unknown.
    #[must_use]
    pub fn price(
        &self,
        instance_type: &str,
        zone: &str,
        capacity_type: CapacityType,
    ) -> Option<MicroUsd> {
        let offerings = &self.get(instance_type)?.offerings;
        let same = offerings
            .iter()
            .filter(|each| *each.zone == *zone && each.capacity_type == capacity_type);
        same.filter_map(|each| each.price).min()
    }

    /// The same catalog with other types at some positions; their names stay.
    #[must_use]
    pub(crate) fn with_types(&self, changed: BTreeMap<usize, InstanceType>) -> Self {
        let mut types = self.types.clone();
        for (at, each) in changed {
            if let Some(place) = types.get_mut(at) {
                *place = Arc::new(each);
            }
        }
        Self::from_sorted(types)
    }

    /// The same catalog with these offerings marked as unavailable.
    ///
    /// # Cost
    /// Much less than that of a new catalog: clouds report offerings without capacity by the hundred.
    #[must_use]
    pub fn without_offerings(&self, unavailable: &[UnavailableOffering]) -> Self {
        let (mut types, mut hashes) = (self.types.clone(), self.hashes.clone());
        for gone in unavailable {
            let at = self.position(&gone.instance_type);
            let found = at.and_then(|at| Some((types.get_mut(at)?, hashes.get_mut(at)?)));
            let Some((each, hash)) = found else {
                continue;
            };
            let is_gone = |offering: &Offering| {
                offering.available
                    && gone.zone == offering.zone
                    && gone.capacity_type == offering.capacity_type
            };
            if each.offerings.iter().any(is_gone) {
                let changed = Arc::make_mut(each);
                for offering in &mut changed.offerings {
                    offering.available &= !is_gone(offering);
                }
                *hash = hash_of(changed);
            }
        }
        Self {
            positions: Arc::clone(&self.positions),
            version: version_of(&hashes),
            hashes,
            table: Arc::new(self.table.with_offerings(&types)),
            // Offerings that are not available have prices too.
            by_price: self.by_price.clone(),
            types,
        }
    }
}

fn version_of(hashes: &[u64]) -> u64 {
    FixedState::with_seed(11).hash_one(hashes)
}

fn hash_of(each: &InstanceType) -> u64 {
    let mut hasher = FixedState::with_seed(11).build_hasher();
    hash_type(each, &mut hasher);
    hasher.finish()
}

fn hash_type(of: &InstanceType, hasher: &mut impl std::hash::Hasher) {
    let InstanceType {
        name,
        requirements,
        capacity,
        overhead,
        offerings,
        devices,
    } = of;
    if !devices.is_empty() {
        // Slices are compared by their serialized form: they contain values without a hash.
        serde_json::to_string(devices)
            .unwrap_or_default()
            .hash(hasher);
    }
    (name, requirements, capacity, overhead, offerings.len()).hash(hasher);
    for offering in offerings {
        let Offering {
            zone,
            capacity_type,
            price,
            available,
            reservation,
            labels,
        } = offering;
        (zone, capacity_type, price, available, reservation, labels).hash(hasher);
    }
}

#[cfg(test)]
mod tests {
    use mortise_apis::labels::WellKnown;
    use mortise_apis::requirements::{Operator, Requirement, Requirements};
    use mortise_apis::resources::Resources;

    use super::*;

    const KEY: &str = "example.com/reservation";

    fn reserved_and_not() -> InstanceType {
        let offering = |capacity_type, reservation: Option<&str>| Offering {
            zone: Arc::from("a"),
            capacity_type,
            price: Some(MicroUsd(if reservation.is_some() { 0 } else { 100 })),
            available: true,
            reservation: reservation.map(|id| (Arc::from(id), 2)),
            labels: reservation
                .map(|id| (Arc::from(KEY), Arc::from(id)))
                .into_iter()
                .collect(),
        };
        InstanceType {
            name: Arc::from("large"),
            requirements: [Requirement::new(KEY, Operator::In, ["r-1"])]
                .into_iter()
                .collect(),
            capacity: Resources::new(1000, 1000),
            overhead: Resources::zero(),
            offerings: vec![
                offering(CapacityType::Reserved, Some("r-1")),
                offering(CapacityType::OnDemand, None),
            ],
            devices: Arc::default(),
        }
    }

    #[test]
    fn an_offering_without_a_label_is_not_for_who_asks_for_it() {
        let catalog = Catalog::build(vec![reserved_and_not()]);
        let known = WellKnown::core();
        let chosen = |asked: Requirement| {
            let asked: Requirements = [asked].into_iter().collect();
            let kinds = catalog.table().kinds_meeting(&asked, &known);
            let kinds = kinds
                .iter()
                .filter_map(|at| catalog.table().kinds().get(at));
            let mut types: Vec<_> = kinds.map(|kind| kind.capacity_type).collect();
            types.sort();
            types
        };
        assert_eq!(
            chosen(Requirement::is(KEY, "r-1")),
            [CapacityType::Reserved]
        );
        assert_eq!(chosen(Requirement::is(KEY, "r-2")), []);
        assert_eq!(chosen(Requirement::exists(KEY)), [CapacityType::Reserved]);
        assert_eq!(
            chosen(Requirement::does_not_exist(KEY)),
            [CapacityType::OnDemand]
        );
        assert_eq!(
            chosen(Requirement::new(KEY, Operator::NotIn, ["r-1"])),
            [CapacityType::OnDemand]
        );
        let covered = |asked: Requirement| {
            let asked = [asked].into_iter().collect();
            catalog.covered(&Requirements::new(), &asked)
        };
        assert_eq!(
            covered(Requirement::is(KEY, "r-1")),
            BTreeMap::from([(0, vec![0])])
        );
    }

    #[test]
    fn a_catalog_with_marks_is_the_one_that_is_built_with_them() {
        let with = |name: &str, available: bool| {
            let mut each = reserved_and_not();
            each.name = Arc::from(name);
            if let Some(last) = each.offerings.last_mut() {
                last.available = available;
            }
            each
        };
        let all = Catalog::build(vec![with("large", true), with("small", true)]);
        let gone = |name: &str, zone: &str| UnavailableOffering {
            instance_type: Arc::from(name),
            zone: Arc::from(zone),
            capacity_type: CapacityType::OnDemand,
        };
        let marks = [gone("small", "a"), gone("large", "b"), gone("other", "a")];
        let marked = all.without_offerings(&marks);
        let built = Catalog::build(vec![with("large", true), with("small", false)]);
        assert_eq!(marked.version(), built.version());
        assert_ne!(marked.version(), all.version());
        let offers = |catalog: &Catalog, at| {
            let offers = catalog.table().offerings(at).iter();
            let kinds = offers.map(|each| (each.kind, each.price));
            kinds.collect::<Vec<_>>()
        };
        for at in [0, 1] {
            assert_eq!(offers(&marked, at), offers(&built, at));
            let free = |of: &Catalog| of.table().allocatable()[at].clone();
            assert_eq!(free(&marked), free(&built));
        }
        assert_eq!(all.without_offerings(&marks[1..]).version(), all.version());
    }
}
