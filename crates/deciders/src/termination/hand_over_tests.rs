//! Pods that are replaced by a restart of their Deployment.

use serde_json::{Value, json};

use crate::tests::cluster_with;
use mortise_apis::labels::{DO_NOT_DISRUPT, HAND_OVER, HANDED_OVER};
use mortise_planning::drain::pdb::Pdbs;
use mortise_planning::drain::{hand_over, undrainable_nodes};
use mortise_planning::settings::Settings;
use mortise_sim::test_cluster::{TestCluster, merge_into};

const MINUTE: i64 = 60_000;
const DEPLOYMENT: &str = "Deployment/default/web";

/// A cluster that hands pods over.
pub(super) fn cluster() -> TestCluster {
    cluster_with(Settings {
        hand_over: true,
        ..Settings::default()
    })
}

/// The Deployment `web`, with one pod and at rest unless `more` says otherwise.
pub(super) fn deployment(world: &mut TestCluster, more: &Value) {
    let mut value = json!({ "kind": "Deployment", "metadata": { "name": "web", "namespace": "default", "generation": 1 },
        "spec": { "replicas": 1, "selector": { "matchLabels": { "app": "web" } } },
        "status": { "observedGeneration": 1, "replicas": 1, "updatedReplicas": 1 } });
    merge_into(&mut value, more);
    world.put(&value);
}

