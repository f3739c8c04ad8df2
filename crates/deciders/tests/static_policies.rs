//! What a NodePoolPolicy asks of new NodeClaims holds for static NodePools too, as they grow and as their nodes are replaced.

use mortise_deciders::{DisruptionDecider, StaticCapacityDecider};
use mortise_engine::decider::Decider;
use mortise_planning::settings::Settings;
use mortise_sim::test_cluster::{TestCluster, instance_type};
use serde_json::{Value, json};

use crate::automatic_cluster::drift;

const MINUTE: i64 = 60_000;
const ZONE: &str = "topology.kubernetes.io/zone";
const CAPACITY_TYPE: &str = "karpenter.sh/capacity-type";

fn deciders(_: &Settings) -> Vec<Box<dyn Decider>> {
    vec![
        Box::new(StaticCapacityDecider::new()),
        Box::new(DisruptionDecider::new()),
    ]
}

/// Static NodePools of these names without nodes, and a policy for all of them that asks for this.
fn cluster(pools: &[&str], asked: Option<Value>) -> TestCluster {
    let mut settings = Settings::default();
    settings.gates.static_capacity = true;
    let types = vec![instance_type(
        "small",
        2,
        &[("spot", 40), ("on-demand", 100)],
    )];
    let mut world = TestCluster::with_types(deciders, settings, types);
    world.put_automatic_pool();
    if let Some(mut spec) = asked {
        spec["nodePools"] = json!(pools);
        world.put(&json!({
            "kind": "NodePoolPolicy",
            "metadata": { "name": "team", "generation": 1, "creationTimestamp": "2025-01-01T00:00:00Z" },
            "spec": spec,
        }));
    }
    for pool in pools {
        world.pool(pool, &json!({ "spec": { "replicas": 0 } }));
    }
    world.pass(MINUTE);
    world
}

/// Nodes are to be in as many zones as there are.
fn balanced() -> Option<Value> {
    Some(json!({ "scaling": { "zoneBalance": {} } }))
}

fn scale(world: &mut TestCluster, pool: &str, replicas: i64) {
    let generation = world.get(&format!("NodePool/{pool}"))["metadata"]["generation"].as_i64();
    let generation = generation.unwrap_or(1) + 1;
    let edit =
        json!({ "metadata": { "generation": generation }, "spec": { "replicas": replicas } });
    world.edit(&format!("NodePool/{pool}"), &edit);
}

/// How many nodes have each of two values of a label.
fn counts(world: &TestCluster, label: &str, values: [&str; 2]) -> (usize, usize) {
    let all: Vec<Value> = world
        .names("Node")
        .iter()
        .map(|name| world.get(&format!("Node/{name}"))["metadata"]["labels"][label].clone())
        .collect();
    let of = |value: &str| all.iter().filter(|each| *each == value).count();
    (of(values[0]), of(values[1]))
}

/// Nodes in zones `a` and `b`.
fn nodes(world: &TestCluster) -> (usize, usize) {
    counts(world, ZONE, ["a", "b"])
}

/// Nodes that are spot and on-demand.
fn capacity_types(world: &TestCluster) -> (usize, usize) {
    counts(world, CAPACITY_TYPE, ["spot", "on-demand"])
}

#[test]
fn nodes_of_static_pools_go_to_the_zone_with_the_fewest() {
    for (zones, expected) in [(None, (6, 0)), (balanced(), (3, 3))] {
        let mut world = cluster(&["default"], zones.clone());
        scale(&mut world, "default", 6);
        world.pass(5 * MINUTE);
        assert_eq!(nodes(&world), expected, "{zones:?}");
    }
}

#[test]
fn pools_that_grow_at_once_are_balanced_together() {
    let mut world = cluster(&["default", "other"], balanced());
    scale(&mut world, "default", 3);
    scale(&mut world, "other", 3);
    world.pass(5 * MINUTE);
    assert_eq!(nodes(&world), (3, 3));
    // One that comes later makes up for nothing: all is even.
    scale(&mut world, "other", 5);
    world.pass(5 * MINUTE);
    assert_eq!(nodes(&world), (4, 4));
}

#[test]
fn what_replaces_a_drifted_node_keeps_the_balance() {
    let mut world = cluster(&["default"], balanced());
    scale(&mut world, "default", 4);
    world.pass(5 * MINUTE);
    let before = world.names("Node");
    assert_eq!(nodes(&world), (2, 2));
    for name in world.names("NodeClaim") {
        drift(&mut world, &name);
    }
    world.pass(60 * MINUTE);
    let after = world.names("Node");
    assert!(after.iter().all(|name| !before.contains(name)), "{after:?}");
    assert_eq!(nodes(&world), (2, 2));
}

#[test]
fn nodes_of_static_pools_are_on_demand_as_far_as_a_share_asks_for_it() {
    let half = json!({ "scaling": { "onDemand": { "percentageAboveBase": 50 } } });
    for (asked, expected) in [(None, (6, 0)), (Some(half), (3, 3))] {
        let mut world = cluster(&["default"], asked.clone());
        scale(&mut world, "default", 6);
        world.pass(5 * MINUTE);
        assert_eq!(capacity_types(&world), expected, "{asked:?}");
    }
}

#[test]
fn nodes_of_static_pools_use_what_is_paid_for() {
    let two = json!({ "commitments": [{ "name": "ri", "instances": 2 }] });
    let mut world = cluster(&["default", "other"], Some(two));
    scale(&mut world, "default", 1);
    scale(&mut world, "other", 4);
    world.pass(5 * MINUTE);
    assert_eq!(capacity_types(&world), (3, 2));
    // What is free again is used by the next ones.
    scale(&mut world, "other", 0);
    world.pass(10 * MINUTE);
    let left = capacity_types(&world);
    scale(&mut world, "default", 4);
    world.pass(5 * MINUTE);
    assert_eq!(capacity_types(&world), (2, 2), "from {left:?}");
}

#[test]
fn what_replaces_a_drifted_node_keeps_share_and_commitment() {
    for asked in [
        json!({ "scaling": { "onDemand": { "percentageAboveBase": 50 } } }),
        json!({ "commitments": [{ "name": "ri", "instances": 2 }] }),
    ] {
        let mut world = cluster(&["default"], Some(asked.clone()));
        scale(&mut world, "default", 4);
        world.pass(5 * MINUTE);
        let before = world.names("Node");
        assert_eq!(capacity_types(&world), (2, 2), "{asked}");
        for name in world.names("NodeClaim") {
            drift(&mut world, &name);
        }
        world.pass(60 * MINUTE);
        let after = world.names("Node");
        assert!(after.iter().all(|name| !before.contains(name)), "{after:?}");
        assert_eq!(capacity_types(&world), (2, 2), "{asked}");
    }
}
