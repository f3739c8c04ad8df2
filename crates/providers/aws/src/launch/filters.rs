//! The steps that narrow the types and offerings of a launch, in their order. Pure.
//!
//! Every step works on what the one before left: offerings that are available, that the claim allows, and on which its requests fit.
//!
//! # Source
//! The steps and what they keep are the reference implementation's, checked against recorded answers.

use std::collections::BTreeMap;

use mortise_apis::labels;
use mortise_apis::requirements::{Requirement, Requirements};
use mortise_apis::resources::Resources;
use mortise_aws_class::labels::{
    CAPACITY_BLOCK, CAPACITY_RESERVATION_ID, CAPACITY_RESERVATION_INTERRUPTIBLE,
    CAPACITY_RESERVATION_TYPE, INSTANCE_SIZE,
};
use mortise_cloudprovider::{CapacityType, InstanceType, Offering, UnavailableOffering};

use crate::launch::launch_price::{LaunchPrice, by_price};

/// Resources that only some pods use; types that have them are not spent on pods that do not ask.
const SPECIALIZED: [&str; 5] = [
    "nvidia.com/gpu",
    "amd.com/gpu",
    "habana.ai/gaudi",
    "aws.amazon.com/neuron",
    "aws.amazon.com/neuroncore",
];

/// Labels that only offerings of a reservation have: another offering is one without the label.
const RESERVATION: [&str; 3] = [
    CAPACITY_RESERVATION_ID,
    CAPACITY_RESERVATION_INTERRUPTIBLE,
    CAPACITY_RESERVATION_TYPE,
];

/// A type with the offerings of it that a launch may take.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TypeCandidate<'a> {
    /// The type.
    pub(crate) instance_type: &'a InstanceType,
    /// Its offerings, in zone order.
    pub(crate) offerings: Vec<&'a Offering>,
}

impl TypeCandidate<'_> {
    /// The lowest price of its offerings; `None` when none is known.
    pub(crate) fn cheapest(&self) -> Option<LaunchPrice> {
        let prices = self.offerings.iter();
        prices
            .filter_map(|each| LaunchPrice::of(self.instance_type, each))
            .min()
    }
}

/// What kind of reservation an instance is launched into. In the order in which equal prices are decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ReservationKind {
    /// An ordinary on-demand capacity reservation.
    Default,
    /// A capacity block.
    Block,
    /// A reservation whose owner may take its instances back.
    Interruptible,
}

impl ReservationKind {
    /// The kind of a reserved offering; `None` for other offerings.
    pub(crate) fn of(offering: &Offering) -> Option<Self> {
        if offering.capacity_type != CapacityType::Reserved {
            return None;
        }
        Some(
            if label(offering, CAPACITY_RESERVATION_INTERRUPTIBLE) == Some("true") {
                Self::Interruptible
            } else if label(offering, CAPACITY_RESERVATION_TYPE) == Some(CAPACITY_BLOCK) {
                Self::Block
            } else {
                Self::Default
            },
        )
    }
}

/// A label of an offering.
pub(crate) fn label<'a>(offering: &'a Offering, key: &str) -> Option<&'a str> {
    let mut labels = offering.labels.iter();
    labels
        .find(|(name, _)| &**name == key)
        .map(|(_, value)| &**value)
}

/// Whether the requirements allow a value for a key. What is not asked for is allowed.
pub(crate) fn allows(asked: &Requirements, key: &str, value: &str) -> bool {
    asked
        .get(key)
        .is_none_or(|wanted: &Requirement| wanted.has(value))
}

/// Whether the requirements allow an offering.
pub(crate) fn allows_offering(asked: &Requirements, offering: &Offering) -> bool {
    let own = [
        (labels::TOPOLOGY_ZONE, &*offering.zone),
        (labels::CAPACITY_TYPE, offering.capacity_type.as_str()),
    ];
    let more = offering.labels.iter();
    let own = own
        .into_iter()
        .chain(more.map(|(key, value)| (&**key, &**value)));
    let mut missing = RESERVATION
        .iter()
        .filter(|key| label(offering, key).is_none());
    own.into_iter()
        .all(|(key, value)| allows(asked, key, value))
        && missing.all(|key| asked.get(key).is_none_or(Requirement::allows_absence))
}

