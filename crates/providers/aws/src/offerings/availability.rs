//! What can be launched at one moment: offerings without those that were unavailable a moment ago, that are in a zone that is shifted
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
    /// What can be launched now, except for what was unavailable a moment ago.
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

/// What can be launched now.
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use mortise_apis::requirements::Requirements;
    use mortise_apis::resources::Resources;
    use mortise_apis::values::money::MicroUsd;
    use mortise_cloudprovider::CapacityType;
    use tokio::time::Instant;

    use super::*;
    use crate::offerings::unavailable_offerings::UnavailableOfferings;

    fn offering(zone: &str, reservation: Option<&str>) -> Offering {
        let zone_id = (Arc::from(key::ZONE_ID), Arc::from(format!("id-{zone}")));
        Offering {
            zone: Arc::from(zone),
            capacity_type: match reservation {
                Some(_) => CapacityType::Reserved,
                None => CapacityType::OnDemand,
            },
            price: Some(MicroUsd(1)),
            available: true,
            reservation: reservation.map(|id| (Arc::from(id), 0)),
            labels: vec![zone_id],
        }
    }

    #[tokio::test(start_paused = true)]
    async fn counts_shifts_and_memory_apply_to_types() {
        let large = InstanceType {
            name: Arc::from("m5.large"),
            requirements: Requirements::new(),
            capacity: Resources::new(2000, 8_000),
            overhead: Resources::zero(),
            offerings: vec![
                offering("a", None),
                offering("b", None),
                offering("a", Some("cr-1")),
                offering("a", Some("cr-unknown")),
            ],
            devices: Arc::default(),
        };
        let moment = Moment::default();
        moment.reservations.read("cr-1", 1, Instant::now());
        let ended = Duration::from_secs(60);
        moment.shifted.replace([(Arc::from("id-b"), ended)]);
        let now = || {
            let zones = ["a", "b"].map(Arc::from).into_iter().collect();
            let availability =
                moment.availability(UnavailableOfferings::default().view(zones, None));
            let image = |_: &InstanceType| Some("ami-1");
            let types = moment.applied_to(std::slice::from_ref(&large), &availability, image);
            let [each] = types.as_slice() else {
                panic!("{types:?}")
            };
            each.clone()
        };
        let available = |of: &InstanceType| -> Vec<bool> {
            of.offerings.iter().map(|each| each.available).collect()
        };
        let each = now();
        assert_eq!(available(&each), [true, false, true, false]);
        let left = each.offerings[2].reservation.clone();
        assert_eq!(left, Some((Arc::from("cr-1"), 1)));
        assert_eq!(each.capacity.memory, 8_000);

        moment.reservations.launched("cr-1", Instant::now());
        moment.memory.observe("m5.large", "ami-1", 7_000);
        tokio::time::advance(ended).await;
        let each = now();
        assert_eq!(
            available(&each),
            [true, true, false, false],
            "used up; the shift ended"
        );
        assert_eq!(each.capacity.memory, 7_000);
    }
}
