//! The index as its owners use it: versions, deletions, merging, pending pods, promises.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::sync::Arc;

use jiff::Timestamp;
use mortise_apis::k8s;
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::karpenter::nodepool::NodePool;
use mortise_apis::labels::{self, WellKnown};
use mortise_apis::names::NodeClassKey;
use mortise_apis::node_class::NodeClassKind;
use mortise_apis::node_class::served::ServedNodeClasses;
use mortise_apis::requirements::{Requirement, Requirements};
use mortise_apis::resources::Resources;
use mortise_apis::values::money::MicroUsd;
use mortise_cloudprovider::{CapacityType, InstanceType, Offering};
use mortise_state::catalog::Catalog;
use mortise_state::index::Index;
use mortise_state::ledger::{FenceReason, LedgerOp, Nomination, NominationTarget};
use mortise_state::resource_kinds::{EventSource, Object, ObjectEvent, ObjectKey, ObjectKind};
use mortise_state::snapshot::{PoolUsage, Snapshot};
use serde_json::{Value, json};

fn index() -> Index {
    let mut index = Index::new(WellKnown::kwok(), true, Timestamp::UNIX_EPOCH);
    index.set_synced();
    index
}

fn node(name: &str, version: u64, more: Value) -> Object {
    let mut value = json!({ "metadata": { "name": name, "resourceVersion": version.to_string(), "labels": {} }, "spec": { "providerID": format!("kwok://{name}") } });
    json_patch_merge(&mut value, &more);
    Object::Node(Box::new(serde_json::from_value(value).unwrap()))
}

fn claim(name: &str, version: u64, more: Value) -> Object {
    let mut value = json!({
        "metadata": { "name": name, "uid": format!("uid-{name}"), "resourceVersion": version.to_string(), "creationTimestamp": "1970-01-01T00:00:00Z", "labels": { "karpenter.sh/nodepool": "default" } },
        "spec": { "nodeClassRef": { "group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default" }, "requirements": [] },
    });
    json_patch_merge(&mut value, &more);
    Object::Claim(Box::new(
        serde_json::from_value::<NodeClaim>(value).unwrap(),
    ))
}

fn pod(name: &str, version: u64, more: Value) -> Object {
    let mut value = json!({
        "metadata": { "name": name, "namespace": "default", "uid": format!("uid-{name}"), "resourceVersion": version.to_string(), "creationTimestamp": "1970-01-01T00:00:00Z" },
        "spec": { "containers": [{ "name": "c", "resources": { "requests": { "cpu": "500m" } } }] },
        "status": { "phase": "Pending" },
    });
    json_patch_merge(&mut value, &more);
    Object::Pod(Box::new(serde_json::from_value::<k8s::Pod>(value).unwrap()))
}

/// The end of a list of these objects.
fn listed(kind: ObjectKind, objects: &[Object], version: u64) -> ObjectEvent {
    ObjectEvent::Listed {
        kind,
        keys: objects.iter().map(Object::key).collect(),
        version: Some(version),
    }
}

