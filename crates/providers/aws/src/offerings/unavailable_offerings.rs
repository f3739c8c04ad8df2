//! What was unavailable a moment ago (insufficient capacity), why, and until when it is not asked for again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use mortise_aws_class::labels::PLACEMENT_GROUP_PARTITION;
use mortise_cloudprovider::{
    CapacityType, GaugeName, InstanceType, Offering, ProviderGauge, UnavailableCapacity,
    UnavailableOffering,
};
use tokio::time::Instant;

use crate::offerings::unavailability_cause::UnavailabilityCause;

/// How long an offering is left alone. Shorter, and every launch asks the same empty pools; longer, and freed capacity goes unused. It does
/// not grow with repeated refusals: whoever allows one offering alone waits for just this one, and in a request with several an empty one
/// costs nothing.
/// # Source
/// The reference implementation's number, which users' alerts are tuned to.
const TTL: Duration = Duration::from_secs(180);

/// A placement group, or one partition of it: lack of capacity in it says nothing about instances outside.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PlacementScope {
    /// Id of the group.
    pub(crate) group: Arc<str>,
    /// The partition; `None` for the whole group.
    pub(crate) partition: Option<Arc<str>>,
}

/// What can be unavailable.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum UnavailableKey {
    /// An offering without capacity.
    Offering(UnavailableOffering),
    /// An offering without capacity in a placement group or partition.
    Placed(UnavailableOffering, PlacementScope),
    /// A capacity type, whatever the instance type and zone.
    CapacityType(CapacityType),
    /// A subnet without free addresses, by its id.
    Subnet(String),
}

impl UnavailableKey {
    /// Its capacity type; `None` for what all of them lack.
    const fn capacity_type(&self) -> Option<CapacityType> {
        match self {
            Self::Offering(offering) | Self::Placed(offering, _) => Some(offering.capacity_type),
            Self::CapacityType(capacity_type) => Some(*capacity_type),
            Self::Subnet(_) => None,
        }
    }

    /// As the port has it.
    fn capacity(&self, cause: &str, until: Timestamp) -> UnavailableCapacity {
        let (offering, scope) = match self {
            Self::Offering(offering) => (Some(offering), None),
            Self::Placed(offering, scope) => {
                let partition = scope.partition.as_ref();
                let partition = partition.map_or_else(String::new, |each| format!("/{each}"));
                let scope = format!("placement-group/{}{partition}", scope.group);
                (Some(offering), Some(scope))
            }
            Self::CapacityType(_) => (None, None),
            Self::Subnet(subnet) => (None, Some(format!("subnet/{subnet}"))),
        };
        UnavailableCapacity {
            instance_type: offering.map(|each| Arc::clone(&each.instance_type)),
            zone: offering.map(|each| Arc::clone(&each.zone)),
            capacity_type: self.capacity_type(),
            scope,
            cause: cause.to_owned(),
            until,
        }
    }
}

#[derive(Clone, Debug)]
struct Unavailability {
    cause: Arc<str>,
    until: Instant,
}

/// Offerings, capacity types and subnets that were unavailable recently.
#[derive(Debug, Default)]
pub(crate) struct UnavailableOfferings {
    marks: Mutex<BTreeMap<UnavailableKey, Unavailability>>,
}

impl UnavailableOfferings {
    /// Notes that something was taken away just now.
    #[cfg(test)]
    pub(crate) fn mark(&self, key: UnavailableKey) {
        self.mark_because(key, "set by a test");
    }

    /// Notes that something was unavailable just now, and why. A later mark extends an earlier one.
    pub(crate) fn mark_because(&self, key: UnavailableKey, cause: &str) {
        let mark = Unavailability {
            cause: Arc::from(cause),
            until: Instant::now() + TTL,
        };
        self.lock().insert(key, mark);
    }

    /// Whether a subnet was full a moment ago.
    pub(crate) fn is_subnet_full(&self, subnet: &str) -> bool {
        self.has(&UnavailableKey::Subnet(subnet.to_owned()))
    }

    /// What is unavailable now.
    #[cfg(test)]
    pub(crate) fn keys(&self) -> Vec<UnavailableKey> {
        let mut marks = self.lock();
        drop_ended(&mut marks);
        marks.keys().cloned().collect()
    }

    /// Everything that is unavailable `now`, with cause and end.
    pub(crate) fn snapshot(&self, now: Timestamp) -> Vec<UnavailableCapacity> {
        let mut marks = self.lock();
        drop_ended(&mut marks);
        let clock = Instant::now();
        let all = marks.iter().map(|(key, mark)| {
            let left = mark.until.saturating_duration_since(clock);
            key.capacity(&mark.cause, now.saturating_add(left).unwrap_or(now))
        });
        all.collect()
    }

