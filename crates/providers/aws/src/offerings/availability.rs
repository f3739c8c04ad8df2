//! What can be bought at one moment: offerings without those that were unavailable a moment ago, that are in a zone that is shifted
//! away, or of a reservation that is used up.

use std::collections::BTreeSet;
use std::sync::Arc;

use mortise_aws_class::labels as key;
use mortise_cloudprovider::{InstanceType, Offering};

use crate::offerings::discovered_memory::DiscoveredMemory;
use crate::offerings::reservation_counts::ReservationCounts;
use crate::offerings::shifted_zones::ShiftedZones;
use crate::offerings::unavailable_offerings::UnavailableView;

/// What changes from moment to moment, whatever a class says.
#[derive(Clone, Debug, Default)]
pub(crate) struct Moment {
    /// Zones that are shifted away.
    pub(crate) shifted: Arc<ShiftedZones>,
    /// What is left in capacity reservations.
    pub(crate) reservations: Arc<ReservationCounts>,
    /// Memory that nodes were seen to have.
    pub(crate) memory: Arc<DiscoveredMemory>,
}

impl Moment {
    /// What can be bought now, beside what was unavailable a moment ago.
    pub(crate) fn availability(&self, unavailable: UnavailableView) -> Availability {
        Availability {
            unavailable,
            shifted: self.shifted.now(),
            counts: Arc::clone(&self.reservations),
        }
    }

    /// The types with the memory that nodes showed, and with only those offerings available that are. `image` is the id of the image
    /// that a type boots.
    pub(crate) fn applied_to<'a>(
        &self,
        types: &'a [InstanceType],
        availability: &Availability,
        image: impl Fn(&InstanceType) -> Option<&'a str>,
    ) -> Vec<InstanceType> {
        let any_seen = !self.memory.is_empty();
        let types = types.iter().map(|each| {
            let mut now = availability.applied_to(each);
            if any_seen
                && let Some(bytes) = image(each).and_then(|id| self.memory.of(&each.name, id))
            {
                now.capacity.memory = bytes;
            }
            now
        });
        types.collect()
    }
}

/// What can be bought now.
#[derive(Clone, Debug)]
pub(crate) struct Availability {
    unavailable: UnavailableView,
    shifted: BTreeSet<Arc<str>>,
    counts: Arc<ReservationCounts>,
}

impl Availability {
    /// Whether an offering may be asked for.
    pub(crate) fn allow(&self, instance_type: &InstanceType, offering: &Offering) -> bool {
        let left = offering.reservation.as_ref();
        self.unavailable.allow(instance_type, offering)
            && left.is_none_or(|(id, _)| self.left(id) > 0)
            && !zone_id(offering).is_some_and(|id| self.shifted.contains(id))
    }

    /// Instances that a reservation still takes.
    pub(crate) fn left(&self, reservation: &str) -> u32 {
        self.counts.left(reservation)
    }

    /// The type with its offerings as they are now.
    pub(crate) fn applied_to(&self, instance_type: &InstanceType) -> InstanceType {
        let offerings = instance_type.offerings.iter().map(|offering| Offering {
            available: self.allow(instance_type, offering),
            reservation: offering
                .reservation
                .as_ref()
                .map(|(id, _)| (Arc::clone(id), self.left(id))),
            ..offering.clone()
        });
        InstanceType {
            offerings: offerings.collect(),
            ..instance_type.clone()
        }
    }
}

fn zone_id(offering: &Offering) -> Option<&str> {
    let mut labels = offering.labels.iter();
    labels
        .find(|(key, _)| **key == *key::ZONE_ID)
        .map(|(_, value)| &**value)
}