fn json_patch_merge(target: &mut Value, patch: &Value) {
    match (target, patch) {
        (Value::Object(target), Value::Object(patch)) => {
            for (key, value) in patch {
                json_patch_merge(target.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (target, patch) => *target = patch.clone(),
    }
}

#[test]
fn older_news_and_late_answers_change_nothing() {
    let mut index = index();
    assert!(index.apply(ObjectEvent::Applied(
        node("n1", 5, json!({})),
        EventSource::Watch
    )));
    assert!(
        !index.apply(ObjectEvent::Applied(
            node("n1", 4, json!({})),
            EventSource::Write
        )),
        "an older answer"
    );
    assert!(
        !index.apply(ObjectEvent::Applied(
            node("n1", 5, json!({})),
            EventSource::Watch
        )),
        "the same again"
    );
    assert!(
        index.apply(ObjectEvent::Applied(
            node("n1", 6, json!({})),
            EventSource::Write
        )),
        "our own write, before the watch shows it"
    );
    assert!(index.apply(ObjectEvent::Deleted(ObjectKey::Node("n1".into()), None)));
    assert!(
        !index.apply(ObjectEvent::Applied(
            node("n1", 6, json!({})),
            EventSource::Write
        )),
        "an answer that comes after the deletion"
    );
    assert!(
        index.apply(ObjectEvent::Applied(
            node("n1", 9, json!({})),
            EventSource::Watch
        )),
        "a new node of the same name"
    );
    assert_eq!(index.freeze(Timestamp::UNIX_EPOCH).nodes.len(), 1);
}

#[test]
fn a_list_removes_what_it_does_not_name() {
    let mut index = index();
    for name in ["a", "b", "c"] {
        index.apply(ObjectEvent::Applied(
            pod(name, 1, json!({})),
            EventSource::Watch,
        ));
    }
    index.apply(ObjectEvent::Applied(
        pod("b", 1, json!({})),
        EventSource::Watch,
    ));
    index.apply(listed(ObjectKind::Pod, &[pod("b", 1, json!({}))], 9));
    let snapshot = index.freeze(Timestamp::UNIX_EPOCH);
    let names: Vec<_> = snapshot
        .pods
        .sorted()
        .into_iter()
        .map(|(key, _)| key.to_string())
        .collect();
    assert_eq!(names, ["default/b"]);
    assert_eq!(snapshot.pending.len(), 1);
}

#[test]
fn a_node_and_its_claim_are_one_machine() {
    let mut index = index();
    index.apply(ObjectEvent::Applied(
        claim("c1", 1, json!({})),
        EventSource::Watch,
    ));
    assert_eq!(index.freeze(Timestamp::UNIX_EPOCH).nodes.len(), 1);
    index.apply(ObjectEvent::Applied(claim("c1", 2, json!({ "status": { "providerID": "kwok://n1", "capacity": { "cpu": "4" }, "allocatable": { "cpu": "3900m" } } })), EventSource::Watch));
    index.apply(ObjectEvent::Applied(
        node("n1", 3, json!({ "metadata": { "labels": { "x": "y" } }, "spec": { "taints": [{ "key": "karpenter.sh/unregistered", "effect": "NoExecute" }, { "key": "own", "effect": "NoSchedule" }] } })),
        EventSource::Watch,
    ));
    let snapshot = index.freeze(Timestamp::UNIX_EPOCH);
    assert_eq!(snapshot.nodes.len(), 1, "merged by provider id");
    let machine = snapshot.node("n1").unwrap();
    assert_eq!(
        (machine.name(), machine.registered, machine.allocatable.cpu),
        ("c1", false, 3900)
    );
    assert_eq!(
        machine.pool().map(|pool| pool.to_string()).as_deref(),
        Some("default")
    );
    assert!(
        machine.taints.is_empty(),
        "before registration the claim's taints count"
    );

    let labels = json!({ "metadata": { "labels": { "karpenter.sh/registered": "true", "karpenter.sh/initialized": "true" } }, "status": { "allocatable": { "cpu": "3" } }, "spec": { "taints": [{ "key": "own", "effect": "NoSchedule" }] } });
    index.apply(ObjectEvent::Applied(
        node("n1", 4, labels),
        EventSource::Watch,
    ));
    index.apply(ObjectEvent::Applied(
        pod(
            "p",
            5,
            json!({ "spec": { "nodeName": "n1" }, "status": { "phase": "Running" } }),
        ),
        EventSource::Watch,
    ));
    let snapshot = index.freeze(Timestamp::UNIX_EPOCH);
    let machine = snapshot.node("n1").unwrap();
    assert_eq!(
        (machine.name(), machine.initialized, machine.taints.len()),
        ("n1", true, 1)
    );
    assert_eq!(
        (
            machine.allocatable.cpu,
            machine.used.cpu,
            machine.free().cpu
        ),
        (3000, 500, 2500)
    );

    index.apply(ObjectEvent::Deleted(ObjectKey::Claim("c1".into()), None));
    index.apply(ObjectEvent::Deleted(ObjectKey::Node("n1".into()), None));
    let after = index.freeze(Timestamp::UNIX_EPOCH);
    assert_eq!(
        (after.nodes.len(), after.named.len(), after.claims.len()),
        (0, 0, 0)
    );
    assert_eq!(
        snapshot.nodes.len(),
        1,
        "an earlier snapshot keeps what it saw"
    );
}

#[test]
fn nodes_of_nobody_count_as_they_are_and_what_goes_does_not_count() {
    let mut index = index();
    // Without a provider id, a claim and a pool.
    let theirs = json!({ "spec": { "providerID": null }, "status": { "allocatable": { "cpu": "2" }, "capacity": { "cpu": "2" } } });
    index.apply(ObjectEvent::Applied(
        node("theirs", 1, theirs),
        EventSource::Watch,
    ));
    for name in ["stays", "goes", "ends"] {
        let launched = json!({ "status": { "providerID": format!("kwok://{name}"), "capacity": { "cpu": "4" }, "allocatable": { "cpu": "4" } } });
        index.apply(ObjectEvent::Applied(
            claim(name, 2, launched),
            EventSource::Watch,
        ));
    }
    let snapshot = index.freeze(Timestamp::UNIX_EPOCH);
    let machine = snapshot.node("theirs").unwrap();
    assert!(!machine.is_managed() && machine.registered && machine.initialized);
    assert_eq!((machine.name(), machine.free().cpu), ("theirs", 2000));
    let usage = |snapshot: &Snapshot| PoolUsage::all(snapshot)["default"].clone();
    assert_eq!(
        (usage(&snapshot).nodes, usage(&snapshot).capacity.cpu),
        (3, 12_000)
    );

    let launched = |name: &str, more: Value| {
        let mut all = json!({ "status": { "providerID": format!("kwok://{name}"), "capacity": { "cpu": "4" }, "allocatable": { "cpu": "4" } } });
        json_patch_merge(&mut all, &more);
        claim(name, 3, all)
    };
    let deleted = json!({ "metadata": { "deletionTimestamp": "1970-01-01T00:00:00Z", "finalizers": ["karpenter.sh/termination"] } });
    let ending = json!({ "status": { "conditions": [{ "type": "InstanceTerminating", "status": "True", "reason": "InstanceTerminating", "lastTransitionTime": "1970-01-01T00:00:00Z" }] } });
    index.apply(ObjectEvent::Applied(
        launched("goes", deleted),
        EventSource::Watch,
    ));
    index.apply(ObjectEvent::Applied(
        launched("ends", ending),
        EventSource::Watch,
    ));
    let snapshot = index.freeze(Timestamp::UNIX_EPOCH);
    let deleting = |name: &str| snapshot.node_of_claim(name).unwrap().deleting;
    assert_eq!(["stays", "goes", "ends"].map(deleting), [false, true, true]);
    assert_eq!(
        (usage(&snapshot).nodes, usage(&snapshot).capacity.cpu),
        (1, 4_000)
    );
}

#[test]
fn promises_end_with_the_bind_and_survive_a_restart() {
    let place = NominationTarget::Claim("c1".into());
    let mut index = index();
    index.apply(ObjectEvent::Applied(
        pod("p", 1, json!({})),
        EventSource::Watch,
    ));
    index.change_ledger(LedgerOp::Nominate(Nomination {
        pod: mortise_apis::names::PodKey::new("default", "p"),
        uid: "uid-p".into(),
        place: place.clone(),
        requests: mortise_apis::resources::Resources::of(500, 0),
        priority: 0,
        from: Timestamp::UNIX_EPOCH,
        until: Timestamp::MAX,
    }));
    assert_eq!(
        index
            .freeze(Timestamp::UNIX_EPOCH)
            .ledger
            .held(&place)
            .count(),
        1
    );
    index.apply(ObjectEvent::Applied(
        pod("p", 2, json!({ "spec": { "nodeName": "n" } })),
        EventSource::Watch,
    ));
    assert_eq!(
        index
            .freeze(Timestamp::UNIX_EPOCH)
            .ledger
            .held(&place)
            .count(),
        0
    );

    let mut fresh = Index::new(WellKnown::kwok(), true, Timestamp::UNIX_EPOCH);
    fresh.apply(ObjectEvent::Applied(claim("c1", 1, json!({ "metadata": { "annotations": { "mortise.sh/nominated-pods": "uid-p,uid-gone", "mortise.sh/fence": "disruption" } } })), EventSource::Watch));
    fresh.apply(ObjectEvent::Applied(
        pod("p", 1, json!({})),
        EventSource::Watch,
    ));
    fresh.set_synced();
    let snapshot = fresh.freeze(Timestamp::UNIX_EPOCH);
    assert_eq!(
        snapshot
            .ledger
            .held(&place)
            .map(|each| each.pod.to_string())
            .collect::<Vec<_>>(),
        ["default/p"]
    );
    assert_eq!(
        snapshot.ledger.fence("c1").map(|fence| fence.reason),
        Some(FenceReason::Disruption)
    );
    fresh.apply(ObjectEvent::Applied(
        claim("c1", 2, json!({})),
        EventSource::Watch,
    ));
    assert!(
        fresh
            .freeze(Timestamp::UNIX_EPOCH)
            .ledger
            .fence("c1")
            .is_none(),
        "the annotation went, the fence goes"
    );
    fresh.apply(ObjectEvent::Deleted(ObjectKey::Claim("c1".into()), None));
    assert_eq!(
        fresh
            .freeze(Timestamp::UNIX_EPOCH)
            .ledger
            .nominations()
            .count(),
        0
    );
}

#[test]
fn a_ready_machine_holds_its_room_until_its_pods_were_tried() {
    let mut index = index();
    let until = |index: &mut Index, uid: &str| {
        let snapshot = index.freeze(Timestamp::UNIX_EPOCH);
        let promise = snapshot.ledger.nomination(uid);
        promise.map(|each| each.until.as_second())
    };
    let minutes = |count: i64| Some(count * 60);
    for name in ["tried", "queued"] {
        index.apply(ObjectEvent::Applied(
            pod(name, 1, json!({})),
            EventSource::Watch,
        ));
    }
    let promised = json!({ "metadata": { "annotations": { "mortise.sh/nominated-pods": "uid-tried,uid-queued" } } });
    index.apply(ObjectEvent::Applied(
        claim("c1", 1, promised),
        EventSource::Watch,
    ));
    let news = |name, version, message: &str| {
        let said = json!({ "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message });
        let pod = pod(name, version, json!({ "status": { "conditions": [said] } }));
        ObjectEvent::Applied(pod, EventSource::Watch)
    };
    index.apply(news("tried", 2, "0/0 nodes are available"));
    assert_eq!(
        until(&mut index, "uid-tried"),
        minutes(15),
        "it was tried too early"
    );

    let ready = json!({ "status": { "providerID": "kwok://c1", "conditions": [
        { "type": "Initialized", "status": "True", "reason": "Initialized", "lastTransitionTime": "1970-01-01T00:01:00Z" },
    ] } });
    index.apply(ObjectEvent::Applied(
        claim("c1", 3, ready),
        EventSource::Watch,
    ));
    assert_eq!(until(&mut index, "uid-tried"), minutes(1 + 5));
    index.set_time(Timestamp::from_second(70).unwrap());
    index.apply(news("tried", 4, "0/0 nodes are available"));
    assert_eq!(
        until(&mut index, "uid-tried"),
        minutes(1 + 5),
        "kube-scheduler says nothing new"
    );
    index.apply(news("tried", 5, "0/1 nodes are available"));
    assert_eq!(until(&mut index, "uid-tried"), minutes(2));
    index.set_time(Timestamp::from_second(100).unwrap());
    index.apply(news("tried", 6, "0/2 nodes are available"));
    assert_eq!(
        until(&mut index, "uid-tried"),
        minutes(2),
        "the first refusal counts"
    );
    assert_eq!(until(&mut index, "uid-queued"), minutes(1 + 5));
    let at = |second| Timestamp::from_second(second).unwrap();
    for (now, next) in [(119, 120), (120, 360)] {
        index.expire_ledger(at(now));
        assert_eq!(index.promises_end(), Some(at(next)));
    }
    assert_eq!(until(&mut index, "uid-tried"), None);
    // Its claim still names it, and so does every update of the claim.
    let label = json!({ "metadata": { "labels": { "a": "b" }, "annotations": { "mortise.sh/nominated-pods": "uid-tried,uid-queued" } } });
    index.apply(ObjectEvent::Applied(
        claim("c1", 7, label),
        EventSource::Watch,
    ));
    assert_eq!(until(&mut index, "uid-tried"), None, "it is not read back");
}

#[test]
fn pods_that_need_no_node_are_not_pending() {
    let cases = [
        ("plain", json!({}), true),
        ("bound", json!({ "spec": { "nodeName": "n" } }), false),
        (
            "preempting",
            json!({ "status": { "nominatedNodeName": "n" } }),
            false,
        ),
        (
            "gated",
            json!({ "spec": { "schedulingGates": [{ "name": "g" }] } }),
            false,
        ),
        ("over", json!({ "status": { "phase": "Succeeded" } }), false),
        (
            "daemon",
            json!({ "metadata": { "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u", "controller": true }] } }),
            false,
        ),
        (
            "going",
            json!({ "metadata": { "deletionTimestamp": "1970-01-01T00:00:00Z" } }),
            false,
        ),
    ];
    for (name, more, pending) in cases {
        let mut index = index();
        index.apply(ObjectEvent::Applied(pod(name, 1, more), EventSource::Watch));
        assert_eq!(
            index.freeze(Timestamp::UNIX_EPOCH).pending.len() == 1,
            pending,
            "{name}"
        );
    }
}

#[test]
fn freezing_twice_without_news_gives_the_same_generation() {
    let mut index = index();
    index.apply(ObjectEvent::Applied(
        node("n", 1, json!({})),
        EventSource::Watch,
    ));
    let first = index.freeze(Timestamp::UNIX_EPOCH);
    let second = index.freeze(Timestamp::UNIX_EPOCH);
    assert_eq!(first.generation, second.generation);
    assert!(Arc::ptr_eq(
        first.nodes.values().next().unwrap(),
        second.nodes.values().next().unwrap()
    ));
    index.take_changes();
    index.apply(ObjectEvent::Applied(
        node("n", 2, json!({})),
        EventSource::Watch,
    ));
    assert_eq!(
        index.freeze(Timestamp::UNIX_EPOCH).generation,
        first.generation + 1
    );
    assert_eq!(index.take_changes().nodes.len(), 1);
}

#[test]
fn what_refers_to_classes_of_others_is_known_by_name_only() {
    let kind = NodeClassKind {
        group: "karpenter.kwok.sh",
        version: "v1alpha1",
        kind: "KWOKNodeClass",
        plural: "kwoknodeclasses",
    };
    let mut index = index().serving(ServedNodeClasses::only([kind]));
    let class = |group: &str| json!({ "group": group, "kind": "KWOKNodeClass", "name": "default" });
    let theirs = || json!({ "spec": { "nodeClassRef": class("other.test") } });
    let pool = |version: &str, group: &str| {
        let value = json!({
            "metadata": { "name": "p", "resourceVersion": version },
            "spec": { "template": { "spec": { "nodeClassRef": class(group) } } },
        });
        Object::Pool(Box::new(serde_json::from_value(value).unwrap()))
    };
    for object in [claim("ours", 1, json!({})), claim("theirs", 1, theirs())] {
        index.apply(ObjectEvent::Applied(object, EventSource::Watch));
    }
    index.apply(ObjectEvent::Applied(
        pool("1", "other.test"),
        EventSource::Watch,
    ));
    let snapshot = index.freeze(Timestamp::UNIX_EPOCH);
    let names = |snapshot: &Snapshot| -> Vec<String> {
        let claims = snapshot.claims.sorted().into_iter();
        claims.map(|(name, _)| name.to_string()).collect()
    };
    assert_eq!(names(&snapshot), ["ours"]);
    assert_eq!(snapshot.nodes.len(), 1, "its machine is not there either");
    assert!(snapshot.pools.is_empty());
    assert_eq!(
        snapshot
            .foreign_claims()
            .map(ToString::to_string)
            .collect::<Vec<_>>(),
        ["theirs"]
    );
    assert_eq!(
        snapshot
            .foreign_pools()
            .map(ToString::to_string)
            .collect::<Vec<_>>(),
        ["p"]
    );

    // Replaced by one of ours, and the other way round.
    index.apply(ObjectEvent::Applied(
        pool("2", "karpenter.kwok.sh"),
        EventSource::Watch,
    ));
    index.apply(ObjectEvent::Applied(
        claim("ours", 2, theirs()),
        EventSource::Watch,
    ));
    let snapshot = index.freeze(Timestamp::UNIX_EPOCH);
    assert_eq!(names(&snapshot), [""; 0]);
    assert_eq!(snapshot.nodes.len(), 0);
    assert!(snapshot.pools.contains_key("p"));
    assert_eq!(
        snapshot
            .foreign_claims()
            .map(ToString::to_string)
            .collect::<Vec<_>>(),
        ["ours", "theirs"]
    );

    index.apply(listed(ObjectKind::Claim, &[], 9));
    assert!(index.freeze(Timestamp::UNIX_EPOCH).foreign.is_empty());
}

#[test]
fn overlays_change_the_catalogue_of_pools_and_the_price_of_their_machines() {
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
        capacity: Resources::of(1000, 1 << 30),
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
    let bought = json!({ "metadata": { "labels": {
        labels::INSTANCE_TYPE: "small", labels::TOPOLOGY_ZONE: "a", labels::CAPACITY_TYPE: "on-demand",
    } } });
    index.apply(ObjectEvent::Applied(
        claim("machine", 1, bought),
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
    // Price in the pool, in the other pool, of the machine; and whether deciders are told to look again.
    let look = |index: &mut Index| {
        let snapshot = index.freeze(Timestamp::UNIX_EPOCH);
        let price = |name: &str| {
            let catalog = snapshot.catalog_of(&pool(name)).unwrap();
            catalog
                .price("small", "a", CapacityType::OnDemand)
                .unwrap()
                .0
        };
        let machine = snapshot.node_of_claim("machine").unwrap().price.unwrap().0;
        let told = index.take_changes().node_classes.contains(&class);
        (price("default"), price("other"), machine, told)
    };
    assert_eq!(look(&mut index), (1_000_000, 1_000_000, 1_000_000, true));
    index.apply(overlay(1, "0.25"));
    assert_eq!(look(&mut index), (250_000, 1_000_000, 250_000, true));
    // The same again, and a pool that changes nothing of it.
    index.apply(overlay(2, "0.25"));
    index.apply(ObjectEvent::Applied(
        Object::Pool(Box::new(pool("other"))),
        EventSource::Watch,
    ));
    assert_eq!(look(&mut index), (250_000, 1_000_000, 250_000, false));
    index.apply(overlay(3, "0.5"));
    assert_eq!(look(&mut index), (500_000, 1_000_000, 500_000, true));
    index.apply(ObjectEvent::Deleted(ObjectKey::Overlay("o".into()), None));
    assert_eq!(look(&mut index), (1_000_000, 1_000_000, 1_000_000, true));
    assert!(
        index
            .freeze(Timestamp::UNIX_EPOCH)
            .overlaid_catalogs
            .is_empty()
    );
}