/// First: types that meet the requirements and hold the requests, with their available offerings that the requirements allow.
pub(crate) fn compatible_available<'a>(
    types: &'a [InstanceType],
    asked: &Requirements,
    requests: &Resources,
) -> Vec<TypeCandidate<'a>> {
    let known = mortise_aws_class::labels::well_known();
    let candidate = |each: &'a InstanceType| TypeCandidate {
        instance_type: each,
        offerings: each
            .offerings
            .iter()
            .filter(|offering| offering.available && allows_offering(asked, offering))
            .collect(),
    };
    let mut candidates: Vec<TypeCandidate<'a>> = types
        .iter()
        // What a claim asks beyond what types have (labels of its pool, say) is put on the node, not found on a type.
        .filter(|each| {
            asked.is_compatible(&each.requirements, &known) && requests.fits_in(&each.allocatable())
        })
        .map(candidate)
        .collect();
    drop_empty(&mut candidates);
    candidates
}

/// Offerings that the requirements allow and that are unavailable: whoever asked took them for available. Sorted, unique.
pub(crate) fn unavailable_for(
    types: &[InstanceType],
    asked: &Requirements,
) -> Vec<UnavailableOffering> {
    let known = mortise_aws_class::labels::well_known();
    let is_asked = |each: &&InstanceType| asked.is_compatible(&each.requirements, &known);
    let mut found: BTreeMap<UnavailableOffering, bool> = BTreeMap::new();
    for each in types.iter().filter(is_asked) {
        let allowed = each.offerings.iter();
        for offering in allowed.filter(|offering| allows_offering(asked, offering)) {
            // A type can have several reservations in a zone.
            *found.entry(each.capacity_pool(offering)).or_default() |= offering.available;
        }
    }
    found.retain(|_, is_available| !*is_available);
    found.into_keys().collect()
}

/// Second: one kind of reservation, because one request takes no more. The kind with the cheapest offering; its offerings alone.
pub(crate) fn one_reservation_kind(candidates: &mut Vec<TypeCandidate<'_>>, asked: &Requirements) {
    if !allows(
        asked,
        labels::CAPACITY_TYPE,
        CapacityType::Reserved.as_str(),
    ) {
        return;
    }
    let kinds = candidates.iter().flat_map(|candidate| {
        let of = |offering: &&Offering| {
            let price = LaunchPrice::of(candidate.instance_type, offering);
            ReservationKind::of(offering).map(|kind| (price, kind))
        };
        candidate.offerings.iter().filter_map(of)
    });
    let best = kinds.min_by(|a, b| by_price(a.0, b.0).then(a.1.cmp(&b.1)));
    if let Some((_, kind)) = best {
        keep_offerings(candidates, |_, offering| {
            ReservationKind::of(offering) == Some(kind)
        });
    }
}

/// Third: one capacity block, the cheapest, because one request takes no more.
pub(crate) fn one_capacity_block(candidates: &mut Vec<TypeCandidate<'_>>) {
    let blocks = candidates.iter().flat_map(|candidate| {
        let blocks = candidate.offerings.iter();
        blocks
            .filter(|offering| ReservationKind::of(offering) == Some(ReservationKind::Block))
            .map(|offering| {
                let price = LaunchPrice::of(candidate.instance_type, offering);
                (price, candidate.instance_type, *offering)
            })
    });
    let best = blocks.min_by(|a, b| by_price(a.0, b.0));
    if let Some((_, instance_type, block)) = best {
        keep_offerings(candidates, |each, offering| {
            std::ptr::eq(each, instance_type) && std::ptr::eq(offering, block)
        });
    }
}

/// Fourth: of the reservations of a type in a zone the one with most left, because EC2 takes one override for each.
pub(crate) fn one_reservation_per_zone(candidates: &mut Vec<TypeCandidate<'_>>) {
    let is_reserved = |offering: &&&Offering| offering.capacity_type == CapacityType::Reserved;
    let mut any = candidates.iter().flat_map(|each| each.offerings.iter());
    if !any.any(|offering| is_reserved(&offering)) {
        return;
    }
    for candidate in candidates.iter_mut() {
        let mut by_zone: BTreeMap<&str, &Offering> = BTreeMap::new();
        for offering in candidate.offerings.iter().filter(is_reserved) {
            let left = |each: &Offering| each.reservation.as_ref().map_or(0, |(_, left)| *left);
            let best = by_zone.entry(&offering.zone).or_insert(offering);
            if left(offering) > left(best) {
                *best = offering;
            }
        }
        candidate.offerings = by_zone.into_values().collect();
    }
    drop_empty(candidates);
}

