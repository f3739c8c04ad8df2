//! Nodes whose `consolidateAfter` elapses within seconds are consolidated together, or onto each other.

use jiff::SignedDuration;
use mortise_engine::record::Verdict;
use mortise_planning::reason::Reason;
use mortise_sim::test_cluster::TestCluster;
use serde_json::{Value, json};

use crate::automatic_cluster::{fleet, ordinary_cluster};

const SECOND: i64 = 1_000;
const MINUTE: i64 = 60 * SECOND;

/// Writes when pods came to a node or left it, as seconds from now, and whether it is consolidatable.
fn pod_event(world: &mut TestCluster, name: &str, seconds: i64, is_consolidatable: bool) {
    let at = world.now() + SignedDuration::from_secs(seconds);
    let types = ["Launched", "Registered", "Initialized", "Ready"];
    let consolidatable = is_consolidatable.then_some("Consolidatable");
    let conditions: Vec<Value> = types
        .into_iter()
        .chain(consolidatable)
        .map(|each| world.true_condition(each))
        .collect();
    let status = json!({ "status": { "conditions": conditions, "lastPodEventTime": at } });
    world.edit(&format!("NodeClaim/{name}"), &status);
}

/// Two nodes of 8 CPUs that pods left a minute ago, so that one of them, or a node of 2 CPUs, has room for all that run. The second one
/// becomes consolidatable this many seconds after the first, which does now.
fn after_scale_in(consolidate_after: &str, later: i64) -> TestCluster {
    let mut world = ordinary_cluster();
    let protected =
        json!({ "metadata": { "annotations": { "karpenter.sh/do-not-disrupt": "true" } } });
    fleet(&mut world, "large", &[900, 900]);
    for name in ["m0", "m1"] {
        world.edit(&format!("Node/{name}"), &protected);
    }
    let disruption = json!({ "spec": { "disruption": { "consolidateAfter": consolidate_after } } });
    world.pool("default", &disruption);
    world.pass(30 * MINUTE);
    let wait: SignedDuration = consolidate_after.parse().unwrap();
    let ago = -wait.as_secs();
    pod_event(&mut world, "m0", ago, true);
    pod_event(&mut world, "m1", ago + later, false);
    let free = json!({ "metadata": { "annotations": { "karpenter.sh/do-not-disrupt": null } } });
    for name in ["m0", "m1"] {
        world.edit(&format!("Node/{name}"), &free);
    }
    world
}

/// Records that say that a node waits for others.
fn waits(world: &TestCluster) -> usize {
    let records = world.records_of(Verdict::Refused).into_iter();
    let reasons = records.flat_map(|record| &record.reasons);
    reasons
        .filter(|reason| matches!(reason, Reason::OthersConsolidatableSoon { .. }))
        .count()
}

#[test]
fn a_node_waits_for_one_that_is_consolidatable_seconds_later() {
    let mut world = after_scale_in("1m", 10);
    world.pass(8 * SECOND);
    assert_eq!(world.node_types(), ["large", "large"]);
    assert_eq!(waits(&world), 1);
    world.pass(4 * SECOND);
    pod_event(&mut world, "m1", -60, true);
    world.pass(10 * MINUTE);
    assert_eq!(world.node_types(), ["small"]);
    assert_eq!(world.claim_times().len(), 1, "it takes the pods of both");
    assert_eq!(world.violations(), [] as [String; 0]);
}

#[test]
fn it_waits_for_a_quarter_of_consolidate_after_at_most() {
    // 30 s are the most.
    for consolidate_after in ["1m", "10m"] {
        let mut world = after_scale_in(consolidate_after, 40);
        world.pass(30 * SECOND);
        assert_eq!(waits(&world), 0);
        assert_eq!(world.claim_times().len(), 1, "{consolidate_after}");
    }
}

#[test]
fn pods_that_come_and_go_delay_it_once() {
    let mut world = after_scale_in("1m", 10);
    for _ in 0..5 {
        world.pass(5 * SECOND);
        pod_event(&mut world, "m1", -50, false);
    }
    world.pass(20 * SECOND);
    assert_eq!(waits(&world), 1, "for what elapses within 15 s");
    assert_eq!(world.claim_times().len(), 1);
}

#[test]
fn without_a_wait_of_its_own_a_node_waits_for_none() {
    let mut world = after_scale_in("0s", 0);
    world.pass(30 * SECOND);
    assert_eq!(waits(&world), 0);
    assert_eq!(world.node_types(), ["large"]);
}
