//! Catalogs with NodeOverlays applied.

use std::sync::Arc;

use jiff::Timestamp;
use mortise_apis::karpenter::nodepool::NodePool;
use mortise_apis::labels;
use mortise_apis::names::NodeClassKey;
use mortise_apis::requirements::{Requirement, Requirements};
use mortise_apis::resources::Resources;
use mortise_apis::values::money::MicroUsd;
use mortise_cloudprovider::{CapacityType, InstanceType, Offering};
use mortise_state::catalog::Catalog;
use mortise_state::index::Index;
use mortise_state::resource_kinds::{EventSource, Object, ObjectEvent, ObjectKey};
use serde_json::json;

use super::{claim, index};

#[test]
fn overlays_change_the_catalog_of_pools_and_the_price_of_their_nodes() {
    let offering = |capacity_type| Offering {
        zone: "a".into(),
        capacity_type,
        price: Some(MicroUsd(1_000_000)),
        available: true,
        reservation: None,
        labels: Vec::new(),
    };
    let mut requirements = Requirements::new();
    requirements.add(Requirement::is(labels::INSTANCE_TYPE, "small"));
    let small = InstanceType {
        name: "small".into(),
        requirements,
        capacity: Resources::new(1000, 1 << 30),
        overhead: Resources::default(),
        offerings: vec![offering(CapacityType::OnDemand)],
        devices: Arc::default(),
    };
    let mut index = index();
    let class = NodeClassKey::new("karpenter.kwok.sh", "KWOKNodeClass", "default");
    index.set_catalog(&class, Arc::new(Catalog::build(vec![small])));
    let pool = |name: &str| -> NodePool {
        serde_json::from_value(json!({
            "metadata": { "name": name },
            "spec": { "template": { "spec": { "nodeClassRef": { "group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default" } } } },
        }))
        .unwrap()
    };
    for name in ["default", "other"] {
        index.apply(ObjectEvent::Applied(
            Object::Pool(Box::new(pool(name))),
            EventSource::Watch,
        ));
    }
    let launched = json!({ "metadata": { "labels": {
        labels::INSTANCE_TYPE: "small", labels::TOPOLOGY_ZONE: "a", labels::CAPACITY_TYPE: "on-demand",
    } } });
    index.apply(ObjectEvent::Applied(
        claim("claim", 1, launched),
        EventSource::Watch,
    ));
    let overlay = |version: u64, price: &str| {
        let object = json!({ "metadata": { "name": "o", "resourceVersion": version.to_string() }, "spec": {
            "requirements": [{ "key": labels::NODEPOOL, "operator": "In", "values": ["default"] }], "price": price } });
        ObjectEvent::Applied(
            Object::Overlay(Box::new(serde_json::from_value(object).unwrap())),
            EventSource::Watch,
        )
    };
    // Price in the pool, in the other pool, and of the node; and whether the node class counts as changed.
    let prices = |index: &mut Index| {
        let snapshot = index.freeze(Timestamp::UNIX_EPOCH);
        let price = |name: &str| {
            let catalog = snapshot.catalog_of(&pool(name)).unwrap();
            catalog
                .price("small", "a", CapacityType::OnDemand)
                .unwrap()
                .0
        };
        let node = snapshot.node_of_claim("claim").unwrap().price.unwrap().0;
        let reported = index.take_changes().node_classes.contains(&class);
        (price("default"), price("other"), node, reported)
    };
    assert_eq!(prices(&mut index), (1_000_000, 1_000_000, 1_000_000, true));
    index.apply(overlay(1, "0.25"));
    assert_eq!(prices(&mut index), (250_000, 1_000_000, 250_000, true));
    // The same again, and a NodePool that the overlay does not affect.
    index.apply(overlay(2, "0.25"));
    index.apply(ObjectEvent::Applied(
        Object::Pool(Box::new(pool("other"))),
        EventSource::Watch,
    ));
    assert_eq!(prices(&mut index), (250_000, 1_000_000, 250_000, false));
    index.apply(overlay(3, "0.5"));
    assert_eq!(prices(&mut index), (500_000, 1_000_000, 500_000, true));
    index.apply(ObjectEvent::Deleted(ObjectKey::Overlay("o".into()), None));
    assert_eq!(prices(&mut index), (1_000_000, 1_000_000, 1_000_000, true));
    assert!(
        index
            .freeze(Timestamp::UNIX_EPOCH)
            .overlaid_catalogs
            .is_empty()
    );
}