/// Fifth: no bare metal and no special hardware while anything else is left, unless variety was asked for.
pub(crate) fn without_exotic(candidates: &mut Vec<TypeCandidate<'_>>, asked: &Requirements) {
    let is_generic = |each: &TypeCandidate<'_>| !is_exotic(each.instance_type);
    if !asked.has_min_values() && candidates.iter().any(is_generic) {
        candidates.retain(is_generic);
    }
}

/// Sixth: no spot offering above the cheapest on-demand price, unless variety was asked for.
pub(crate) fn without_expensive_spot(
    candidates: &mut Vec<TypeCandidate<'_>>,
    asked: &Requirements,
) {
    let both = [CapacityType::Spot, CapacityType::OnDemand]
        .iter()
        .all(|each| allows(asked, labels::CAPACITY_TYPE, each.as_str()));
    if !both || asked.has_min_values() {
        return;
    }
    let on_demand = candidates.iter().flat_map(|candidate| {
        let offerings = candidate.offerings.iter();
        offerings
            .filter(|offering| offering.capacity_type == CapacityType::OnDemand)
            .filter_map(|offering| LaunchPrice::of(candidate.instance_type, offering))
    });
    let Some(limit) = on_demand.min() else {
        return;
    };
    keep_offerings(candidates, |each, offering| {
        offering.capacity_type != CapacityType::Spot
            || LaunchPrice::of(each, offering).is_none_or(|price| price <= limit)
    });
}

/// Keeps some offerings, and the types that have any left.
fn keep_offerings(
    candidates: &mut Vec<TypeCandidate<'_>>,
    keep: impl Fn(&InstanceType, &Offering) -> bool,
) {
    for candidate in candidates.iter_mut() {
        let each = candidate.instance_type;
        candidate.offerings.retain(|offering| keep(each, offering));
    }
    drop_empty(candidates);
}

fn drop_empty(candidates: &mut Vec<TypeCandidate<'_>>) {
    candidates.retain(|candidate| !candidate.offerings.is_empty());
}

