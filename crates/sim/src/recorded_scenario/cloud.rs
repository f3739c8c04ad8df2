//! The cloud of a recorded cluster.

use std::collections::BTreeMap;
use std::sync::Arc;

use mortise_apis::labels;
use mortise_apis::requirements::{Operator, Requirement};
use mortise_cloudprovider::{CapacityType, InstanceType, Offering};

use crate::recorded_cluster::RecordedCluster;
use crate::scenario::SimulatedCloud;

/// All recorded instance types in one cloud; each node class has its own of them. What was short of capacity then is there again, and
/// capacity reservations are left out.
pub(super) fn cloud(cluster: &RecordedCluster) -> SimulatedCloud {
    let mut all: BTreeMap<Arc<str>, InstanceType> = BTreeMap::new();
    let mut node_classes = cluster.catalogs.clone();
    for each in node_classes.values_mut().flatten() {
        each.offerings
            .retain(|offering| offering.capacity_type != CapacityType::Reserved);
        for offering in &mut each.offerings {
            offering.available = offering.price.is_some();
        }
        merge(&mut all, each);
    }
    SimulatedCloud {
        instance_types: all.into_values().collect(),
        well_known: cluster.well_known.clone(),
        node_classes,
    }
}

/// Adds a type, or to the one that is there the offerings that it lacks.
fn merge(all: &mut BTreeMap<Arc<str>, InstanceType>, new: &InstanceType) {
    let known = all
        .entry(Arc::clone(&new.name))
        .or_insert_with(|| new.clone());
    let place = |offering: &Offering| (Arc::clone(&offering.zone), offering.capacity_type);
    for offering in &new.offerings {
        let mut there = known.offerings.iter();
        if !there.any(|each| place(each) == place(offering)) {
            known.offerings.push(offering.clone());
        }
    }
    known.offerings.sort_by_key(place);
    let offerings = || known.offerings.iter();
    let zones: Vec<Arc<str>> = offerings().map(|each| Arc::clone(&each.zone)).collect();
    let kinds: Vec<&str> = offerings()
        .map(|each| each.capacity_type.as_str())
        .collect();
    let zones = Requirement::new(labels::TOPOLOGY_ZONE, Operator::In, zones);
    let kinds = Requirement::new(labels::CAPACITY_TYPE, Operator::In, kinds);
    known.requirements.replace(zones);
    known.requirements.replace(kinds);
}
