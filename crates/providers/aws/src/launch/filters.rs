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
    CAPACITY_RESERVATION_ID, CAPACITY_RESERVATION_INTERRUPTIBLE, CAPACITY_RESERVATION_TYPE,
    INSTANCE_SIZE,
};
use mortise_cloudprovider::{CapacityType, InstanceType, Offering};

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
    pub(super) fn cheapest(&self) -> Option<LaunchPrice> {
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
            } else if label(offering, CAPACITY_RESERVATION_TYPE) == Some("capacity-block") {
                Self::Block
            } else {
                Self::Default
            },
        )
    }
}

/// A label of an offering.
pub(super) fn label<'a>(offering: &'a Offering, key: &str) -> Option<&'a str> {
    let mut labels = offering.labels.iter();
    labels
        .find(|(name, _)| &**name == key)
        .map(|(_, value)| &**value)
}

/// Whether the requirements allow a value for a key. What is not asked for is allowed.
pub(super) fn allows(asked: &Requirements, key: &str, value: &str) -> bool {
    asked
        .get(key)
        .is_none_or(|wanted: &Requirement| wanted.has(value))
}

/// Whether the requirements allow an offering.
pub(super) fn allows_offering(asked: &Requirements, offering: &Offering) -> bool {
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

/// First: types that meet the requirements and hold the requests, with their `usable` offerings that the requirements allow.
pub(super) fn compatible_available<'a>(
    types: &'a [InstanceType],
    asked: &Requirements,
    requests: &Resources,
    usable: impl Fn(&InstanceType, &Offering) -> bool,
) -> Vec<TypeCandidate<'a>> {
    let known = mortise_aws_class::labels::well_known();
    let candidate = |each: &'a InstanceType| TypeCandidate {
        instance_type: each,
        offerings: each
            .offerings
            .iter()
            .filter(|offering| allows_offering(asked, offering) && usable(each, offering))
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

/// Second: one kind of reservation, because one request takes no more. The kind with the cheapest offering; its offerings alone.
pub(super) fn one_reservation_kind(candidates: &mut Vec<TypeCandidate<'_>>, asked: &Requirements) {
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
pub(super) fn one_capacity_block(candidates: &mut Vec<TypeCandidate<'_>>) {
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
pub(super) fn one_reservation_per_zone(candidates: &mut Vec<TypeCandidate<'_>>) {
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
pub(super) fn without_exotic(candidates: &mut Vec<TypeCandidate<'_>>, asked: &Requirements) {
    let is_generic = |each: &TypeCandidate<'_>| !is_exotic(each.instance_type);
    if !asked.has_min_values() && candidates.iter().any(is_generic) {
        candidates.retain(is_generic);
    }
}

/// Sixth: no spot offering above the cheapest on-demand price, unless variety was asked for.
pub(super) fn without_expensive_spot(
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
