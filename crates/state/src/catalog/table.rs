//! Compiled form of a catalog: columns of bit sets.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Bits;
use mortise_apis::labels::{self, WellKnown};
use mortise_apis::requirements::{Requirement, Requirements};
use mortise_apis::resources::Resources;
use mortise_apis::values::money::MicroUsd;
use mortise_cloudprovider::{CapacityType, InstanceType, Offering};

/// Types by their requirement on one label.
#[derive(Debug, Default)]
struct Column {
    /// Types that list the value.
    values: BTreeMap<Arc<str>, Bits>,
    /// Types without a requirement on the label.
    silent: Bits,
    /// Types whose requirement is not a list of values.
    odd: Vec<(usize, Requirement)>,
}

/// Labels and reservation that offerings of several types share.
#[derive(Debug)]
pub struct OfferingGroup {
    /// Zone.
    pub zone: Arc<str>,
    /// Capacity type.
    pub capacity_type: CapacityType,
    /// All its labels as requirements.
    pub requirements: Requirements,
    /// Types that have an available offering of the group.
    pub types: Bits,
    /// Reservation of the offerings.
    pub reservation: Option<Arc<str>>,
}

/// An available offering of a type.
#[derive(Clone, Copy, Debug)]
pub struct PricedOffering {
    /// Index of its group.
    pub kind: usize,
    /// Its price.
    pub price: Option<MicroUsd>,
}

/// What of the types stays when their offerings change.
#[derive(Debug)]
struct TypeColumns {
    columns: BTreeMap<Arc<str>, Column>,
    allocatable: Vec<Resources>,
}

/// Columns over the types of a catalog, in the order of their names.
#[derive(Debug)]
pub struct InstanceTypeTable {
    len: usize,
    of_types: Arc<TypeColumns>,
    kinds: Vec<OfferingGroup>,
    offerings: Vec<Vec<PricedOffering>>,
    reservations: BTreeMap<Arc<str>, u32>,
}

/// Higher than any price: types with unknown price are tried last.
pub const UNKNOWN_PRICE: MicroUsd = MicroUsd(i64::MAX);

impl InstanceTypeTable {
    pub(super) fn build(types: &[Arc<InstanceType>]) -> Self {
        let len = types.len();
        let mut columns: BTreeMap<Arc<str>, Column> = BTreeMap::new();
        for (at, each) in types.iter().enumerate() {
            for requirement in &each.requirements {
                let column = columns
                    .entry(Arc::clone(requirement.shared_key()))
                    .or_insert_with(|| Column {
                        silent: Bits::all(len),
                        ..Column::default()
                    });
                column.silent.remove(at);
                if requirement.is_complement() || requirement.is_empty() {
                    column.odd.push((at, requirement.clone()));
                    continue;
                }
                for value in requirement.values() {
                    let types = column
                        .values
                        .entry(Arc::clone(value))
                        .or_insert_with(|| Bits::none(len));
                    types.insert(at);
                }
            }
        }
        let allocatable = types.iter().map(|each| each.allocatable()).collect();
        let columns = TypeColumns {
            columns,
            allocatable,
        };
        Self::with_offerings_of(types, Arc::new(columns))
    }

    /// The same types with other offerings.
    pub(super) fn with_offerings(&self, types: &[Arc<InstanceType>]) -> Self {
        Self::with_offerings_of(types, Arc::clone(&self.of_types))
    }

    fn with_offerings_of(types: &[Arc<InstanceType>], of_types: Arc<TypeColumns>) -> Self {
        let (kinds, offerings) = group_offerings(types);
        Self {
            len: types.len(),
            of_types,
            kinds,
            offerings,
            reservations: reservations(types),
        }
    }

    /// Instances left in each reservation; if offerings differ, the smallest number.
    pub const fn reservations(&self) -> &BTreeMap<Arc<str>, u32> {
        &self.reservations
    }

    /// Number of types.
    pub const fn type_count(&self) -> usize {
        self.len
    }

    /// Allocatable resources of each type, by index.
    pub fn allocatable(&self) -> &[Resources] {
        &self.of_types.allocatable
    }

    /// Groups of offerings.
    pub fn kinds(&self) -> &[OfferingGroup] {
        &self.kinds
    }

    /// Available offerings of a type, cheapest first, unknown prices last.
    pub fn offerings(&self, at: usize) -> &[PricedOffering] {
        self.offerings.get(at).map_or(&[], Vec::as_slice)
    }

