//! Free addresses of subnets: EC2's own count, less what launches on their way will take.
//!
//! Invariant: an estimate is never below zero, and ends when EC2 was asked again. What a launch took for a subnet that was not used is
//! returned, exactly once and only to the estimate it was taken from.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use crate::node_class::{CachedNodeClass, FoundSubnet};

#[derive(Clone, Copy, Debug)]
struct Estimate {
    left: i64,
    /// When EC2 was asked for the count that it starts from.
    read: Instant,
}

/// The subnet of a zone for one launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChosenSubnet {
    /// Its id.
    pub(crate) id: String,
    /// How many addresses the launch took from the estimate.
    taken: i64,
    /// Of which estimate.
    read: Instant,
}

impl ChosenSubnet {
    /// What is left of it when `used` of `count` instances were launched in it.
    pub(crate) fn without(&self, used: usize, count: usize) -> Self {
        let unused = count.saturating_sub(used);
        let as_i64 = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        Self {
            id: self.id.clone(),
            taken: self.taken.saturating_mul(as_i64(unused)) / as_i64(count.max(1)),
            read: self.read,
        }
    }
}

/// Estimates by subnet id.
#[derive(Debug, Default)]
pub(crate) struct SubnetAddresses {
    by_id: Mutex<HashMap<String, Estimate>>,
}

impl SubnetAddresses {
    /// In each zone of `need` the subnet of the class with the most addresses left, less what the launch needs there.
    pub(crate) fn take(
        &self,
        class: &CachedNodeClass,
        need: &BTreeMap<String, i64>,
    ) -> BTreeMap<String, ChosenSubnet> {
        let mut estimates = self.lock();
        let mut best: BTreeMap<&str, (&str, Estimate)> = BTreeMap::new();
        for each in &class.subnets {
            let counted = Estimate {
                left: i64::from(each.free),
                read: class.found,
            };
            let known = estimates.get(&each.subnet.id).copied();
            let estimate = known
                .filter(|known| known.read >= counted.read)
                .unwrap_or(counted);
            let zone = best.entry(&each.subnet.zone);
            let current = zone.or_insert((&each.subnet.id, estimate));
            if estimate.left > current.1.left {
                *current = (&each.subnet.id, estimate);
            }
        }
        let mut chosen = BTreeMap::new();
        for (zone, (id, estimate)) in best {
            let Some(need) = need.get(zone) else {
                continue;
            };
            let taken = (*need).clamp(0, estimate.left.max(0));
            let rest = Estimate {
                left: estimate.left.max(0) - taken,
                read: estimate.read,
            };
            estimates.insert(id.to_owned(), rest);
            let subnet = ChosenSubnet {
                id: id.to_owned(),
                taken,
                read: estimate.read,
            };
            chosen.insert(zone.to_owned(), subnet);
        }
        chosen
    }

    /// Returns what was taken from subnets that the launch does not use.
    pub(crate) fn give_back<'a>(&self, unused: impl IntoIterator<Item = &'a ChosenSubnet>) {
        let mut estimates = self.lock();
        for subnet in unused {
            if let Some(estimate) = estimates.get_mut(&subnet.id)
                && estimate.read == subnet.read
            {
                estimate.left += subnet.taken;
            }
        }
    }

    /// Whether some subnet of the class in a zone has addresses left, as far as that is known.
    pub(crate) fn has_room(&self, class: &CachedNodeClass, zone: &str) -> bool {
        let estimates = self.lock();
        let left = |each: &FoundSubnet| {
            let known = estimates.get(&each.subnet.id);
            let known = known.filter(|known| known.read >= class.found);
            known.map_or_else(|| i64::from(each.free), |known| known.left)
        };
        let mut of_zone = class.subnets.iter().filter(|each| each.subnet.zone == zone);
        of_zone.any(|each| left(each) > 0)
    }

    /// EC2 found no address in a subnet: nothing is left until it is asked for a count again.
    pub(crate) fn is_full(&self, subnet: &str) {
        let read = Instant::now();
        self.lock()
            .insert(subnet.to_owned(), Estimate { left: 0, read });
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Estimate>> {
        self.by_id.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
impl SubnetAddresses {
    /// Sets an estimate.
    pub(crate) fn assume(&self, subnet: &str, left: i64, read: Instant) {
        let left = left.max(0);
        self.lock()
            .insert(subnet.to_owned(), Estimate { left, read });
    }

    /// What is left of each subnet that was estimated.
    pub(crate) fn left(&self) -> BTreeMap<String, i64> {
        let estimates = self.lock();
        estimates
            .iter()
            .map(|(id, estimate)| (id.clone(), estimate.left))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use mortise_aws_class::status::Subnet;

    use super::*;
    use crate::launch::tests::class;
    use crate::node_class::FoundSubnet;

    fn with(subnets: &[(&str, &str, i32)]) -> CachedNodeClass {
        let mut class = class();
        let found = subnets.iter().map(|(id, zone, free)| FoundSubnet {
            subnet: Subnet {
                id: (*id).to_owned(),
                zone: (*zone).to_owned(),
                zone_id: None,
            },
            free: *free,
        });
        class.subnets = found.collect();
        class
    }

    fn need(zones: &[(&str, i64)]) -> BTreeMap<String, i64> {
        let zones = zones.iter();
        zones
            .map(|(zone, pods)| ((*zone).to_owned(), *pods))
            .collect()
    }

    #[tokio::test(start_paused = true)]
    async fn launches_on_their_way_count() {
        let addresses = SubnetAddresses::default();
        let class = with(&[("s-1", "a", 50), ("s-2", "a", 40), ("s-3", "b", 5)]);
        let both = need(&[("a", 29), ("b", 29)]);
        let first = addresses.take(&class, &both);
        assert_eq!((&*first["a"].id, &*first["b"].id), ("s-1", "s-3"));
        let second = addresses.take(&class, &both);
        assert_eq!(&*second["a"].id, "s-2", "it has more left now");
        assert_eq!(addresses.left()["s-3"], 0, "never below zero");
        addresses.give_back([&second["b"], &first["b"], &second["a"]]);
        let left = addresses.left();
        assert_eq!((left["s-1"], left["s-2"], left["s-3"]), (21, 40, 5));
        let third = addresses.take(&class, &need(&[("a", 1)]));
        assert_eq!(third.len(), 1, "only zones that are asked for");
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_count_ends_estimates() {
        let addresses = SubnetAddresses::default();
        let old = with(&[("s-1", "a", 50)]);
        let taken = addresses.take(&old, &need(&[("a", 10)]));
        addresses.is_full("s-1");
        assert_eq!(addresses.left()["s-1"], 0);
        addresses.give_back(taken.values());
        tokio::time::advance(Duration::from_secs(1)).await;
        let new = with(&[("s-1", "a", 33)]);
        addresses.take(&new, &need(&[("a", 3)]));
        assert_eq!(addresses.left()["s-1"], 30);
        addresses.give_back(taken.values());
        assert_eq!(addresses.left()["s-1"], 30, "taken from an older count");
        addresses.take(&old, &need(&[("a", 1)]));
        assert_eq!(
            addresses.left()["s-1"],
            29,
            "another class has an older count"
        );
    }
}
