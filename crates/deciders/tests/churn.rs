//! Consolidation and workloads whose pods come and go.

use crate::automatic_cluster::{automatic_cluster, ordinary_cluster, refusals};
use mortise_planning::reason::DisruptionBlocker;
use mortise_planning::settings::Settings;
use mortise_sim::test_cluster::{TestCluster, instance_type, ordinary_types};
use serde_json::json;

const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;

/// A node of this type with six pods, and three more of the same workload that came later. A node of half the size would do.
fn cluster(mut world: TestCluster, of: &str, later: i64) -> TestCluster {
    let protection = |text: Option<&str>| json!({ "metadata": { "annotations": { "karpenter.sh/do-not-disrupt": text } } });
    let running = json!({ "spec": { "nodeName": "m0" }, "status": { "phase": "Running" } });
    world.running_node("m0", of, "default");
    world.pods("web", 6, 400, &running);
    world.edit("Node/m0", &protection(Some("true")));
    world.pass(later);
    world.pods("web", 3, 400, &running);
    world.pass(MINUTE);
    world.edit("Node/m0", &protection(None));
    world
}

/// What was refused because it would not pay for the evictions: pods, and their workload.
fn unpaid(world: &TestCluster) -> Vec<(usize, &str)> {
    refusals(world)
        .filter_map(|blocker| match blocker {
            DisruptionBlocker::PaysForTooLittle { pods, workload, .. } => {
                Some((*pods, workload.as_str()))
            }
            _ => None,
        })
        .collect()
}

#[test]
fn pods_that_came_with_the_first_ones_move_for_any_savings() {
    let mut world = cluster(ordinary_cluster(), "large", 40 * MINUTE);
    world.pass(2 * HOUR);
    assert_eq!(world.node_types(), ["medium"]);
    assert_eq!(unpaid(&world), []);
}

#[test]
fn pods_of_a_churning_workload_move_when_the_savings_are_expected_to_last() {
    let mut world = cluster(ordinary_cluster(), "large", 2 * HOUR);
    world.pass(HOUR);
    assert_eq!(world.node_types(), ["large"]);
    assert_eq!(unpaid(&world).first(), Some(&(9, "default/web")));
    // The longer the load has stayed the same, the longer it is expected to last.
    world.pass(16 * HOUR);
    assert_eq!(world.node_types(), ["medium"]);
    assert!(world.violations().is_empty());
}

#[test]
fn a_restart_changes_nothing() {
    let mut world = cluster(ordinary_cluster(), "large", 2 * HOUR);
    world.pass(30 * MINUTE);
    world.restart();
    world.pass(30 * MINUTE);
    assert_eq!(world.node_types(), ["large"]);
    world.pass(16 * HOUR);
    assert_eq!(world.node_types(), ["medium"]);
}

#[test]
fn an_empty_node_goes_whatever_its_workload_did() {
    let mut world = cluster(ordinary_cluster(), "large", 2 * HOUR);
    world.scale_down("web", 9);
    world.pass(30 * MINUTE);
    assert!(world.node_types().is_empty(), "{:?}", world.node_types());
}

#[test]
fn without_a_cost_every_pod_moves_for_any_savings() {
    let settings = Settings {
        consolidation_eviction_cost_ms: 0,
        ..Settings::default()
    };
    let mut world = cluster(
        automatic_cluster(ordinary_types(), settings),
        "large",
        2 * HOUR,
    );
    world.pass(HOUR);
    assert_eq!(world.node_types(), ["medium"]);
}

/// A policy of the NodePool with this part about disruption.
fn policy(disruption: &serde_json::Value) -> serde_json::Value {
    json!({
        "kind": "NodePoolPolicy",
        "metadata": { "name": "team", "generation": 1, "creationTimestamp": "2025-01-01T00:00:00Z" },
        "spec": { "nodePools": ["default"], "disruption": disruption },
    })
}

