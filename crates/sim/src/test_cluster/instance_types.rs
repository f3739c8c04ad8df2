//! Instance types of test clusters.

use std::sync::Arc;

use mortise_apis::labels;
use mortise_apis::requirements::{Operator, Requirement, Requirements};
use mortise_apis::resources::Resources;
use mortise_apis::values::money::MicroUsd;
use mortise_cloudprovider::{CapacityType, InstanceType, Offering};

const GIB: i64 = 1 << 30;

fn offering(zone: &str, capacity_type: CapacityType, price: i64) -> Offering {
    Offering {
        zone: zone.into(),
        capacity_type,
        price: Some(MicroUsd(price * 1_000)),
        available: true,
        reservation: None,
        labels: Vec::new(),
    }
}

/// The only type of a cluster for tests that place no pods. It states no requirements.
pub(super) fn small_spot() -> InstanceType {
    InstanceType {
        name: "small".into(),
        requirements: Requirements::new(),
        capacity: Resources::new(2_000, GIB),
        overhead: Resources::default(),
        offerings: vec![offering("zone-a", CapacityType::Spot, 100)],
        devices: Arc::default(),
    }
}

/// A type with 4 GiB per CPU and offerings in zones `a` and `b`: capacity type and price in milli-dollars an hour.
///
/// # Panics
/// A capacity type is unknown.
#[must_use]
pub fn instance_type(name: &str, cpus: i64, offerings: &[(&str, i64)]) -> InstanceType {
    let in_zone = |zone: &'static str| {
        offerings.iter().map(move |(capacity_type, price)| {
            offering(zone, CapacityType::parse(capacity_type).unwrap(), *price)
        })
    };
    let types: Vec<&str> = offerings.iter().map(|(each, _)| *each).collect();
    let mut requirements = Requirements::new();
    requirements.add(Requirement::is(labels::INSTANCE_TYPE, name));
    requirements.add(Requirement::is(labels::ARCH, "amd64"));
    requirements.add(Requirement::is(labels::OS, "linux"));
    let zones = Requirement::new(labels::TOPOLOGY_ZONE, Operator::In, ["a", "b"]);
    requirements.add(zones);
    requirements.add(Requirement::new(labels::CAPACITY_TYPE, Operator::In, types));
    InstanceType {
        name: Arc::from(name),
        requirements,
        capacity: Resources::new(cpus * 1_000, cpus * 4 * GIB).with("pods", 110),
        overhead: Resources::default(),
        offerings: ["a", "b"].into_iter().flat_map(in_zone).collect(),
        devices: Arc::default(),
    }
}

/// `small`, `medium` and `large`: 2, 4 and 8 CPUs for 100, 200 and 400 milli-dollars an hour, on demand.
#[must_use]
pub fn ordinary_types() -> Vec<InstanceType> {
    vec![
        instance_type("small", 2, &[("on-demand", 100)]),
        instance_type("medium", 4, &[("on-demand", 200)]),
        instance_type("large", 8, &[("on-demand", 400)]),
    ]
}
