//! Consolidation and pauses.

use crate::automatic_cluster::ordinary_cluster;
use mortise_engine::record::Verdict;
use mortise_planning::reason::Reason;
use mortise_sim::test_cluster::TestCluster;
use serde_json::{Value, json};

fn paused(reason: Option<&str>) -> Value {
    json!({ "metadata": { "annotations": { "mortise.sh/pause": reason } } })
}

/// A node that is larger than its pod needs.
fn wasteful(world: &mut TestCluster) {
    world.running_node("m0", "large", "default");
    world.pods(
        "web",
        1,
        1_000,
        &json!({ "spec": { "nodeName": "m0" }, "status": { "phase": "Running" } }),
    );
}

fn is_blocked_by_pause(world: &TestCluster) -> bool {
    let records = world.records_of(Verdict::Blocked);
    let mut reasons = records.iter().flat_map(|record| &record.reasons);
    reasons.any(|reason| matches!(reason, Reason::Paused(_)))
}

#[test]
fn nothing_is_consolidated_while_paused_and_within_seconds_afterwards() {
    let mut world = ordinary_cluster();
    wasteful(&mut world);
    world.edit("NodePool/default", &paused(Some("freeze")));
    world.pass(30 * 60_000);
    assert_eq!(world.node_types(), ["large"]);
    assert!(is_blocked_by_pause(&world));
    world.edit("NodePool/default", &paused(None));
    world.pass(90_000);
    assert_eq!(world.node_types(), ["small"]);
}

#[test]
fn a_command_whose_replacement_is_on_its_way_is_abandoned() {
    let mut world = ordinary_cluster();
    wasteful(&mut world);
    let is_launching = |world: &TestCluster| world.names("NodeClaim").len() == 2;
    for _ in 0..600 {
        if is_launching(&world) {
            break;
        }
        world.pass(100);
    }
    assert!(is_launching(&world), "{:?}", world.done);
    world.edit("NodePool/default", &paused(Some("freeze")));
    world.pass(30 * 60_000);
    assert!(world.has("Node/m0"), "its pods stay where they are");
    let taints = world.get("Node/m0")["spec"]["taints"].clone();
    assert!(
        !taints.to_string().contains("karpenter.sh/disrupted"),
        "{taints}"
    );
    assert!(!world.records_of(Verdict::Abandoned).is_empty());
}