    /// The values that some type lists for the label, sorted.
    pub fn values(&self, key: &str) -> impl Iterator<Item = &Arc<str>> {
        self.of_types
            .columns
            .get(key)
            .into_iter()
            .flat_map(|column| column.values.keys())
    }

    /// Types whose own requirement on the label overlaps with this one, or that have none.
    pub fn overlapping(&self, asked: &Requirement) -> Bits {
        let Some(column) = self.of_types.columns.get(asked.key()) else {
            return Bits::all(self.len);
        };
        let mut types = column.silent.clone();
        if asked.is_complement() {
            let allowed = column.values.iter().filter(|(value, _)| asked.has(value));
            allowed.for_each(|(_, bits)| types.or(bits));
        } else {
            let listed = asked
                .values()
                .iter()
                .filter_map(|value| column.values.get(value));
            listed.for_each(|bits| types.or(bits));
        }
        for (at, own) in &column.odd {
            if own.has_intersection(asked) || (own.allows_absence() && asked.allows_absence()) {
                types.insert(*at);
            }
        }
        types
    }

    /// Whether every one of the types satisfies a requirement, whichever is launched.
    pub fn all_satisfy(&self, types: &Bits, asked: &Requirement) -> bool {
        let Some(column) = self.of_types.columns.get(asked.key()) else {
            return asked.allows_absence();
        };
        (asked.allows_absence() || !column.silent.meets(types))
            && column
                .values
                .iter()
                .all(|(value, of)| !of.meets(types) || asked.has(value))
            && !column.odd.iter().any(|(at, _)| types.has(*at))
    }

    /// Types whose labels do not conflict with the requirements; offerings are ignored.
    pub fn meeting(&self, asked: &Requirements) -> Bits {
        let mut types = Bits::all(self.len);
        for requirement in asked {
            if self.of_types.columns.contains_key(requirement.key()) {
                types.and(&self.overlapping(requirement));
            }
        }
        types
    }

    /// Types that have the labels that the requirements ask for, as far as labels are those of instance types. Unlike
    /// [`Self::meeting`], a type without such a label is not among them.
    pub fn having(&self, asked: &Requirements) -> Bits {
        let mut types = Bits::all(self.len);
        for requirement in asked {
            let Some(column) = self.of_types.columns.get(requirement.key()) else {
                continue;
            };
            let mut having = if requirement.allows_absence() {
                column.silent.clone()
            } else {
                Bits::none(self.len)
            };
            let values = column.values.iter();
            values
                .filter(|(value, _)| requirement.has(value))
                .for_each(|(_, of)| having.or(of));
            types.and(&having);
        }
        types
    }

    /// Whether it is a label of instance types or offerings.
    pub fn has_label(&self, key: &str) -> bool {
        let mut kinds = self.kinds.iter();
        self.of_types.columns.contains_key(key) || kinds.any(|kind| kind.requirements.has_key(key))
    }

    /// Groups of offerings that satisfy the requirements.
    pub fn kinds_meeting(&self, asked: &Requirements, known: &WellKnown) -> Bits {
        let mut kinds = Bits::none(self.kinds.len());
        for (at, kind) in self.kinds.iter().enumerate() {
            if asked.is_compatible(&kind.requirements, known) {
                kinds.insert(at);
            }
        }
        kinds
    }

    /// Types with an available offering of one of the groups.
    pub fn offered(&self, kinds: &Bits) -> Bits {
        let mut types = Bits::none(self.len);
        kinds
            .iter()
            .filter_map(|at| self.kinds.get(at))
            .for_each(|kind| types.or(&kind.types));
        types
    }

    /// The cheapest available offering of a type among the groups.
    pub fn cheapest(&self, at: usize, kinds: &Bits) -> Option<PricedOffering> {
        self.offerings(at)
            .iter()
            .find(|offering| kinds.has(offering.kind))
            .copied()
    }

    /// The types with the cheapest offering of each among the groups, cheapest first, ties by name, unknown prices last.
    pub fn by_price(&self, types: &Bits, kinds: &Bits) -> Vec<(usize, PricedOffering)> {
        let offer = |at: usize| Some((at, self.cheapest(at, kinds)?));
        let mut all: Vec<_> = types.iter().filter_map(offer).collect();
        all.sort_by_key(|(_, offer)| offer.price.unwrap_or(UNKNOWN_PRICE));
        all
    }

