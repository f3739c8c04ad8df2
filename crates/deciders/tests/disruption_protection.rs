//! Annotations keep pods and nodes from being disrupted.

use std::collections::BTreeSet;

use crate::automatic_cluster::{automatic_cluster, fleet, ordinary_cluster};
use mortise_engine::record::Verdict;
use mortise_planning::reason::Reason;
use mortise_planning::settings::Settings;
use mortise_sim::test_cluster::{TestCluster, ordinary_types};
use serde_json::json;

const DO_NOT_DISRUPT: &str = "karpenter.sh/do-not-disrupt";

#[test]
fn protected_pods_and_nodes_are_left_alone() {
    let mut world = ordinary_cluster();
    fleet(&mut world, "large", &[1_000, 1_000]);
    let pod = world.names("Pod").remove(0);
    world.edit(
        &format!("Pod/{pod}"),
        &json!({ "metadata": { "annotations": { DO_NOT_DISRUPT: "true" } } }),
    );
    world.edit(
        "Node/m1",
        &json!({ "metadata": { "annotations": { DO_NOT_DISRUPT: "true" } } }),
    );
    world.pass(300_000);
    assert_eq!(world.names("Node"), ["m0", "m1"]);
    let blocked = world.records_of(Verdict::Blocked);
    assert!(
        blocked
            .iter()
            .any(|record| matches!(record.reasons[0], Reason::DoNotDisruptPod { .. }))
    );
    assert!(
        blocked
            .iter()
            .any(|record| matches!(record.reasons[0], Reason::DoNotDisruptNode { .. }))
    );
}

/// Who comes from Cluster Autoscaler has its annotations, and may have them respected.
#[test]
fn annotations_of_cluster_autoscaler_protect_if_they_are_respected() {
    let played = |respect: bool| {
        let settings = Settings {
            respect_cluster_autoscaler_annotations: respect,
            ..Settings::default()
        };
        let mut world = automatic_cluster(ordinary_types(), settings);
        fleet(&mut world, "large", &[1_000, 1_000, 1_000]);
        let pods = world.names("Pod");
        let annotate = |world: &mut TestCluster, object: &str, key: &str, value: &str| {
            let key = format!("cluster-autoscaler.kubernetes.io/{key}");
            let annotations = json!({ "metadata": { "annotations": { key: value } } });
            world.edit(object, &annotations);
        };
        annotate(
            &mut world,
            &format!("Pod/{}", pods[0]),
            "safe-to-evict",
            "false",
        );
        annotate(
            &mut world,
            &format!("Pod/{}", pods[2]),
            "safe-to-evict",
            "true",
        );
        annotate(&mut world, "Node/m1", "scale-down-disabled", "true");
        world.pass(300_000);
        let said = world.events_of("DisruptionBlocked").into_iter();
        let said: BTreeSet<String> = said.map(|event| event.message.clone()).collect();
        (world.names("Node"), said)
    };
    let (nodes, said) = played(true);
    assert_eq!(nodes, ["m0", "m1"], "{said:?}");
    for part in [
        "Pod has \"cluster-autoscaler.kubernetes.io/safe-to-evict\" annotation",
        "through the \"cluster-autoscaler.kubernetes.io/scale-down-disabled\" annotation",
    ] {
        assert!(said.iter().any(|text| text.contains(part)), "{said:?}");
    }
    let (nodes, said) = played(false);
    let is_named = said.iter().any(|text| text.contains("cluster-autoscaler"));
    assert!(nodes.len() == 1 && !is_named, "{nodes:?} {said:?}");
}

#[test]
fn a_protection_that_ends_ends() {
    let mut world = ordinary_cluster();
    fleet(&mut world, "large", &[1_000]);
    let pod = world.names("Pod").remove(0);
    let start = world.now().to_string();
    world.edit(&format!("Pod/{pod}"), &json!({ "metadata": { "annotations": { DO_NOT_DISRUPT: "5m" } }, "status": { "startTime": start } }));
    world.pass(290_000);
    assert_eq!(world.node_types(), ["large"]);
    world.pass(90_000);
    assert_eq!(world.node_types(), ["small"]);
}

/// kube-scheduler binds a pod by what it knew before the taint. Without the extender nothing else keeps it away.
#[test]
fn a_protected_pod_that_is_bound_while_the_taint_is_written_saves_its_node() {
    let mut world = ordinary_cluster();
    world.running_node("m1", "small", "default");
    let is_tainted = |world: &TestCluster| {
        let taints = world.get("Node/m1")["spec"]["taints"].as_array();
        taints.is_some_and(|all| !all.is_empty())
    };
    for _ in 0..3_000 {
        if is_tainted(&world) {
            break;
        }
        world.pass(10);
    }
    assert!(is_tainted(&world), "it is empty");
    let bound = json!({
        "metadata": { "annotations": { DO_NOT_DISRUPT: "true" } },
        "spec": { "nodeName": "m1" },
        "status": { "phase": "Running" },
    });
    world.pods("late", 1, 1_500, &bound);
    world.pass(60_000);
    assert_eq!(world.names("NodeClaim"), ["m1"]);
    let claim = world.get("NodeClaim/m1");
    assert!(claim["metadata"]["deletionTimestamp"].is_null(), "{claim}");
    assert!(!is_tainted(&world), "it is used again");
}