fn is_exotic(each: &InstanceType) -> bool {
    let sizes = each.requirements.get(INSTANCE_SIZE);
    let metal = sizes.is_some_and(|sizes| {
        let mut sizes = sizes.values().iter();
        sizes.any(|size| size.contains("metal"))
    });
    metal
        || SPECIALIZED
            .iter()
            .any(|name| each.capacity.extended(name) > 0)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mortise_apis::requirements::Operator;
    use mortise_apis::values::money::MicroUsd;

    use super::*;

    /// An offering of a reservation: kind, id, zone, price, instances left.
    fn reserved(kind: &str, id: &str, zone: &str, price: i64, left: u32) -> Offering {
        let (reservation_type, interruptible) = match kind {
            "block" => ("capacity-block", "false"),
            "interruptible" => ("default", "true"),
            _ => ("default", "false"),
        };
        let labels = [
            (CAPACITY_RESERVATION_ID, id),
            (CAPACITY_RESERVATION_INTERRUPTIBLE, interruptible),
            (CAPACITY_RESERVATION_TYPE, reservation_type),
        ];
        Offering {
            zone: Arc::from(zone),
            capacity_type: CapacityType::Reserved,
            price: Some(MicroUsd(price)),
            available: true,
            reservation: Some((Arc::from(id), left)),
            labels: labels
                .map(|(key, value)| (Arc::from(key), Arc::from(value)))
                .into(),
        }
    }

    fn plain(capacity_type: CapacityType, price: i64) -> Offering {
        Offering {
            zone: Arc::from("a"),
            capacity_type,
            price: Some(MicroUsd(price)),
            available: true,
            reservation: None,
            labels: Vec::new(),
        }
    }

    fn of(name: &str, offerings: Vec<Offering>) -> InstanceType {
        InstanceType {
            name: Arc::from(name),
            requirements: Requirements::new(),
            capacity: Resources::new(4_000, 1 << 30),
            overhead: Resources::zero(),
            offerings,
            devices: Arc::from([]),
        }
    }

    fn candidates(types: &[InstanceType]) -> Vec<TypeCandidate<'_>> {
        let asked = Requirements::new();
        compatible_available(types, &asked, &Resources::zero())
    }

    fn left(candidates: &[TypeCandidate<'_>]) -> Vec<String> {
        let all = candidates.iter().flat_map(|each| {
            let offerings = each.offerings.iter();
            offerings.map(|offering| {
                let id = offering.reservation.as_ref().map(|(id, _)| &**id);
                format!("{} {}", each.instance_type.name, id.unwrap_or("-"))
            })
        });
        all.collect()
    }

    #[test]
    fn one_kind_of_reservation_is_kept() {
        let asked = Requirements::new();
        for (first, second, kept) in [
            (("block", 5), ("default", 9), "a 1"),
            (("block", 5), ("default", 5), "b 2"),
            (("interruptible", 5), ("block", 5), "b 2"),
            (("interruptible", 4), ("default", 5), "a 1"),
        ] {
            let types = [
                of("a", vec![reserved(first.0, "1", "a", first.1 << 30, 1)]),
                of(
                    "b",
                    vec![
                        plain(CapacityType::Spot, 1),
                        reserved(second.0, "2", "a", second.1 << 30, 1),
                    ],
                ),
            ];
            let mut all = candidates(&types);
            one_reservation_kind(&mut all, &asked);
            assert_eq!(left(&all), [kept], "{first:?} {second:?}");
        }
        let types = [of("a", vec![plain(CapacityType::Spot, 1)])];
        let mut all = candidates(&types);
        one_reservation_kind(&mut all, &asked);
        one_reservation_per_zone(&mut all);
        assert_eq!(left(&all), ["a -"], "nothing is reserved");
    }

    #[test]
    fn one_block_and_one_reservation_per_zone_are_kept() {
        let types = [
            of("a", vec![reserved("block", "1", "a", 3 << 30, 1)]),
            of(
                "b",
                vec![
                    reserved("block", "2", "a", 2 << 30, 1),
                    reserved("block", "3", "a", 4 << 30, 1),
                ],
            ),
        ];
        let mut all = candidates(&types);
        one_capacity_block(&mut all);
        assert_eq!(left(&all), ["b 2"]);
        let types = [
            of(
                "a",
                vec![
                    reserved("default", "1", "a", 0, 1),
                    reserved("default", "2", "a", 0, 3),
                    reserved("default", "3", "b", 0, 1),
                ],
            ),
            of("b", vec![plain(CapacityType::OnDemand, 1)]),
        ];
        let mut all = candidates(&types);
        one_reservation_per_zone(&mut all);
        assert_eq!(left(&all), ["a 2", "a 3"]);
    }

    #[test]
    fn expensive_spot_goes_whole() {
        let asked = Requirements::new();
        let types = [
            of("a", vec![plain(CapacityType::OnDemand, 5)]),
            of("b", vec![plain(CapacityType::Spot, 6)]),
            of("c", vec![plain(CapacityType::Spot, 5)]),
        ];
        let mut all = candidates(&types);
        without_expensive_spot(&mut all, &asked);
        assert_eq!(left(&all), ["a -", "c -"]);
    }

    #[test]
    fn other_offerings_are_those_without_a_reservation() {
        let is = |key: &str, value: &str| -> Requirements {
            [Requirement::is(key, value)].into_iter().collect()
        };
        let one = is(CAPACITY_RESERVATION_ID, "1");
        let none: Requirements = [Requirement::new(
            CAPACITY_RESERVATION_ID,
            Operator::DoesNotExist,
            Vec::<String>::new(),
        )]
        .into_iter()
        .collect();
        let offering = reserved("default", "1", "a", 0, 1);
        assert!(allows_offering(&one, &offering) && !allows_offering(&none, &offering));
        let other = plain(CapacityType::OnDemand, 1);
        assert!(!allows_offering(&one, &other) && allows_offering(&none, &other));
    }
}
