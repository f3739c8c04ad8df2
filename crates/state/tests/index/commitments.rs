//! Which nodes use what is paid for, as policies change and time passes.

use std::sync::Arc;

use jiff::Timestamp;
use mortise_apis::labels;
use mortise_apis::names::NodeClassKey;
use mortise_apis::requirements::Requirements;
use mortise_apis::resources::Resources;
use mortise_apis::values::money::MicroUsd;
use mortise_cloudprovider::{CapacityType, InstanceType, Offering};
use mortise_state::catalog::Catalog;
use mortise_state::index::Index;
use mortise_state::resource_kinds::{EventSource, Object, ObjectEvent, ObjectKey};
use serde_json::{Value, json};

use super::{claim, index};

fn catalog() -> Arc<Catalog> {
    let offering = |capacity_type| Offering {
        zone: "a".into(),
        capacity_type,
        price: Some(MicroUsd(1_000_000)),
        available: true,
        reservation: None,
        labels: Vec::new(),
    };
    Arc::new(Catalog::build(vec![InstanceType {
        name: "small".into(),
        requirements: Requirements::new(),
        capacity: Resources::new(1000, 1 << 30),
        overhead: Resources::default(),
        offerings: vec![
            offering(CapacityType::Spot),
            offering(CapacityType::OnDemand),
        ],
        devices: Arc::default(),
    }]))
}

fn put(index: &mut Index, object: Object) {
    index.apply(ObjectEvent::Applied(object, EventSource::Watch));
}

fn policy(version: u64, pool: &str, commitment: &Value) -> Object {
    let policy = json!({
        "metadata": { "name": "paid", "uid": "paid", "resourceVersion": version.to_string(), "creationTimestamp": "1970-01-01T00:00:00Z" },
        "spec": { "nodePools": [pool], "commitments": [commitment] },
    });
    Object::Policy(Box::new(serde_json::from_value(policy).unwrap()))
}

/// Nodes that commitments pay for at a time, in seconds; `None` without commitments.
fn paid(index: &mut Index, second: i64) -> Option<usize> {
    let snapshot = index.freeze(Timestamp::from_second(second).unwrap());
    let left = snapshot.commitments()?.left_without(|_| false);
    Some(left.uses().map(|each| each.nodes).sum())
}

#[test]
fn who_pays_follows_policies_nodes_and_time() {
    let mut index = index();
    let class = NodeClassKey::new("karpenter.kwok.sh", "KWOKNodeClass", "default");
    index.set_catalog(&class, catalog());
    let launched = |capacity_type: &str| {
        json!({ "metadata": { "labels": {
            labels::INSTANCE_TYPE: "small", labels::TOPOLOGY_ZONE: "a", labels::CAPACITY_TYPE: capacity_type,
        } } })
    };
    for (name, capacity_type) in [("a", "on-demand"), ("b", "on-demand"), ("c", "spot")] {
        put(&mut index, claim(name, 1, launched(capacity_type)));
    }
    assert_eq!(paid(&mut index, 0), None);
    let five = json!({ "name": "ri", "instances": 5 });
    put(&mut index, policy(2, "default", &five));
    assert_eq!(paid(&mut index, 1), Some(2), "two are on-demand");
    put(&mut index, policy(3, "other", &five));
    assert_eq!(paid(&mut index, 2), Some(0), "of another NodePool");
    let until = json!({ "name": "ri", "instances": 5, "until": "1970-01-01T00:01:00Z" });
    put(&mut index, policy(4, "default", &until));
    assert_eq!(paid(&mut index, 3), Some(2));
    let gone = json!({ "metadata": { "deletionTimestamp": "1970-01-01T00:00:04Z" } });
    let mut deleted = launched("on-demand");
    super::json_patch_merge(&mut deleted, &gone);
    put(&mut index, claim("a", 5, deleted));
    assert_eq!(paid(&mut index, 59), Some(1), "one is being deleted");
    assert_eq!(paid(&mut index, 60), None, "it has ended");
    put(&mut index, policy(6, "default", &five));
    assert_eq!(paid(&mut index, 61), Some(1));
    index.apply(ObjectEvent::Deleted(ObjectKey::Policy("paid".into()), None));
    assert_eq!(paid(&mut index, 62), None);
}
