//! What can be bought at one moment: offerings without those that were unavailable a moment ago, that are in a zone that is shifted
//! away, or of a reservation that is used up.

use std::collections::BTreeSet;
use std::sync::Arc;

use mortise_aws_class::labels as key;
use mortise_cloudprovider::{InstanceType, Offering};

use crate::offerings::reservation_counts::ReservationCounts;
use crate::offerings::unavailable_offerings::UnavailableView;

/// What of a class can be bought now.
#[derive(Clone, Debug)]
pub(crate) struct Availability {
    unavailable: UnavailableView,
    shifted: BTreeSet<Arc<str>>,
    counts: Arc<ReservationCounts>,
}

impl Availability {
    /// Puts together what is known of the moment: unavailable offerings, ids of shifted zones, and counts of reservations.
    pub(crate) const fn new(
        unavailable: UnavailableView,
        shifted: BTreeSet<Arc<str>>,
        counts: Arc<ReservationCounts>,
    ) -> Self {
        Self {
            unavailable,
            shifted,
            counts,
        }
    }

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