    /// Number of distinct values of the label among the types; complements and types without the label count as none.
    pub fn count_values(&self, key: &str, types: &Bits) -> usize {
        let column = self.of_types.columns.get(key);
        column.map_or(0, |column| {
            column
                .values
                .values()
                .filter(|bits| bits.meets(types))
                .count()
        })
    }
}

/// Available, and not of an exhausted reservation.
fn is_to_be_had(offering: &Offering) -> bool {
    offering.available
        && offering
            .reservation
            .as_ref()
            .is_none_or(|(_, left)| *left > 0)
}

fn reservations(types: &[Arc<InstanceType>]) -> BTreeMap<Arc<str>, u32> {
    let mut all: BTreeMap<Arc<str>, u32> = BTreeMap::new();
    let offerings = types.iter().flat_map(|each| &each.offerings);
    for (id, left) in offerings.filter_map(|each| each.reservation.as_ref()) {
        let known = all.entry(Arc::clone(id)).or_insert(*left);
        *known = (*known).min(*left);
    }
    all
}

/// The labels of an offering. A label that only other offerings have is required to be absent, so that nothing that asks for it is
/// launched from this one.
fn requirements_of(offering: &Offering, keys: &BTreeSet<&Arc<str>>) -> Requirements {
    let lacks = |key: &Arc<str>| offering.labels.iter().all(|(own, _)| own != key);
    let absent = keys.iter().filter(|key| lacks(key));
    let absent = absent.map(|key| Requirement::does_not_exist(Arc::clone(key)));
    let own = [
        Requirement::is(labels::TOPOLOGY_ZONE, Arc::clone(&offering.zone)),
        Requirement::is(labels::CAPACITY_TYPE, offering.capacity_type.as_str()),
    ];
    let more = offering.labels.iter();
    own.into_iter()
        .chain(more.map(|(key, value)| Requirement::is(Arc::clone(key), Arc::clone(value))))
        .chain(absent)
        .collect()
}

/// What tells one offering from another, except for its type and price, as it is.
type OfferingKey<'a> = (
    &'a Arc<str>,
    CapacityType,
    &'a [(Arc<str>, Arc<str>)],
    Option<&'a Arc<str>>,
);

/// # Cost
/// The requirements of a group are made once, not once for each of its offerings.
fn group_offerings(types: &[Arc<InstanceType>]) -> (Vec<OfferingGroup>, Vec<Vec<PricedOffering>>) {
    let mut as_is: BTreeMap<OfferingKey<'_>, usize> = BTreeMap::new();
    let mut by_labels: BTreeMap<(Requirements, Option<Arc<str>>), usize> = BTreeMap::new();
    let mut kinds: Vec<OfferingGroup> = Vec::new();
    let mut all = Vec::with_capacity(types.len());
    let offerings = types.iter().flat_map(|each| &each.offerings);
    let keys: BTreeSet<&Arc<str>> = offerings
        .flat_map(|offering| offering.labels.iter().map(|(key, _)| key))
        .collect();
    for (at, each) in types.iter().enumerate() {
        let mut priced = Vec::with_capacity(each.offerings.len());
        for offering in each
            .offerings
            .iter()
            .filter(|offering| is_to_be_had(offering))
        {
            let reservation = offering.reservation.as_ref().map(|(id, _)| id);
            let key = (
                &offering.zone,
                offering.capacity_type,
                &*offering.labels,
                reservation,
            );
            let kind = *as_is.entry(key).or_insert_with(|| {
                let requirements = requirements_of(offering, &keys);
                let key = (requirements.clone(), reservation.cloned());
                *by_labels.entry(key).or_insert_with(|| {
                    kinds.push(OfferingGroup {
                        zone: Arc::clone(&offering.zone),
                        capacity_type: offering.capacity_type,
                        requirements,
                        types: Bits::none(types.len()),
                        reservation: reservation.cloned(),
                    });
                    kinds.len() - 1
                })
            });
            if let Some(kind) = kinds.get_mut(kind) {
                kind.types.insert(at);
            }
            priced.push(PricedOffering {
                kind,
                price: offering.price,
            });
        }
        // Among equal prices, prepaid capacity goes first, then the order of zones.
        priced.sort_by_key(|each| {
            (
                each.price.unwrap_or(UNKNOWN_PRICE),
                order_of(&kinds, each.kind),
            )
        });
        all.push(priced);
    }
    (kinds, all)
}

fn order_of(kinds: &[OfferingGroup], at: usize) -> Option<(CapacityType, Arc<str>)> {
    kinds
        .get(at)
        .map(|kind| (kind.capacity_type, Arc::clone(&kind.zone)))
}
