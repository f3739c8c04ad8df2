//! Stories of pools with a fixed number of nodes.

use serde_json::json;

use crate::tests::{cluster, cluster_with};
use mortise_engine::record::Verdict;
use mortise_planning::settings::{FeatureGates, Settings};
use mortise_sim::test_cluster::{GROUP, KIND, TestCluster};

fn world() -> TestCluster {
    cluster_with(Settings {
        gates: FeatureGates {
            static_capacity: true,
            ..FeatureGates::default()
        },
        disruption_validation_delay_ms: 0,
        ..Settings::default()
    })
}

/// A pool `fixed` with this number of replicas; `more` goes into its spec.
fn pool(world: &mut TestCluster, replicas: i64, more: &serde_json::Value) {
    world.put(&json!({ "kind": "NodePool", "metadata": { "name": "fixed" }, "spec": {
        "replicas": replicas,
        "disruption": { "consolidateAfter": "0s", "budgets": [{ "nodes": "1" }] },
        "template": { "spec": { "nodeClassRef": { "group": GROUP, "kind": KIND, "name": "default" } } },
    }}));
    world.edit("NodePool/fixed", &json!({ "spec": more }));
    world.settle();
}

/// Claims of the pool that are not going. Sorted.
fn claims(world: &mut TestCluster) -> Vec<String> {
    let snapshot = world.snapshot();
    let mut names: Vec<String> = snapshot
        .claims
        .values()
        .filter(|claim| claim.metadata.deletion_timestamp.is_none())
        .filter(|claim| claim.pool().is_some_and(|pool| pool.as_str() == "fixed"))
        .map(|claim| claim.name().to_string())
        .collect();
    names.sort_unstable();
    names
}

/// Brings the nodes of all claims up.
fn bring_up(world: &mut TestCluster) {
    for claim in claims(world) {
        if !world.is_true(&claim, "Initialized") {
            let node = world.join(&claim);
            world.settle();
            world.ready(&node);
            world.settle();
        }
    }
}

fn scale(world: &mut TestCluster, replicas: i64) {
    let generation = world.get("NodePool/fixed")["metadata"]["generation"]
        .as_i64()
        .unwrap();
    world.edit(
        "NodePool/fixed",
        &json!({ "metadata": { "generation": generation + 1 }, "spec": { "replicas": replicas } }),
    );
    world.pass(2_000);
}

#[test]
fn nodes_follow_replicas_up_and_down_and_zero() {
    let mut world = world();
    pool(&mut world, 3, &json!({}));
    assert_eq!(claims(&mut world).len(), 3);
    bring_up(&mut world);
    world.pass(5_000);
    assert_eq!(world.get("NodePool/fixed")["status"]["nodes"], 3);
    scale(&mut world, 5);
    bring_up(&mut world);
    assert_eq!(claims(&mut world).len(), 5);
    world.pass(120_000);
    assert_eq!(claims(&mut world).len(), 5, "nothing consolidates them");
    scale(&mut world, 2);
    assert_eq!(claims(&mut world).len(), 2);
    world.pass(30_000);
    assert_eq!(world.instances().len(), 2);
    assert_eq!(world.get("NodePool/fixed")["status"]["nodes"], 2);
    scale(&mut world, 0);
    world.pass(30_000);
    assert_eq!(world.instances().len(), 0);
    assert_eq!(world.violations(), [""; 0]);
    assert!(
        world
            .event("DisruptionTerminating")
            .unwrap()
            .message
            .contains("scaled to 2")
    );
}

#[test]
fn a_node_that_is_lost_is_replaced_once_also_across_a_restart() {
    let mut world = world();
    pool(&mut world, 3, &json!({}));
    bring_up(&mut world);
    let lost = claims(&mut world).remove(0);
    world.delete(&format!("NodeClaim/{lost}"));
    world.restart();
    world.pass(1_000);
    assert_eq!(claims(&mut world).len(), 3);
    bring_up(&mut world);
    world.pass(60_000);
    let now = claims(&mut world);
    assert!(now.len() == 3 && !now.contains(&lost), "{now:?}");
    assert_eq!(world.instances().len(), 3);
}

