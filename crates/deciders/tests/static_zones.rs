//! A NodePoolPolicy balances the zones of static NodePools too, as they grow and as their nodes are replaced.

use mortise_deciders::{DisruptionDecider, StaticCapacityDecider};
use mortise_engine::decider::Decider;
use mortise_planning::settings::Settings;
use mortise_sim::test_cluster::{TestCluster, ordinary_types};
use serde_json::{Value, json};

use crate::automatic_cluster::drift;

const MINUTE: i64 = 60_000;
const ZONE: &str = "topology.kubernetes.io/zone";

fn deciders(_: &Settings) -> Vec<Box<dyn Decider>> {
    vec![
        Box::new(StaticCapacityDecider::new()),
        Box::new(DisruptionDecider::new()),
    ]
}

/// Static NodePools of these names without nodes, and a policy for all of them that asks for these zones.
fn cluster(pools: &[&str], zones: Option<Value>) -> TestCluster {
    let mut settings = Settings::default();
    settings.gates.static_capacity = true;
    let mut world = TestCluster::with_types(deciders, settings, ordinary_types());
    world.put_automatic_pool();
    if let Some(zones) = zones {
        world.put(&json!({
            "kind": "NodePoolPolicy",
            "metadata": { "name": "team", "generation": 1, "creationTimestamp": "2025-01-01T00:00:00Z" },
            "spec": { "nodePools": pools, "scaling": { "zoneBalance": zones } },
        }));
    }
    for pool in pools {
        world.pool(pool, &json!({ "spec": { "replicas": 0 } }));
    }
    world.pass(MINUTE);
    world
}

fn scale(world: &mut TestCluster, pool: &str, replicas: i64) {
    let generation = world.get(&format!("NodePool/{pool}"))["metadata"]["generation"].as_i64();
    let generation = generation.unwrap_or(1) + 1;
    let edit =
        json!({ "metadata": { "generation": generation }, "spec": { "replicas": replicas } });
    world.edit(&format!("NodePool/{pool}"), &edit);
}

/// Nodes in zones `a` and `b`.
fn nodes(world: &TestCluster) -> (usize, usize) {
    let zones: Vec<Value> = world
        .names("Node")
        .iter()
        .map(|name| world.get(&format!("Node/{name}"))["metadata"]["labels"][ZONE].clone())
        .collect();
    let of = |zone: &str| zones.iter().filter(|each| *each == zone).count();
    (of("a"), of("b"))
}

#[test]
fn nodes_of_static_pools_go_to_the_zone_with_the_fewest() {
    for (zones, expected) in [(None, (6, 0)), (Some(json!({})), (3, 3))] {
        let mut world = cluster(&["default"], zones.clone());
        scale(&mut world, "default", 6);
        world.pass(5 * MINUTE);
        assert_eq!(nodes(&world), expected, "{zones:?}");
    }
}

#[test]
fn pools_that_grow_at_once_are_balanced_together() {
    let mut world = cluster(&["default", "other"], Some(json!({})));
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
    let mut world = cluster(&["default"], Some(json!({})));
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
