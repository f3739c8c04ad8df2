//! Next to Cluster Autoscaler: pods that ask for a head start of it, pods of ProvisioningRequests, and nodes that it is about to
//! remove.

use crate::automatic_cluster::{automatic_cluster, fleet, ordinary_cluster};
use mortise_engine::record::Verdict;
use mortise_planning::settings::Settings;
use mortise_sim::test_cluster::{TestCluster, ordinary_types};
use serde_json::{Value, json};

fn cluster(respect: bool) -> TestCluster {
    let settings = Settings {
        respect_cluster_autoscaler_annotations: respect,
        ..Settings::default()
    };
    automatic_cluster(ordinary_types(), settings)
}

fn annotated(key: &str, value: &str) -> Value {
    json!({ "metadata": { "annotations": { key: value } } })
}

#[test]
fn a_pod_that_asks_for_a_delay_gets_its_node_later() {
    let delayed = annotated(
        "cluster-autoscaler.kubernetes.io/pod-scale-up-delay",
        "1m30s",
    );
    let mut world = cluster(true);
    world.pods("late", 1, 500, &delayed);
    world.pass(89_000);
    assert_eq!(world.claim_times(), [] as [i64; 0]);
    let ignored = world.records_of(Verdict::Ignored);
    let said = ignored.iter().map(|record| record.reasons[0].to_string());
    let said: Vec<String> = said.collect();
    assert!(
        said[0].contains("pod-scale-up-delay: no node is launched for it before"),
        "{said:?}"
    );
    world.pass(15_000);
    assert_eq!(world.claim_times(), [90_000]);

    let mut world = cluster(false);
    world.pods("late", 1, 500, &delayed);
    world.pass(5_000);
    assert_eq!(world.claim_times().len(), 1, "the annotation means nothing");
}

#[test]
fn a_delay_of_one_pod_delays_no_other() {
    let mut world = cluster(true);
    let delayed = annotated(
        "cluster-autoscaler.kubernetes.io/pod-scale-up-delay",
        "600s",
    );
    world.pods("late", 3, 3_000, &delayed);
    world.pods("web", 1, 500, &json!({}));
    world.pass(60_000);
    assert_eq!(world.claim_times().len(), 1);
    assert_eq!(world.pending(), 3);
}

#[test]
fn pods_of_a_provisioning_request_get_no_nodes_of_their_own() {
    for key in [
        "autoscaling.x-k8s.io/consume-provisioning-request",
        "cluster-autoscaler.kubernetes.io/consume-provisioning-request",
    ] {
        let mut world = cluster(true);
        world.pods("train", 2, 500, &annotated(key, "training"));
        world.pass(600_000);
        assert_eq!(world.claim_times(), [] as [i64; 0], "{key}");
    }
}

/// A node of 8 CPUs that mortise did not launch.
fn other_node(world: &mut TestCluster, taints: &Value) {
    let amounts = json!({ "cpu": "8", "memory": "16Gi", "pods": "100" });
    world.put(&json!({
        "kind": "Node",
        "metadata": { "name": "theirs", "labels": {
            "kubernetes.io/hostname": "theirs", "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
        } },
        "spec": { "providerID": "other:///theirs", "taints": taints },
        "status": {
            "conditions": [world.true_condition("Ready")], "allocatable": amounts, "capacity": amounts,
        },
    }));
}

#[test]
fn pods_are_not_moved_to_nodes_that_are_about_to_go() {
    let played = |taints: Value| {
        let mut world = ordinary_cluster();
        other_node(&mut world, &taints);
        fleet(&mut world, "small", &[1_500]);
        world.pass(600_000);
        world.names("Node")
    };
    assert_eq!(played(json!([])), ["theirs"]);
    for key in [
        "DeletionCandidateOfClusterAutoscaler",
        "ToBeDeletedByClusterAutoscaler",
    ] {
        let taints = json!([{ "key": key, "value": "1700000000", "effect": "PreferNoSchedule" }]);
        assert_eq!(played(taints), ["m0", "theirs"], "{key}");
    }
}