#[test]
fn what_is_lost_least_goes_first() {
    let mut world = world();
    pool(&mut world, 5, &json!({}));
    let all = claims(&mut world);
    for claim in &all[1..] {
        let node = world.join(claim);
        world.settle();
        world.ready(&node);
        world.settle();
    }
    let node = |at: usize| format!("node-{}", all[at]);
    world.pod(
        "guarded",
        &node(1),
        &json!({ "metadata": { "annotations": { "karpenter.sh/do-not-disrupt": "true" } } }),
    );
    world.pod("busy-a", &node(2), &json!({}));
    world.pod("busy-b", &node(2), &json!({}));
    world.pod("busy-c", &node(3), &json!({}));
    world.settle();
    // all[0] is launched but not up, all[4] is empty.
    let mut left = all.clone();
    for (replicas, gone) in [
        (4, vec![0, 4]),
        (3, vec![0, 4]),
        (2, vec![3]),
        (1, vec![2]),
        (0, vec![1]),
    ] {
        scale(&mut world, replicas);
        let now = claims(&mut world);
        let went: Vec<&String> = left.iter().filter(|claim| !now.contains(claim)).collect();
        assert_eq!(went.len(), 1, "{replicas}");
        assert!(
            gone.iter().any(|at| all[*at] == *went[0]),
            "to {replicas} went {went:?} of {all:?}"
        );
        left = now;
    }
}

#[test]
fn the_limit_holds_with_the_nodes_that_are_being_deleted() {
    let mut world = world();
    pool(&mut world, 3, &json!({ "limits": { "nodes": "3" } }));
    bring_up(&mut world);
    let first = claims(&mut world).remove(0);
    world.pod(
        "slow",
        &format!("node-{first}"),
        &json!({ "metadata": { "annotations": { "karpenter.sh/do-not-disrupt": "true" } } }),
    );
    world.delete(&format!("NodeClaim/{first}"));
    world.pass(60_000);
    assert_eq!(
        claims(&mut world).len(),
        2,
        "the third node is still draining"
    );
    let event = world.event("StaticCapacityShort").unwrap();
    assert!(
        event.message.contains("2 of 3 nodes") && event.message.contains("limit of nodes is 3"),
        "{}",
        event.message
    );
    world.edit(
        "Pod/default/slow",
        &json!({ "metadata": { "annotations": { "karpenter.sh/do-not-disrupt": null } } }),
    );
    world.pass(60_000);
    assert_eq!(claims(&mut world).len(), 3);
}

#[test]
fn drifted_nodes_are_replaced_one_for_one_under_the_budget() {
    let mut world = world();
    pool(&mut world, 3, &json!({}));
    bring_up(&mut world);
    let before = claims(&mut world);
    world.edit("NodePool/fixed", &json!({ "metadata": { "generation": 2 }, "spec": { "template": { "metadata": { "labels": { "new": "yes" } } } } }));
    let mut most = 0;
    for _ in 0..60 {
        world.pass(10_000);
        most = most.max(claims(&mut world).len());
        let up = claims(&mut world)
            .into_iter()
            .filter(|claim| world.is_true(claim, "Initialized"))
            .count();
        assert!(up >= 2, "{up} nodes are left");
        bring_up(&mut world);
    }
    let after = claims(&mut world);
    assert_eq!(after.len(), 3);
    assert!(
        after.iter().all(|claim| !before.contains(claim)),
        "{before:?} {after:?}"
    );
    assert_eq!(most, 4, "one at a time");
    assert_eq!(world.instances().len(), 3);
    let made = world
        .done
        .iter()
        .filter(|each| each.starts_with("create_claim"))
        .count();
    assert_eq!(made, 6, "three at first and one for each: {:?}", world.done);
}

#[test]
fn refusals_are_said_and_tried_again() {
    let mut world = world();
    world.answers.refused_creations = 3;
    pool(&mut world, 3, &json!({}));
    assert_eq!(claims(&mut world).len(), 0);
    let event = world.event("StaticCapacityShort").unwrap();
    assert!(
        event.message.contains("denied by a policy"),
        "{}",
        event.message
    );
    world.pass(10_000);
    assert_eq!(claims(&mut world).len(), 3);
    assert!(world.verdicts("nodepool/fixed").contains(&Verdict::Blocked));
}

#[test]
fn without_the_gate_nothing_is_made_and_the_pool_says_so() {
    let mut world = cluster();
    pool(&mut world, 3, &json!({}));
    world.pass(60_000);
    assert_eq!(claims(&mut world).len(), 0);
    assert!(
        world
            .event("StaticCapacityShort")
            .unwrap()
            .message
            .contains("StaticCapacity=true")
    );
}
