//! How few writes a life takes, and what holds between two of them.

use serde_json::json;

use crate::tests::{cluster, cluster_with};
use mortise_apis::labels;
use mortise_sim::test_cluster::{GROUP, KIND, TestCluster};

/// A life from a claim to nothing: a pod comes to the node, ends, and emptiness takes the node. Returns its writes, in
/// order, except the creation of the claim, which is provisioning's, and the pool's share.
fn life(joins_after_ms: i64, ready_after_ms: i64, instance_exit_ms: i64) -> Vec<String> {
    let mut settings = mortise_planning::settings::Settings::default();
    // Which the decider of disruption comes with in these tests.
    settings.gates.static_capacity = true;
    let mut world = cluster_with(settings);
    world.edit(
        "NodePool/default",
        &json!({ "spec": { "disruption": { "consolidateAfter": "0s", "consolidationPolicy": "WhenEmpty", "budgets": [{ "nodes": "100%" }] } } }),
    );
    world.settings.join_grace_ms = 250;
    world.settings.condition_grace_ms = 1_000;
    world.settings.reason_grace_ms = 10_000;
    world.settings.end_grace_ms = 5_000;
    world.set_termination_ms(instance_exit_ms);
    world.restart();
    world.settle();
    let pool = world.get("NodePool/default")["metadata"]["annotations"].clone();
    world.claim("c", &json!({ "startupTaints": [] }));
    // As provisioning makes claims.
    let class = labels::node_class_key(GROUP, KIND);
    world.edit(
        "NodeClaim/c",
        &json!({ "metadata": { "labels": { class: "default" }, "annotations": pool } }),
    );
    world.done.clear();
    world.pass(joins_after_ms);
    let node = world.join_silently("c");
    world.pass(ready_after_ms - 50);
    world.report_ready(&node);
    world.pass(50); // until kube-controller-manager takes the taint away
    world.ready(&node);
    world.pod("web", &node, &json!({}));
    world.pass(60_000);
    for condition in [
        "Launched",
        "Registered",
        "Initialized",
        "Consolidatable",
        "ConsistentStateFound",
        "Ready",
    ] {
        assert!(world.is_true("c", condition), "{condition}");
    }
    let claim = world.get("NodeClaim/c");
    assert_eq!(claim["status"]["nodeName"], node.as_str());
    assert!(claim["status"]["capacity"]["cpu"].is_string());
    world.delete("Pod/default/web");
    world.pass(120_000);
    assert!(!world.has("NodeClaim/c") && !world.has("Node/node-c"));
    assert_eq!(world.violations(), [""; 0]);
    let is_write = |each: &&String| {
        (each.starts_with("patch node") || each.starts_with("delete node"))
            && !each.contains("nodepool")
    };
    world.done.iter().filter(is_write).cloned().collect()
}

/// The least that a life can do with: each of these is on another object or another part of one, or at another time.
#[test]
fn a_life_is_nine_writes_where_instances_come_and_go_at_once() {
    assert_eq!(
        life(0, 100, 0),
        [
            "patch nodeclaim/c", // labels of the instance
            "patch node/node-c", // all that a node needs
            "patch nodeclaim/c", // from Launched to Consolidatable
            "patch nodeclaim/c", // DisruptionReason, the fence
            "patch node/node-c", // taint
            "delete nodeclaim/c",
            "delete node/node-c",
            "patch node/node-c", // finalizer
            "patch nodeclaim/c", // finalizer
        ]
    );
}

#[test]
fn a_life_is_thirteen_writes_where_instances_take_their_time() {
    assert_eq!(
        life(30_000, 20_000, 30_000),
        [
            "patch nodeclaim/c", // labels of the instance
            "patch nodeclaim/c", // Launched
            "patch node/node-c", // registration
            "patch nodeclaim/c", // Registered
            "patch node/node-c", // initialization
            "patch nodeclaim/c", // Initialized and Consolidatable
            "patch nodeclaim/c", // DisruptionReason, the fence
            "patch node/node-c", // taint
            "delete nodeclaim/c",
            "delete node/node-c",
            "patch nodeclaim/c", // Drained, VolumesDetached and InstanceTerminating
            "patch node/node-c", // finalizer
            "patch nodeclaim/c", // finalizer
        ]
    );
}

#[test]
fn a_reason_that_gives_way_to_the_next_is_not_written() {
    let mut world = cluster();
    world.settings.reason_grace_ms = 10_000;
    world.restart();
    world.claim("c", &json!({ "startupTaints": [] }));
    world.settle();
    let node = format!("Node/{}", world.join("c"));
    world.pass(1_000);
    let reason = |world: &TestCluster| world.condition("c", "Initialized").unwrap().1;
    assert_eq!(reason(&world), "NodeNotReady", "the first is told at once");
    let taint =
        |key: &str| json!({ "spec": { "taints": [{ "key": key, "effect": "NoSchedule" }] } });
    world.edit(
        &node,
        &json!({ "status": { "conditions": [{ "type": "Ready", "status": "True" }] } }),
    );
    world.edit(&node, &taint(labels::NOT_READY_TAINT));
    world.pass(9_000);
    assert_eq!(reason(&world), "NodeNotReady");
    world.edit(&node, &json!({ "spec": { "taints": [] } }));
    world.pass(900);
    assert_eq!(reason(&world), "NodeNotReady");
    world.pass(200);
    assert_eq!(
        reason(&world),
        "ResourceNotRegistered",
        "it has stood for long enough"
    );
    world.edit(
        &node,
        &json!({ "status": { "allocatable": { "cpu": "2" } } }),
    );
    world.pass(200);
    assert!(
        world.is_true("c", "Initialized"),
        "no client waits to be told that it is over"
    );
}

/// The Node cannot be registered: its instance is in the status all the same.
#[test]
fn an_instance_whose_node_cannot_be_written_is_told_of() {
    let mut world = cluster();
    world.settings.join_grace_ms = 250;
    world.restart();
    world.claim("c", &json!({}));
    world.settle();
    world
        .answers
        .refused_writes
        .insert("Node/node-c".to_owned());
    world.join("c");
    world.pass(4_000);
    assert!(!world.is_true("c", "Launched"), "it may be in a moment");
    world.pass(500);
    assert!(world.is_true("c", "Launched"));
    assert!(!world.is_true("c", "Registered"));
    world.answers.refused_writes.clear();
    world.pass(60_000);
    assert!(world.is_true("c", "Registered"));
}

/// The process is killed between the instance's labels and its status, with the Node there.
#[test]
fn an_instance_that_only_an_annotation_names_is_found_again() {
    let mut world = cluster();
    world.settings.join_grace_ms = 250;
    world.restart();
    world.claim("c", &json!({ "startupTaints": [] }));
    world.settle();
    let node = world.join("c");
    assert!(world.get("NodeClaim/c")["status"]["providerID"].is_null());
    let state_node = world.snapshot().node_of_claim("c").cloned().unwrap();
    assert!(state_node.node.is_some(), "one node, as every process sees");
    world.restart();
    world.settle();
    world.ready(&node);
    world.pass(1_000);
    assert!(world.is_true("c", "Initialized"));
    assert_eq!(world.instances().len(), 1);
    assert_eq!(world.violations(), [""; 0]);
}
