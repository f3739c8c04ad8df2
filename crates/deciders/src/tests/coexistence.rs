//! Next to another autoscaler: what refers to its node classes is left alone.

use serde_json::{Value, json};

use crate::tests::{bare_cluster, cluster};
use mortise_apis::labels;
use mortise_sim::test_cluster::{GROUP, KIND};

/// A claim of a class that is not served here, with everything that could tempt a decider.
fn theirs(name: &str, id: Option<&str>, finalizers: &[&str]) -> Value {
    json!({
        "kind": "NodeClaim",
        "metadata": {
            "name": name, "labels": { labels::NODEPOOL: "theirs" }, "finalizers": finalizers,
            "creationTimestamp": "2029-12-30T00:00:00Z",
        },
        "spec": {
            "nodeClassRef": { "group": "other.test", "kind": KIND, "name": "default" },
            "requirements": [], "expireAfter": "1h", "terminationGracePeriod": "1m",
        },
        "status": { "providerID": id, "conditions": [
            { "type": "Launched", "status": "True", "reason": "Launched", "message": "", "lastTransitionTime": "2029-12-30T00:00:00Z" },
            { "type": "Registered", "status": "True", "reason": "Registered", "message": "", "lastTransitionTime": "2029-12-30T00:00:00Z" },
        ] },
    })
}

#[test]
fn claims_and_pools_of_classes_that_are_not_served_here_are_left_alone() {
    let mut world = cluster();
    world.put(&theirs("unlaunched", None, &[]));
    // Its id looks like one of ours, so an orphan hunt would find nothing behind it.
    world.put(&theirs("up", Some("sim:///zone-a/i-00000077"), &[]));
    world.put(&theirs(
        "going",
        Some("sim:///zone-a/i-00000078"),
        &[labels::TERMINATION_FINALIZER],
    ));
    world.put(&json!({ "kind": "NodePool", "metadata": { "name": "theirs" }, "spec": {
        "template": { "spec": { "nodeClassRef": { "group": "other.test", "kind": KIND, "name": "default" } } },
    }}));
    world.put(&json!({
        "kind": "Node",
        "metadata": {
            "name": "going", "finalizers": [labels::TERMINATION_FINALIZER],
            "labels": { labels::node_class_key("other.test", KIND): "default", labels::NODEPOOL: "theirs" },
        },
        "spec": { "providerID": "sim:///zone-a/i-00000078" },
        "status": { "conditions": [{ "type": "Ready", "status": "Unknown" }] },
    }));
    world.delete("NodeClaim/going");
    world.delete("Node/going");
    let keys = [
        "NodeClaim/unlaunched",
        "NodeClaim/up",
        "NodeClaim/going",
        "NodePool/theirs",
        "Node/going",
    ];
    let before: Vec<Value> = keys.iter().map(|key| world.get(key).clone()).collect();
    let node = world.up("ours", &json!({}));
    world.pass(3 * 3_600_000);
    for (key, before) in keys.iter().zip(&before) {
        assert_eq!(world.get(key), before, "{key}");
    }
    let of_others = |line: &&String| {
        ["/unlaunched", "/up", "/going", "/theirs"]
            .iter()
            .any(|name| line.ends_with(name))
    };
    let touched: Vec<_> = world.done.iter().filter(of_others).collect();
    assert!(touched.is_empty(), "{touched:?}");
    assert!(world.has(&format!("Node/{node}")), "ours lives on");
}

#[test]
fn a_node_without_claim_is_ours_by_its_class_label_even_when_no_class_is_left() {
    let mut world = bare_cluster(mortise_planning::settings::Settings::default());
    let node = |group: &str| {
        json!({
            "kind": "Node",
            "metadata": {
                "name": group, "finalizers": [labels::TERMINATION_FINALIZER],
                "labels": { labels::node_class_key(group, KIND): "default" },
            },
            "spec": { "providerID": format!("fake:///zone-a/{group}") },
        })
    };
    for group in [GROUP, "other.test"] {
        world.put(&node(group));
        world.delete(&format!("Node/{group}"));
    }
    world.pass(60_000);
    assert!(!world.has(&format!("Node/{GROUP}")), "{:?}", world.done);
    assert!(world.has("Node/other.test"));
}