    /// How much is unavailable now, by capacity type and cause.
    pub(crate) fn gauges(&self) -> Vec<ProviderGauge> {
        let mut marks = self.lock();
        drop_ended(&mut marks);
        let mut counts: BTreeMap<(&'static str, &'static str), u32> = BTreeMap::new();
        for (key, mark) in &*marks {
            let capacity_type = key.capacity_type().map_or("any", CapacityType::as_str);
            let cause = UnavailabilityCause::of(&mark.cause).label();
            *counts.entry((capacity_type, cause)).or_default() += 1;
        }
        let gauges = counts
            .into_iter()
            .map(|((capacity_type, cause), count)| ProviderGauge {
                name: GaugeName::UnavailableCapacity,
                labels: vec![("capacity_type", capacity_type), ("cause", cause)],
                value: f64::from(count),
            });
        gauges.collect()
    }

    /// What is unavailable now to instances in placement group `group`, or in none, for questions about many offerings. `zones` are
    /// the zones that still have a subnet with addresses.
    pub(crate) fn view(&self, zones: BTreeSet<Arc<str>>, group: Option<&str>) -> UnavailableView {
        let mut marks = self.lock();
        drop_ended(&mut marks);
        let mut view = UnavailableView {
            zones,
            offerings: BTreeSet::new(),
            partitions: BTreeSet::new(),
            capacity_types: BTreeSet::new(),
        };
        for key in marks.keys() {
            match key {
                UnavailableKey::Offering(offering) => {
                    view.offerings.insert(offering.clone());
                }
                UnavailableKey::Placed(offering, scope) if Some(&*scope.group) == group => {
                    match &scope.partition {
                        None => view.offerings.insert(offering.clone()),
                        Some(partition) => view
                            .partitions
                            .insert((offering.clone(), Arc::clone(partition))),
                    };
                }
                UnavailableKey::CapacityType(capacity_type) => {
                    view.capacity_types.insert(*capacity_type);
                }
                UnavailableKey::Placed(..) | UnavailableKey::Subnet(_) => {}
            }
        }
        view
    }

    /// How long until the first of what is unavailable now is asked for again, in milliseconds; `None` if everything is.
    pub(crate) fn again_ms(&self) -> Option<i64> {
        let mut marks = self.lock();
        drop_ended(&mut marks);
        let first = marks.values().map(|mark| mark.until).min()?;
        let left = first.saturating_duration_since(Instant::now());
        // A mark holds until the end of its last millisecond.
        i64::try_from(left.as_millis() + 1).ok()
    }

