//! Offerings that are marked as unavailable between two snapshots.

use std::sync::Arc;

use jiff::Timestamp;
use mortise_apis::labels;
use mortise_apis::names::NodeClassKey;
use mortise_apis::requirements::{Requirement, Requirements};
use mortise_apis::resources::Resources;
use mortise_apis::values::money::MicroUsd;
use mortise_cloudprovider::{CapacityType, InstanceType, Offering, UnavailableOffering};
use mortise_state::catalog::Catalog;
use mortise_state::index::Index;
use mortise_state::resource_kinds::{EventSource, ObjectEvent};
use serde_json::json;

use super::{claim, index};

fn catalog() -> Arc<Catalog> {
    let offering = |zone: &str| Offering {
        zone: zone.into(),
        capacity_type: CapacityType::Spot,
        price: Some(MicroUsd(1_000_000)),
        available: true,
        reservation: None,
        labels: Vec::new(),
    };
    let mut requirements = Requirements::new();
    requirements.add(Requirement::is(labels::INSTANCE_TYPE, "small"));
    Arc::new(Catalog::build(vec![InstanceType {
        name: "small".into(),
        requirements,
        capacity: Resources::new(1000, 1 << 30),
        overhead: Resources::default(),
        offerings: ["a", "b", "c"].map(offering).into(),
        devices: Arc::default(),
    }]))
}

fn lacks(zone: &str) -> [UnavailableOffering; 1] {
    [UnavailableOffering {
        instance_type: "small".into(),
        zone: zone.into(),
        capacity_type: CapacityType::Spot,
    }]
}

/// Zones that are available, and the generation.
fn frozen(index: &mut Index, class: &NodeClassKey) -> (Vec<String>, u64) {
    let snapshot = index.freeze(Timestamp::UNIX_EPOCH);
    let small = snapshot.catalogs[class].get("small").unwrap();
    let available = small.offerings.iter().filter(|each| each.available);
    let zones = available.map(|each| each.zone.to_string()).collect();
    (zones, snapshot.generation)
}

#[test]
fn marks_show_in_the_next_snapshot_until_the_class_is_resolved_again() {
    let mut index = index();
    let class = NodeClassKey::new("karpenter.kwok.sh", "KWOKNodeClass", "default");
    index.mark_unavailable(&class, &lacks("a"));
    index.set_catalog(&class, catalog());
    let launched = json!({ "metadata": { "labels": {
        labels::INSTANCE_TYPE: "small", labels::TOPOLOGY_ZONE: "a", labels::CAPACITY_TYPE: "spot",
    } } });
    index.apply(ObjectEvent::Applied(
        claim("claim", 1, launched),
        EventSource::Watch,
    ));
    let (all, first) = frozen(&mut index, &class);
    assert_eq!(all, ["a", "b", "c"], "what is older than the catalog");
    index.take_changes();

    index.mark_unavailable(&class, &lacks("a"));
    index.mark_unavailable(&class, &lacks("b"));
    assert_eq!(
        frozen(&mut index, &class),
        (vec!["c".to_owned()], first + 1)
    );
    let changes = index.take_changes();
    assert!(changes.node_classes.contains(&class));
    assert!(changes.nodes.is_empty(), "no price has changed");

    index.mark_unavailable(&class, &lacks("a"));
    assert_eq!(frozen(&mut index, &class).1, first + 1, "nothing is new");

    index.mark_unavailable(&class, &lacks("c"));
    index.set_catalog(&class, catalog());
    assert_eq!(frozen(&mut index, &class).0, ["a", "b", "c"]);
}
