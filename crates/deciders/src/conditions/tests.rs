//! Stories of timers and drift.

use serde_json::json;

use crate::tests::cluster;
use mortise_apis::labels;
use mortise_sim::test_cluster::TestCluster;

#[test]
fn a_claim_is_consolidatable_after_its_rest_and_not_after_a_pod_event() {
    let mut world = cluster();
    let node = world.up("c", &json!({}));
    world.pass(29_000);
    assert!(world.condition("c", "Consolidatable").is_none());
    world.pass(2_000);
    assert!(
        world.is_true("c", "Consolidatable"),
        "30 s after it was initialized"
    );

    world.pod("web", &node, &json!({}));
    world.settle();
    assert!(
        world.condition("c", "Consolidatable").is_none(),
        "a pod came"
    );
    assert_eq!(
        world.get("NodeClaim/c")["status"]["lastPodEventTime"],
        world.now().to_string()
    );
    world.pass(29_000);
    assert!(world.condition("c", "Consolidatable").is_none());
    world.pass(2_000);
    assert!(world.is_true("c", "Consolidatable"));
}

#[test]
fn timers_survive_a_restart() {
    let mut world = cluster();
    let node = world.up("c", &json!({}));
    world.pod("web", &node, &json!({}));
    world.settle();
    let written = world.get("NodeClaim/c")["status"]["lastPodEventTime"].clone();
    world.pass(20_000);
    world.restart();
    world.pass(9_000);
    assert!(world.condition("c", "Consolidatable").is_none());
    assert_eq!(
        world.get("NodeClaim/c")["status"]["lastPodEventTime"],
        written,
        "pods that were there are no event"
    );
    world.pass(2_000);
    assert!(world.is_true("c", "Consolidatable"));
}

#[test]
fn pod_events_are_written_at_most_every_ten_seconds_and_the_last_one_is_not_lost() {
    let mut world = cluster();
    let node = world.up("c", &json!({}));
    let time = |world: &TestCluster| {
        world.get("NodeClaim/c")["status"]["lastPodEventTime"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    world.pod("a", &node, &json!({}));
    world.settle();
    let first = time(&world);
    world.pass(4_000);
    world.pod("b", &node, &json!({}));
    let second = world.now().to_string();
    world.pass(5_000);
    assert_eq!(time(&world), first);
    world.pass(2_000);
    assert_eq!(time(&world), second);
    let daemon = json!({ "metadata": { "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "ds", "uid": "ds", "controller": true }] } });
    world.pass(60_000);
    world.pod("daemon", &node, &daemon);
    world.pass(11_000);
    assert_eq!(time(&world), second, "pods of DaemonSets are no event");
}

#[test]
fn never_means_never() {
    let mut world = cluster();
    world.up("c", &json!({}));
    world.pass(60_000);
    assert!(world.is_true("c", "Consolidatable"));
    world.edit(
        "NodePool/default",
        &json!({ "spec": { "disruption": { "consolidateAfter": "Never" } } }),
    );
    world.settle();
    assert!(world.condition("c", "Consolidatable").is_none());
}

#[test]
fn a_change_of_the_template_drifts_and_a_change_back_does_not() {
    let mut world = cluster();
    let hash =
        world.get("NodePool/default")["metadata"]["annotations"][labels::NODEPOOL_HASH].clone();
    world.up("c", &json!({}));
    assert_eq!(
        world.get("NodeClaim/c")["metadata"]["annotations"][labels::NODEPOOL_HASH],
        hash,
        "a claim without hash is stamped"
    );
    world.edit(
        "NodePool/default",
        &json!({ "spec": { "template": { "metadata": { "labels": { "new": "x" } } } } }),
    );
    world.settle();
    assert_eq!(
        world.condition("c", "Drifted").unwrap(),
        ("True".to_owned(), "NodePoolDrifted".to_owned())
    );
    assert!(world.event("Drifted").is_some());
    world.edit(
        "NodePool/default",
        &json!({ "spec": { "template": { "metadata": null } } }),
    );
    world.settle();
    assert!(world.condition("c", "Drifted").is_none());
    world.edit("NodePool/default", &json!({ "spec": { "template": { "spec": { "requirements": [{ "key": "team", "operator": "In", "values": ["b"] }] } } } }));
    world.settle();
    assert_eq!(
        world.condition("c", "Drifted").unwrap().1,
        "RequirementsDrifted"
    );
}

#[test]
fn a_provider_is_asked_every_five_minutes_and_when_its_class_changes() {
    let mut world = cluster();
    world.up("c", &json!({}));
    let checks = |world: &TestCluster| {
        world
            .done
            .iter()
            .filter(|each| *each == "check_drift nodeclaim/c")
            .count()
    };
    world.pass(5 * 60_000);
    assert_eq!(checks(&world), 1, "spread over the period");
    world.pass(10 * 60_000);
    assert_eq!(checks(&world), 3);
    world
        .answers
        .drifted
        .insert("c".to_owned(), "AMIDrift".to_owned());
    world.edit(
        "FakeNodeClass/default",
        &json!({ "spec": { "image": "2" } }),
    );
    world.settle();
    assert_eq!(world.condition("c", "Drifted").unwrap().1, "AMIDrift");

    // A new process keeps the reason until it has asked.
    world.restart();
    world.settle();
    assert!(world.is_true("c", "Drifted"));
    world.answers.drifted.clear();
    world.pass(5 * 60_000);
    assert!(world.condition("c", "Drifted").is_none());
}

#[test]
fn an_instance_type_that_vanished_drifts_after_an_hour() {
    let mut world = cluster();
    world.up("c", &json!({}));
    world.edit(
        "NodeClaim/c",
        &json!({ "metadata": { "labels": { labels::INSTANCE_TYPE: "discontinued" } } }),
    );
    world.pass(50 * 60_000);
    assert!(world.condition("c", "Drifted").is_none());
    world.pass(16 * 60_000);
    assert_eq!(
        world.condition("c", "Drifted").unwrap().1,
        "InstanceTypeNotFound"
    );
}

#[test]
fn a_node_with_less_than_its_claim_is_told_of_every_ten_minutes() {
    let mut world = cluster();
    world.up("c", &json!({}));
    assert!(world.is_true("c", "ConsistentStateFound"));
    let shrink = json!({ "status": { "capacity": { "cpu": "1500m" } } });
    world.edit("Node/node-c", &shrink);
    world.pass(9 * 60_000);
    assert!(
        world.is_true("c", "ConsistentStateFound"),
        "not checked again yet"
    );
    world.pass(2 * 60_000);
    let found = world.condition("c", "ConsistentStateFound").unwrap();
    assert_eq!(
        found,
        ("False".to_owned(), "ConsistencyCheckFailed".to_owned())
    );
    let said = |world: &TestCluster| {
        world
            .events()
            .filter(|event| event.reason == "FailedConsistencyCheck")
            .count()
    };
    assert_eq!(
        world.event("FailedConsistencyCheck").unwrap().message,
        "expected 2 of resource cpu, but found 1500m (75% of expected)"
    );
    assert_eq!(said(&world), 1);
    world.pass(30 * 60_000);
    assert_eq!(said(&world), 4);
    world.edit(
        "Node/node-c",
        &json!({ "status": { "capacity": { "cpu": "1900m" } } }),
    );
    world.pass(11 * 60_000);
    assert!(world.is_true("c", "ConsistentStateFound"), "95 % is enough");
}
