//! Merging of Nodes with their NodeClaims.

use jiff::Timestamp;
use mortise_state::resource_kinds::{EventSource, ObjectEvent, ObjectKey};
use mortise_state::snapshot::PoolUsage;
use mortise_state::snapshot::Snapshot;
use serde_json::{Value, json};

use super::{claim, index, json_patch_merge, node, pod};

#[test]
fn a_node_and_its_claim_are_merged() {
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
    let merged = snapshot.node("n1").unwrap();
    assert_eq!(
        (merged.name(), merged.registered, merged.allocatable.cpu),
        ("c1", false, 3900)
    );
    assert_eq!(
        merged.pool().map(|pool| pool.to_string()).as_deref(),
        Some("default")
    );
    assert!(
        merged.taints.is_empty(),
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
    let merged = snapshot.node("n1").unwrap();
    assert_eq!(
        (merged.name(), merged.initialized, merged.taints.len()),
        ("n1", true, 1)
    );
    assert_eq!(
        (merged.allocatable.cpu, merged.used.cpu, merged.free().cpu),
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
fn unmanaged_nodes_are_used_as_they_are_and_deleting_nodes_do_not_count() {
    let mut index = index();
    // Without a provider id, a claim and a pool.
    let theirs = json!({ "spec": { "providerID": null }, "status": { "allocatable": { "cpu": "2" }, "capacity": { "cpu": "2" } } });
    index.apply(ObjectEvent::Applied(
        node("theirs", 1, theirs),
        EventSource::Watch,
    ));
    for name in ["stays", "deleted", "terminating"] {
        let launched = json!({ "status": { "providerID": format!("kwok://{name}"), "capacity": { "cpu": "4" }, "allocatable": { "cpu": "4" } } });
        index.apply(ObjectEvent::Applied(
            claim(name, 2, launched),
            EventSource::Watch,
        ));
    }
    let snapshot = index.freeze(Timestamp::UNIX_EPOCH);
    let merged = snapshot.node("theirs").unwrap();
    assert!(!merged.is_managed() && merged.registered && merged.initialized);
    assert_eq!((merged.name(), merged.free().cpu), ("theirs", 2000));
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
        launched("deleted", deleted),
        EventSource::Watch,
    ));
    index.apply(ObjectEvent::Applied(
        launched("terminating", ending),
        EventSource::Watch,
    ));
    let snapshot = index.freeze(Timestamp::UNIX_EPOCH);
    let deleting = |name: &str| snapshot.node_of_claim(name).unwrap().deleting;
    assert_eq!(
        ["stays", "deleted", "terminating"].map(deleting),
        [false, true, true]
    );
    assert_eq!(
        (usage(&snapshot).nodes, usage(&snapshot).capacity.cpu),
        (1, 4_000)
    );
}

#[test]
fn nodes_with_accelerators_are_tried_last_and_those_that_are_initialized_first() {
    let mut index = index();
    let mut apply = |object| index.apply(ObjectEvent::Applied(object, EventSource::Watch));
    for (name, resource) in [
        ("a", "nvidia.com/gpu"),
        ("b", "example.com/efa"),
        ("c", "amd.com/gpu"),
        ("d", "pods"),
    ] {
        let has = json!({ "status": { "allocatable": { "cpu": "4", resource: "1" } } });
        apply(node(name, 1, has));
    }
    // Nodes that mortise does not manage count as initialized.
    for name in ["a", "b"] {
        let of = json!({ "status": { "providerID": format!("kwok://{name}") } });
        apply(claim(name, 1, of));
    }
    let snapshot = index.freeze(Timestamp::UNIX_EPOCH);
    let order: Vec<(&str, bool)> = snapshot
        .ordered_nodes
        .iter()
        .map(|node| (node.name(), node.initialized))
        .collect();
    assert_eq!(
        order,
        [("d", true), ("b", false), ("c", true), ("a", false)]
    );
}
