//! What NodePoolPolicies ask of consolidation: nodes that are used well enough stay, and moves save enough.

use crate::automatic_cluster::{automatic_cluster, drift, ordinary_cluster, refusals};
use mortise_planning::reason::DisruptionBlocker;
use mortise_planning::settings::Settings;
use mortise_sim::test_cluster::{TestCluster, instance_type};
use serde_json::{Value, json};

fn policy(minimum: &str) -> Value {
    json!({
        "kind": "NodePoolPolicy",
        "metadata": { "name": "team", "generation": 1, "creationTimestamp": "2025-01-01T00:00:00Z" },
        "spec": { "nodePools": ["default"], "disruption": { "minimumUtilization": minimum } },
    })
}

/// Pods on a node with 8 CPUs that request this, in thousandths of a CPU.
fn cluster(cpu: i64, minimum: &str) -> TestCluster {
    let mut world = ordinary_cluster();
    world.running_node("m0", "large", "default");
    let running = json!({ "spec": { "nodeName": "m0" }, "status": { "phase": "Running" } });
    world.pods("web", 1, cpu, &running);
    world.put(&policy(minimum));
    world
}

/// Percentages of use with which nodes were left.
fn left(world: &TestCluster) -> Vec<(i64, i64)> {
    refusals(world)
        .filter_map(|blocker| match blocker {
            DisruptionBlocker::UsedWellEnough {
                percent, minimum, ..
            } => Some((*percent, *minimum)),
            _ => None,
        })
        .collect()
}

#[test]
fn a_node_that_is_used_well_enough_stays_until_the_policy_asks_for_more() {
    let mut world = cluster(1_000, "10%");
    world.pass(30 * 60_000);
    assert_eq!(world.node_types(), ["large"]);
    let left = left(&world);
    assert!(
        left.iter()
            .all(|(percent, minimum)| (10..=13).contains(percent) && *minimum == 10),
        "{left:?}"
    );
    assert!(!left.is_empty());
    world.edit(
        "NodePoolPolicy/team",
        &json!({ "spec": { "disruption": { "minimumUtilization": "20%" } } }),
    );
    world.pass(90_000);
    assert_eq!(world.node_types(), ["small"]);
}

#[test]
fn a_node_that_is_used_less_is_replaced_and_an_empty_one_goes() {
    let mut world = cluster(1_000, "20%");
    world.pass(30 * 60_000);
    assert_eq!(world.node_types(), ["small"]);
    let mut world = cluster(1_000, "10%");
    world.scale_down("web", 1);
    world.pass(30 * 60_000);
    assert!(world.node_types().is_empty(), "{:?}", world.node_types());
}

#[test]
fn drift_does_not_ask() {
    let mut world = cluster(7_000, "10%");
    world.pass(60_000);
    drift(&mut world, "m0");
    world.pass(10 * 60_000);
    assert!(!world.has("Node/m0"));
    assert_eq!(world.node_types(), ["large"]);
}

/// A node with this number of small pods; a smaller one would do and saves about half its price.
fn crowded(pods: u32, least: &str) -> TestCluster {
    let mut world = ordinary_cluster();
    world.running_node("m0", "large", "default");
    let running = json!({ "spec": { "nodeName": "m0" }, "status": { "phase": "Running" } });
    world.pods("web", pods as usize, 300, &running);
    let mut policy = policy("100%");
    policy["spec"]["disruption"] = json!({ "minimumSavingsPerMove": least });
    world.put(&policy);
    world
}

/// What was refused because it saves too little: pods, and what is asked.
fn not_worth_it(world: &TestCluster) -> Vec<(usize, i64)> {
    refusals(world)
        .filter_map(|blocker| match blocker {
            DisruptionBlocker::SavesTooLittle { pods, least, .. } => Some((*pods, least.0)),
            _ => None,
        })
        .collect()
}

#[test]
fn moves_are_made_only_for_what_the_policy_asks_per_pod() {
    let price = |world: &TestCluster| world.bill();
    let mut world = crowded(9, "0.000001");
    let before = price(&world);
    world.pass(30 * 60_000);
    let saved = before - price(&world);
    assert!(saved > 0, "{:?}", world.node_types());
    let dollars = |micro: i64| format!("{}.{:06}", micro / 1_000_000, micro % 1_000_000);

    // Exactly what is saved is enough, a millionth more per pod is not.
    let mut world = crowded(9, &dollars(saved / 9));
    world.pass(30 * 60_000);
    assert_eq!(price(&world), before - saved);
    let mut world = crowded(9, &dollars(saved / 9 + 1));
    world.pass(30 * 60_000);
    assert_eq!(world.node_types(), ["large"]);
    assert_eq!(not_worth_it(&world).first(), Some(&(9, saved / 9 + 1)));
    // Empty, it goes.
    world.scale_down("web", 9);
    world.pass(30 * 60_000);
    assert!(world.node_types().is_empty(), "{:?}", world.node_types());
}

/// The first node is on-demand and paid for, the second is spot; an on-demand node would do for its pod, and nothing else costs less.
#[test]
fn what_is_paid_for_is_free_when_the_node_that_uses_it_is_gone() {
    let types = vec![
        instance_type("paid", 2, &[("on-demand", 200)]),
        instance_type("large", 8, &[("spot", 160)]),
    ];
    let mut world = automatic_cluster(types, Settings::default());
    world.put(&json!({
        "kind": "NodePoolPolicy",
        "metadata": { "name": "team", "generation": 1, "creationTimestamp": "2025-01-01T00:00:00Z" },
        "spec": { "nodePools": ["default"], "commitments": [{ "name": "ri", "instances": 1 }] },
    }));
    world.running_node("m0", "paid", "default");
    world.running_node("m1", "large", "default");
    let running = json!({ "spec": { "nodeName": "m1" }, "status": { "phase": "Running" } });
    world.pods("web", 1, 500, &running);
    // It takes half an hour to drain.
    world.delete("NodeClaim/m0");
    world.plan_drain("m0", 30 * 60_000);
    world.pass(25 * 60_000);
    assert_eq!(world.names("NodeClaim"), ["m0", "m1"]);
    world.pass(20 * 60_000);
    assert_eq!(world.node_types(), ["paid"], "it was worth to wait for");
}
