//! What NodeClaims say of their instances: every resolution of a node class brings it, so the provider knows after a restart too.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::labels;
use mortise_apis::names::NodeClassKey;
use mortise_aws_class::labels::{CAPACITY_RESERVATION_ID, CAPACITY_RESERVATION_TYPE};
use mortise_cloudprovider::{CapacityType, UnavailableOffering};

/// The label of instances in ordinary reservations: these end by becoming on-demand instances.
const DEFAULT_RESERVATION: &str = "default";

/// An instance as its NodeClaim describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClaimedInstance {
    /// The spot offering of its type and zone, if both are known.
    pub(crate) spot_offering: Option<UnavailableOffering>,
    /// The capacity reservation that it runs in.
    pub(crate) reservation: Option<Arc<str>>,
    /// It ends with its reservation.
    pub(crate) ends_with_reservation: bool,
}

impl ClaimedInstance {
    fn new(claim: &NodeClaim) -> Self {
        let offering = |instance_type, zone| UnavailableOffering {
            instance_type: Arc::from(instance_type),
            zone: Arc::from(zone),
            capacity_type: CapacityType::Spot,
        };
        let filled = |key| claim.label(key).filter(|value| !value.is_empty());
        let reservation = filled(CAPACITY_RESERVATION_ID);
        Self {
            spot_offering: filled(labels::INSTANCE_TYPE)
                .zip(filled(labels::TOPOLOGY_ZONE))
                .map(|(instance_type, zone)| offering(instance_type, zone)),
            reservation: reservation.map(Arc::from),
            ends_with_reservation: reservation.is_some()
                && filled(CAPACITY_RESERVATION_TYPE) != Some(DEFAULT_RESERVATION),
        }
    }
}

type OfClass = HashMap<Arc<str>, ClaimedInstance>;

/// Instances with a NodeClaim, by id.
#[derive(Debug, Default)]
pub(crate) struct ClaimedInstances {
    by_class: Mutex<BTreeMap<NodeClassKey, OfClass>>,
}

impl ClaimedInstances {
    /// These are the NodeClaims of a class now.
    pub(crate) fn note(&self, class: &NodeClassKey, claims: &[Arc<NodeClaim>]) {
        let instance = |claim: &Arc<NodeClaim>| {
            let id = claim.instance_id()?.rsplit('/').next()?;
            (!id.is_empty()).then(|| (Arc::from(id), ClaimedInstance::new(claim)))
        };
        let instances: OfClass = claims.iter().filter_map(instance).collect();
        let mut all = self.lock();
        if instances.is_empty() {
            all.remove(class);
        } else {
            all.insert(class.clone(), instances);
        }
    }

    /// An instance, by its id.
    pub(crate) fn get(&self, id: &str) -> Option<ClaimedInstance> {
        self.lock()
            .values()
            .find_map(|instances| instances.get(id).cloned())
    }

    /// Instances that end with their reservation, by reservation. Sorted.
    pub(crate) fn by_ending_reservation(&self) -> BTreeMap<Arc<str>, Vec<Arc<str>>> {
        let mut found: BTreeMap<Arc<str>, Vec<Arc<str>>> = BTreeMap::new();
        let all = self.lock();
        let ending = all.values().flatten();
        for (id, instance) in ending.filter(|(_, instance)| instance.ends_with_reservation) {
            if let Some(reservation) = &instance.reservation {
                found
                    .entry(Arc::clone(reservation))
                    .or_default()
                    .push(Arc::clone(id));
            }
        }
        drop(all);
        found.values_mut().for_each(|ids| ids.sort());
        found
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<NodeClassKey, OfClass>> {
        self.by_class.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