#[test]
fn a_policy_says_what_an_eviction_costs() {
    let of = |cost: &str| {
        let mut world = ordinary_cluster();
        world.put(&policy(&json!({ "evictionCost": cost })));
        let mut world = cluster(world, "large", 2 * HOUR);
        world.pass(HOUR);
        let soon = world.node_types();
        world.pass(16 * HOUR);
        (soon, world.node_types())
    };
    let (large, medium) = (vec!["large".to_owned()], vec!["medium".to_owned()]);
    assert_eq!(of("0s"), (medium.clone(), medium.clone()));
    assert_eq!(of("1h30m"), (large.clone(), medium));
    assert_eq!(of("48h"), (large.clone(), large));
}

#[test]
fn a_node_that_is_overpaid_is_replaced_at_once() {
    let mut types = ordinary_types();
    types.push(instance_type("costly", 8, &[("on-demand", 1_200)]));
    let world = automatic_cluster(types, Settings::default());
    let mut world = cluster(world, "costly", 2 * HOUR);
    world.pass(30 * MINUTE);
    assert_eq!(world.node_types(), ["medium"]);
}

/// A node with two pods of a workload that may be moved this often, each the more expensive half of what it needs; whether it was
/// consolidated within two hours, and the last refusal.
fn budgeted(allowed: &str, age: i64) -> (bool, Option<String>) {
    moved(ordinary_cluster(), Some(allowed), age)
}

fn moved(mut world: TestCluster, allowed: Option<&str>, age: i64) -> (bool, Option<String>) {
    let running = json!({ "metadata": { "annotations": { "mortise.sh/max-moves-per-day": allowed } },
        "spec": { "nodeName": "m0" }, "status": { "phase": "Running" } });
    world.running_node("m0", "large", "default");
    world.pods("web", 2, 400, &running);
    let protection = |text: Option<&str>| json!({ "metadata": { "annotations": { "karpenter.sh/do-not-disrupt": text } } });
    world.edit("Node/m0", &protection(Some("true")));
    world.pass(age);
    world.edit("Node/m0", &protection(None));
    world.pass(2 * HOUR);
    let refused = refusals(&world)
        .filter(|blocker| matches!(blocker, DisruptionBlocker::MovesUsedUp { .. }))
        .map(ToString::to_string)
        .last();
    (world.node_types() != ["large"], refused)
}

#[test]
fn a_workload_is_moved_as_often_as_it_allows_in_a_day() {
    // Both are older than a day, and both move.
    assert!(budgeted("2", 30 * HOUR).0);
    let (is_moved, refused) = budgeted("1", 30 * HOUR);
    assert!(!is_moved);
    assert_eq!(
        refused.as_deref(),
        Some(
            "2 pods of default/web would be moved, 0 of its pods are younger than a day or about to go, and mortise.sh/max-moves-per-day is 1"
        )
    );
    // Young pods that move count once.
    assert!(budgeted("2", HOUR).0);
    assert!(!budgeted("1", HOUR).0);
    assert!(!budgeted("0", 30 * HOUR).0);
    let (is_moved, refused) = budgeted("often", 30 * HOUR);
    assert!(!is_moved);
    assert!(
        refused
            .unwrap()
            .ends_with("is \"often\", which is not a number: none of them is moved")
    );
}

#[test]
fn a_policy_limits_the_moves_of_workloads_that_say_nothing() {
    let of = |most: i32, allowed: Option<&str>| {
        let mut world = ordinary_cluster();
        world.put(&policy(&json!({ "maxMovesPerDay": most })));
        moved(world, allowed, 30 * HOUR)
    };
    assert!(of(2, None).0);
    let (is_moved, refused) = of(1, None);
    assert!(!is_moved);
    assert_eq!(
        refused.as_deref(),
        Some(
            "2 pods of default/web would be moved, 0 of its pods are younger than a day or about to go, and NodePoolPolicy \"team\" allows 1"
        )
    );
    // The workload knows better.
    assert!(of(1, Some("2")).0);
    assert!(!of(2, Some("1")).0);
}
