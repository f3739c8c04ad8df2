//! Capacity reservations with instances that no node uses: they are paid for all the same.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use mortise_apis::names::NodeClassKey;
use mortise_apis::values::money::MicroUsd;
use mortise_state::catalog::Catalog;
use serde::Serialize;

type Catalogs = BTreeMap<NodeClassKey, Arc<Catalog>>;

/// A reservation that a node class selects, with instances left in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct UnusedReservation {
    /// Its id.
    pub(crate) id: Arc<str>,
    /// Instance type.
    pub(crate) instance_type: Arc<str>,
    /// Zone.
    pub(crate) zone: Arc<str>,
    /// Instances that no node uses.
    pub(crate) instances: u32,
    /// On-demand price of one of them for an hour, which is what a reservation costs; `None` if it is not known.
    #[serde(skip)]
    pub(crate) price: Option<MicroUsd>,
    /// Since when it has been seen with unused instances, by this process and without a gap.
    pub(crate) since: Timestamp,
}

impl UnusedReservation {
    /// What all unused instances cost in an hour.
    pub(crate) fn hourly_price(&self) -> Option<MicroUsd> {
        let of_all = self.price?.0.saturating_mul(i64::from(self.instances));
        Some(MicroUsd(of_all))
    }
}

/// The reservations with unused instances, followed from snapshot to snapshot.
#[derive(Debug, Default)]
pub(crate) struct UnusedReservations {
    followed: Mutex<Followed>,
}

#[derive(Debug, Default)]
struct Followed {
    /// What was read last.
    catalogs: Arc<Catalogs>,
    by_id: BTreeMap<Arc<str>, UnusedReservation>,
}

impl UnusedReservations {
    /// Reads the catalogs of a new snapshot.
    ///
    /// # Cost
    /// Nothing while the catalogs are the same; else one pass over their offerings.
    pub(crate) fn follow(&self, catalogs: &Arc<Catalogs>, now: Timestamp) {
        let mut followed = self.lock();
        if Arc::ptr_eq(&followed.catalogs, catalogs) {
            return;
        }
        let mut seen = unused(catalogs, now);
        for (id, each) in &mut seen {
            if let Some(known) = followed.by_id.get(id) {
                each.since = known.since;
            }
        }
        followed.by_id = seen;
        followed.catalogs = Arc::clone(catalogs);
    }

    /// Those with unused instances now, by id.
    pub(crate) fn now(&self) -> Vec<UnusedReservation> {
        self.lock().by_id.values().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Followed> {
        self.followed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The unused instances of all reservations. Where classes differ in the number, the smallest counts, as for launches.
fn unused(catalogs: &Catalogs, since: Timestamp) -> BTreeMap<Arc<str>, UnusedReservation> {
    let mut found: BTreeMap<Arc<str>, UnusedReservation> = BTreeMap::new();
    let types = catalogs.values().flat_map(|catalog| catalog.types());
    for instance_type in types {
        for offering in &instance_type.offerings {
            let Some((id, left)) = &offering.reservation else {
                continue;
            };
            let known = found
                .entry(Arc::clone(id))
                .or_insert_with(|| UnusedReservation {
                    id: Arc::clone(id),
                    instance_type: Arc::clone(&instance_type.name),
                    zone: Arc::clone(&offering.zone),
                    instances: *left,
                    price: instance_type.on_demand_price(&offering.zone),
                    since,
                });
            known.instances = known.instances.min(*left);
        }
    }
    found.retain(|_, each| each.instances > 0);
    found
}

#[cfg(test)]
pub(crate) mod tests {
    use mortise_apis::requirements::Requirements;
    use mortise_apis::resources::Resources;
    use mortise_cloudprovider::{CapacityType, InstanceType, Offering};

    use super::*;

    /// Catalogs of as many classes as there are numbers, each the instances left in `cr-1`.
    pub(crate) fn catalogs(left: &[u32]) -> Arc<Catalogs> {
        let offering = |capacity_type, reservation| Offering {
            zone: Arc::from("z-1"),
            capacity_type,
            price: (capacity_type == CapacityType::OnDemand).then_some(MicroUsd(100_000)),
            available: true,
            reservation,
            labels: Vec::new(),
        };
        let catalogs = left.iter().enumerate().map(|(n, left)| {
            let reserved = Some((Arc::from("cr-1"), *left));
            let large = InstanceType {
                name: Arc::from("m5.large"),
                requirements: Requirements::new(),
                capacity: Resources::new(2_000, 8 << 30),
                overhead: Resources::zero(),
                devices: Arc::default(),
                offerings: vec![
                    offering(CapacityType::OnDemand, None),
                    offering(CapacityType::Reserved, reserved),
                ],
            };
            let key = NodeClassKey::new("g", "K", &*format!("class-{n}"));
            (key, Arc::new(Catalog::build(vec![large])))
        });
        Arc::new(catalogs.collect())
    }

    #[test]
    fn a_reservation_is_followed_while_it_has_unused_instances() {
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        let reservations = UnusedReservations::default();
        let told = |left: &[u32], seconds| {
            reservations.follow(&catalogs(left), at(seconds));
            let now = reservations.now();
            let all = now.iter();
            all.map(|each| (each.instances, each.since.as_second()))
                .collect::<Vec<_>>()
        };
        assert_eq!(told(&[3, 2], 10), [(2, 10)], "the smallest number counts");
        let known = &reservations.now()[0];
        assert_eq!((&*known.id, &*known.instance_type), ("cr-1", "m5.large"));
        assert_eq!(known.hourly_price(), Some(MicroUsd(200_000)));
        assert_eq!(told(&[1], 20), [(1, 10)], "one was taken");
        assert_eq!(told(&[0], 30), [], "all are in use");
        assert_eq!(told(&[4], 40), [(4, 40)]);
        assert_eq!(told(&[], 50), [], "no class selects it any more");
    }
}