/// A pod of it on the node of `c`, with this annotation.
pub(super) fn handed_over_pod(world: &mut TestCluster, name: &str, wait: &str) {
    let owner = json!({ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5d9f", "uid": "rs", "controller": true });
    let labels = json!({ "app": "web", "pod-template-hash": "5d9f" });
    world.pod(
        name,
        "node-c",
        &json!({ "metadata": { "labels": labels, "annotations": { HAND_OVER: wait }, "ownerReferences": [owner] },
            "status": { "conditions": [{ "type": "Ready", "status": "True" }] } }),
    );
}

/// A cluster with a node `c`, the Deployment and one pod of it.
fn world(more: &Value, wait: &str) -> TestCluster {
    let mut world = cluster();
    world.up("c", &json!({}));
    deployment(&mut world, more);
    handed_over_pod(&mut world, "web-1", wait);
    world.settle();
    world
}

fn restarted_for(world: &TestCluster) -> Option<String> {
    let deployment = world.get(DEPLOYMENT);
    let pod = deployment["spec"]["template"]["metadata"]["annotations"][HANDED_OVER].as_str();
    pod.map(str::to_owned)
}

fn evictions(world: &TestCluster) -> usize {
    let all = world.done.iter();
    all.filter(|each| each.starts_with("evict ")).count()
}

#[test]
fn a_single_pod_is_replaced_and_not_evicted() {
    let mut world = world(&json!({}), "true");
    let uid = world.get("Pod/default/web-1")["metadata"]["uid"].clone();
    assert_eq!(restarted_for(&world), None);
    world.delete("NodeClaim/c");
    world.pass(1_000);
    assert_eq!(restarted_for(&world).as_deref(), uid.as_str());
    let told = &world.event("HandedOver").unwrap().message;
    assert!(
        told.contains("deployment default/web starts another pod"),
        "{told}"
    );
    // The Deployment controller is at work, and done after a minute.
    let rolls = json!({ "metadata": { "generation": 2 }, "status": { "replicas": 2, "observedGeneration": 2 } });
    world.edit(DEPLOYMENT, &rolls);
    world.pass(MINUTE);
    assert_eq!(evictions(&world), 0);
    assert!(world.has("Node/node-c"));
    world.edit(DEPLOYMENT, &json!({ "status": { "replicas": 1 } }));
    world.delete("Pod/default/web-1");
    world.pass(20_000);
    assert!(!world.has("Node/node-c") && !world.has("NodeClaim/c"));
    assert_eq!(evictions(&world), 0);
    assert_eq!(world.violations(), [""; 0]);
}

#[test]
fn it_is_evicted_when_its_time_is_over() {
    for (wait, minutes) in [("true", 5), ("90s", 2)] {
        let mut world = world(&json!({}), wait);
        world.delete("NodeClaim/c");
        world.pass((minutes - 1) * MINUTE);
        assert_eq!(evictions(&world), 0, "{wait}");
        world.pass(MINUTE + 1_000);
        assert_eq!(evictions(&world), 1, "{wait}");
    }
}

#[test]
fn it_is_restarted_once_however_often_it_is_checked() {
    let mut world = world(&json!({}), "true");
    world.delete("NodeClaim/c");
    world.pass(1_000);
    let version = world.get(DEPLOYMENT)["metadata"]["resourceVersion"].clone();
    // The Deployment controller has not seen it yet, and another process takes over.
    world.restart();
    world.pass(2 * MINUTE);
    assert_eq!(
        world.get(DEPLOYMENT)["metadata"]["resourceVersion"],
        version
    );
    assert_eq!(evictions(&world), 0);
}

#[test]
fn a_rollout_that_is_running_is_waited_for() {
    let mut world = world(&json!({ "status": { "updatedReplicas": 0 } }), "true");
    world.delete("NodeClaim/c");
    world.pass(MINUTE);
    assert_eq!(restarted_for(&world), None);
    assert_eq!(evictions(&world), 0);
    // It was not about this pod, which is a new one.
    world.edit(DEPLOYMENT, &json!({ "status": { "updatedReplicas": 1 } }));
    world.pass(1_000);
    assert!(restarted_for(&world).is_some());
}

#[test]
fn a_workload_that_cannot_is_evicted_and_says_why() {
    let budget = |world: &mut TestCluster| {
        world.put(&json!({ "kind": "PodDisruptionBudget", "metadata": { "name": "web", "namespace": "default", "generation": 1 },
            "spec": { "minAvailable": "100%", "selector": { "matchLabels": { "app": "web" } } },
            "status": { "disruptionsAllowed": 0, "currentHealthy": 3, "desiredHealthy": 3, "expectedPods": 3, "observedGeneration": 1 } }));
    };
    for (more, wait, has_budget, wanted) in [
        (json!({}), "true", false, None),
        (
            json!({}),
            "soon",
            false,
            Some("annotation mortise.sh/hand-over: invalid duration"),
        ),
        (
            json!({ "spec": { "paused": true } }),
            "true",
            false,
            Some("deployment default/web is paused"),
        ),
        (
            json!({ "spec": { "strategy": { "type": "Recreate" } } }),
            "true",
            false,
            Some("needs the strategy RollingUpdate"),
        ),
        (
            json!({ "spec": { "selector": { "matchLabels": { "app": "db" } } } }),
            "true",
            false,
            Some("it belongs to no Deployment"),
        ),
        (
            json!({ "spec": { "replicas": 3 }, "status": { "replicas": 3, "updatedReplicas": 3 } }),
            "true",
            false,
            Some("has 3 replicas"),
        ),
        (
            json!({ "spec": { "replicas": 3 }, "status": { "replicas": 3, "updatedReplicas": 3 } }),
            "true",
            true,
            None,
        ),
    ] {
        let mut world = world(&more, wait);
        if has_budget {
            budget(&mut world);
            world.settle();
        }
        let snapshot = world.snapshot();
        let pod = snapshot
            .pods
            .values()
            .find(|pod| &*pod.key.name == "web-1")
            .unwrap();
        let found = hand_over(&snapshot, &Pdbs::new(&snapshot), pod).unwrap();
        let why = found.err().map(|why| why.to_string());
        match (wanted, &why) {
            (None, None) => {}
            (Some(wanted), Some(why)) => assert!(why.contains(wanted), "{why}"),
            _ => panic!("{why:?}, not {wanted:?}"),
        }
        // A budget that never allows an eviction keeps no node whose pod is handed over.
        assert_eq!(undrainable_nodes(&snapshot, world.now()), []);
        world.delete("NodeClaim/c");
        world.pass(2_000);
        assert_eq!(
            restarted_for(&world).is_some(),
            wanted.is_none(),
            "{wanted:?}"
        );
        assert_eq!(
            evictions(&world),
            usize::from(wanted.is_some()),
            "{wanted:?}"
        );
    }
}

#[test]
fn what_is_protected_is_not_handed_over() {
    let mut world = world(&json!({}), "true");
    world.edit(
        "Pod/default/web-1",
        &json!({ "metadata": { "annotations": { DO_NOT_DISRUPT: "true" } } }),
    );
    world.delete("NodeClaim/c");
    world.pass(6 * MINUTE);
    assert_eq!(restarted_for(&world), None);
    assert_eq!(evictions(&world), 0);
}