    fn has(&self, key: &UnavailableKey) -> bool {
        self.lock()
            .get(key)
            .is_some_and(|mark| mark.until > Instant::now())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<UnavailableKey, Unavailability>> {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn drop_ended(marks: &mut BTreeMap<UnavailableKey, Unavailability>) {
    let now = Instant::now();
    marks.retain(|_, mark| mark.until > now);
}

/// What was unavailable, at one moment.
#[derive(Clone, Debug)]
pub(crate) struct UnavailableView {
    zones: BTreeSet<Arc<str>>,
    offerings: BTreeSet<UnavailableOffering>,
    /// Offerings that one partition of the group lacks.
    partitions: BTreeSet<(UnavailableOffering, Arc<str>)>,
    capacity_types: BTreeSet<CapacityType>,
}

impl UnavailableView {
    /// Whether an offering may be asked for.
    pub(crate) fn allow(&self, instance_type: &InstanceType, offering: &Offering) -> bool {
        offering.available
            && self.zones.contains(&offering.zone)
            && !self.capacity_types.contains(&offering.capacity_type)
            && !self.lacks(instance_type, offering)
    }

    /// Reserved capacity is counted, not marked.
    fn lacks(&self, instance_type: &InstanceType, offering: &Offering) -> bool {
        if self.offerings.is_empty() && self.partitions.is_empty() {
            return false;
        }
        let key = UnavailableOffering {
            instance_type: Arc::clone(&instance_type.name),
            zone: Arc::clone(&offering.zone),
            capacity_type: offering.capacity_type,
        };
        if self.offerings.contains(&key) {
            return true;
        }
        let partition = offering
            .labels
            .iter()
            .find(|(label, _)| &**label == PLACEMENT_GROUP_PARTITION);
        partition
            .is_some_and(|(_, partition)| self.partitions.contains(&(key, Arc::clone(partition))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mortise_aws_catalog as catalog;

    fn spot(zone: &Arc<str>) -> UnavailableOffering {
        UnavailableOffering {
            instance_type: Arc::from("m5.large"),
            zone: Arc::clone(zone),
            capacity_type: CapacityType::Spot,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn marks_end_after_three_minutes() {
        let zone: Arc<str> = Arc::from("us-east-1a");
        let types = catalog::embedded("us-east-1", &["us-east-1a"]).unwrap();
        let large = types.iter().find(|each| &*each.name == "m5.large").unwrap();
        let unavailable = UnavailableOfferings::default();
        let zones = BTreeSet::from([Arc::clone(&zone)]);
        let left = || {
            let marks = unavailable.view(zones.clone(), None);
            large
                .offerings
                .iter()
                .filter(|offering| marks.allow(large, offering))
                .count()
        };
        assert_eq!((left(), unavailable.again_ms()), (2, None));
        unavailable.mark_because(
            UnavailableKey::Offering(spot(&zone)),
            "UnfulfillableCapacity",
        );
        assert_eq!(left(), 1);
        unavailable.mark(UnavailableKey::CapacityType(CapacityType::OnDemand));
        unavailable.mark(UnavailableKey::Subnet("subnet-1".to_owned()));
        assert_eq!(left(), 0);
        assert_eq!(unavailable.again_ms(), Some(180_001));
        assert!(unavailable.is_subnet_full("subnet-1") && !unavailable.is_subnet_full("subnet-2"));
        let causes: Vec<String> = unavailable
            .snapshot(Timestamp::UNIX_EPOCH)
            .iter()
            .map(|mark| mark.cause.to_string())
            .collect();
        assert_eq!(
            causes,
            ["UnfulfillableCapacity", "set by a test", "set by a test"]
        );
        tokio::time::advance(TTL + Duration::from_secs(1)).await;
        assert_eq!(left(), 2);
        assert!(!unavailable.is_subnet_full("subnet-1"));
        assert_eq!(unavailable.keys(), []);
        let nowhere = unavailable.view(BTreeSet::new(), None);
        assert!(
            !large
                .offerings
                .iter()
                .any(|offering| nowhere.allow(large, offering)),
            "a zone without a usable subnet"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn marks_are_counted_by_capacity_type_and_cause() {
        let unavailable = UnavailableOfferings::default();
        assert_eq!(unavailable.gauges(), []);
        for zone in ["us-east-1a", "us-east-1b"] {
            let key = UnavailableKey::Offering(spot(&Arc::from(zone)));
            unavailable.mark_because(key, "InsufficientInstanceCapacity");
        }
        let on_demand = UnavailableKey::CapacityType(CapacityType::OnDemand);
        unavailable.mark_because(on_demand, "VcpuLimitExceeded");
        let subnet = UnavailableKey::Subnet("subnet-1".to_owned());
        unavailable.mark_because(subnet, "InsufficientFreeAddressesInSubnet");
        let told = unavailable.gauges();
        let told = told.iter().map(|gauge| {
            let [(_, capacity_type), (_, cause)] = gauge.labels[..] else {
                panic!("{gauge:?}");
            };
            (capacity_type, cause, gauge.value)
        });
        assert_eq!(
            told.collect::<Vec<_>>(),
            [
                ("any", "subnet_full", 1.0),
                ("on-demand", "quota", 1.0),
                ("spot", "no_capacity", 2.0),
            ]
        );
        tokio::time::advance(TTL + Duration::from_secs(1)).await;
        assert_eq!(unavailable.gauges(), [], "all have ended");
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_group_or_partition_is_full_for_itself_alone() {
        let zone: Arc<str> = Arc::from("us-east-1a");
        let mut types = catalog::embedded("us-east-1", &["us-east-1a"]).unwrap();
        let large = types
            .iter_mut()
            .find(|each| &*each.name == "m5.large")
            .unwrap();
        for offering in &mut large.offerings {
            offering
                .labels
                .push((Arc::from(PLACEMENT_GROUP_PARTITION), Arc::from("2")));
        }
        let unavailable = UnavailableOfferings::default();
        let allowed = |group: Option<&str>| {
            let view = unavailable.view(BTreeSet::from([Arc::clone(&zone)]), group);
            let offerings = large.offerings.iter();
            offerings.filter(|each| view.allow(large, each)).count()
        };
        let placed = |partition: Option<&str>| {
            let scope = PlacementScope {
                group: Arc::from("pg-1"),
                partition: partition.map(Arc::from),
            };
            UnavailableKey::Placed(spot(&zone), scope)
        };
        unavailable.mark(placed(Some("1")));
        assert_eq!(allowed(Some("pg-1")), 2, "another partition is full");
        unavailable.mark(placed(Some("2")));
        assert_eq!(allowed(Some("pg-1")), 1, "its partition is full");
        assert_eq!((allowed(Some("pg-2")), allowed(None)), (2, 2));
        unavailable.mark(placed(None));
        assert_eq!((allowed(Some("pg-1")), allowed(None)), (1, 2));
    }
}
