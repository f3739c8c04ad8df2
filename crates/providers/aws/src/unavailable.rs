//! What could not be had a moment ago, and is not asked for again for three minutes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mortise_core::cloud::{CapacityType, InstanceType, Unavailable};
use tokio::time::Instant;

/// How long an offering is left alone. Shorter, and every launch asks the same empty pools; longer, and freed capacity goes unused.
/// # Source
/// The reference implementation's number, which users' alerts are tuned to.
const TTL: Duration = Duration::from_secs(180);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Offering(Unavailable),
    CapacityType(CapacityType),
    Subnet(String),
}

/// Offerings, capacity types and subnets that could not be had.
#[derive(Debug, Default)]
pub(crate) struct Unavailability {
    until: Mutex<BTreeMap<Place, Instant>>,
}

impl Unavailability {
    /// An offering had no capacity.
    pub(crate) fn mark_offering(&self, offering: Unavailable) {
        self.mark(Place::Offering(offering));
    }

    /// Nothing of a capacity type can be had, whatever the type and zone.
    pub(crate) fn mark_capacity_type(&self, capacity_type: CapacityType) {
        self.mark(Place::CapacityType(capacity_type));
    }

    /// A subnet has no addresses left.
    pub(crate) fn mark_subnet(&self, subnet: &str) {
        self.mark(Place::Subnet(subnet.to_owned()));
    }

    /// Whether a subnet was full a moment ago.
    pub(crate) fn is_subnet_full(&self, subnet: &str) -> bool {
        self.has(&Place::Subnet(subnet.to_owned()))
    }

    /// Switches off what cannot be had, in a list of types. `zones` are the zones that still have a subnet with addresses.
    pub(crate) fn apply(&self, types: &mut [InstanceType], zones: &[Arc<str>]) {
        let (offerings, capacity_types) = {
            let mut until = self.lock();
            let now = Instant::now();
            until.retain(|_, end| *end > now);
            let mut offerings = std::collections::BTreeSet::new();
            let mut capacity_types = std::collections::BTreeSet::new();
            for place in until.keys() {
                match place {
                    Place::Offering(offering) => {
                        offerings.insert((Arc::clone(&offering.instance_type), Arc::clone(&offering.zone), offering.capacity_type));
                    }
                    Place::CapacityType(capacity_type) => {
                        capacity_types.insert(*capacity_type);
                    }
                    Place::Subnet(_) => {}
                }
            }
            (offerings, capacity_types)
        };
        for each in types {
            for offering in &mut each.offerings {
                let empty = capacity_types.contains(&offering.capacity_type)
                    || !zones.contains(&offering.zone)
                    || (!offerings.is_empty() && offerings.contains(&(Arc::clone(&each.name), Arc::clone(&offering.zone), offering.capacity_type)));
                offering.available &= !empty;
            }
        }
    }

    fn mark(&self, place: Place) {
        self.lock().insert(place, Instant::now() + TTL);
    }

    fn has(&self, place: &Place) -> bool {
        self.lock().get(place).is_some_and(|end| *end > Instant::now())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Place, Instant>> {
        self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog;

    fn available(types: &[InstanceType]) -> usize {
        types.iter().flat_map(|each| &each.offerings).filter(|offering| offering.available).count()
    }

    #[tokio::test(start_paused = true)]
    async fn marks_end_after_three_minutes() {
        let zone: Arc<str> = Arc::from("us-east-1a");
        let mut types = catalog::embedded("us-east-1", &["us-east-1a"]).unwrap();
        types.retain(|each| &*each.name == "m5.large");
        let all = available(&types);
        assert_eq!(all, 2);
        let marks = Unavailability::default();
        let zones = [Arc::clone(&zone)];
        let count = || {
            let mut copy = types.clone();
            marks.apply(&mut copy, &zones);
            available(&copy)
        };
        marks.mark_offering(Unavailable { instance_type: Arc::from("m5.large"), zone: Arc::clone(&zone), capacity_type: CapacityType::Spot });
        assert_eq!(count(), 1);
        marks.mark_capacity_type(CapacityType::OnDemand);
        marks.mark_subnet("subnet-1");
        assert_eq!(count(), 0);
        assert!(marks.is_subnet_full("subnet-1") && !marks.is_subnet_full("subnet-2"));
        tokio::time::advance(TTL + Duration::from_secs(1)).await;
        assert_eq!(count(), all);
        assert!(!marks.is_subnet_full("subnet-1"));
        let mut copy = types.clone();
        marks.apply(&mut copy, &[]);
        assert_eq!(available(&copy), 0, "a zone without a usable subnet");
    }
}
