//! What was unavailable a moment ago (insufficient capacity), and is not asked for again for three minutes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mortise_cloudprovider::{CapacityType, InstanceType, Offering, UnavailableOffering};
use tokio::time::Instant;

/// How long an offering is left alone. Shorter, and every launch asks the same empty pools; longer, and freed capacity goes unused.
/// # Source
/// The reference implementation's number, which users' alerts are tuned to.
const TTL: Duration = Duration::from_secs(180);

/// What can be unavailable.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum UnavailableKey {
    /// An offering without capacity.
    Offering(UnavailableOffering),
    /// A capacity type, whatever the instance type and zone.
    CapacityType(CapacityType),
    /// A subnet without free addresses, by its id.
    Subnet(String),
}

/// Offerings, capacity types and subnets that were unavailable recently.
#[derive(Debug, Default)]
pub(crate) struct UnavailableOfferings {
    until: Mutex<BTreeMap<UnavailableKey, Instant>>,
}

impl UnavailableOfferings {
    /// Notes that something was unavailable just now.
    pub(crate) fn mark(&self, key: UnavailableKey) {
        self.lock().insert(key, Instant::now() + TTL);
    }

    /// Whether a subnet was full a moment ago.
    pub(crate) fn is_subnet_full(&self, subnet: &str) -> bool {
        self.has(&UnavailableKey::Subnet(subnet.to_owned()))
    }

    /// What is unavailable now, for questions about many offerings. `zones` are the zones that still have a subnet with addresses.
    pub(crate) fn view(&self, zones: BTreeSet<Arc<str>>) -> UnavailableView {
        let mut until = self.lock();
        let now = Instant::now();
        until.retain(|_, end| *end > now);
        let mut marks = UnavailableView {
            zones,
            offerings: BTreeSet::new(),
            capacity_types: BTreeSet::new(),
        };
        for place in until.keys() {
            match place {
                UnavailableKey::Offering(offering) => {
                    marks.offerings.insert(offering.clone());
                }
                UnavailableKey::CapacityType(capacity_type) => {
                    marks.capacity_types.insert(*capacity_type);
                }
                UnavailableKey::Subnet(_) => {}
            }
        }
        marks
    }

    fn has(&self, place: &UnavailableKey) -> bool {
        self.lock()
            .get(place)
            .is_some_and(|end| *end > Instant::now())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<UnavailableKey, Instant>> {
        self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What was unavailable, at one moment.
#[derive(Clone, Debug)]
pub(crate) struct UnavailableView {
    zones: BTreeSet<Arc<str>>,
    offerings: BTreeSet<UnavailableOffering>,
    capacity_types: BTreeSet<CapacityType>,
}

impl UnavailableView {
    /// Whether an offering may be asked for.
    pub(crate) fn allow(&self, instance_type: &InstanceType, offering: &Offering) -> bool {
        let key = || UnavailableOffering {
            instance_type: Arc::clone(&instance_type.name),
            zone: Arc::clone(&offering.zone),
            capacity_type: offering.capacity_type,
        };
        offering.available
            && self.zones.contains(&offering.zone)
            && !self.capacity_types.contains(&offering.capacity_type)
            && (self.offerings.is_empty() || !self.offerings.contains(&key()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mortise_aws_catalog as catalog;

    #[tokio::test(start_paused = true)]
    async fn marks_end_after_three_minutes() {
        let zone: Arc<str> = Arc::from("us-east-1a");
        let types = catalog::embedded("us-east-1", &["us-east-1a"]).unwrap();
        let large = types.iter().find(|each| &*each.name == "m5.large").unwrap();
        let unavailable = UnavailableOfferings::default();
        let zones = BTreeSet::from([Arc::clone(&zone)]);
        let left = || {
            let marks = unavailable.view(zones.clone());
            large
                .offerings
                .iter()
                .filter(|offering| marks.allow(large, offering))
                .count()
        };
        assert_eq!(left(), 2);
        unavailable.mark(UnavailableKey::Offering(UnavailableOffering {
            instance_type: Arc::from("m5.large"),
            zone: Arc::clone(&zone),
            capacity_type: CapacityType::Spot,
        }));
        assert_eq!(left(), 1);
        unavailable.mark(UnavailableKey::CapacityType(CapacityType::OnDemand));
        unavailable.mark(UnavailableKey::Subnet("subnet-1".to_owned()));
        assert_eq!(left(), 0);
        assert!(unavailable.is_subnet_full("subnet-1") && !unavailable.is_subnet_full("subnet-2"));
        tokio::time::advance(TTL + Duration::from_secs(1)).await;
        assert_eq!(left(), 2);
        assert!(!unavailable.is_subnet_full("subnet-1"));
        let nowhere = unavailable.view(BTreeSet::new());
        assert!(
            !large
                .offerings
                .iter()
                .any(|offering| nowhere.allow(large, offering)),
            "a zone without a usable subnet"
        );
    }
}
