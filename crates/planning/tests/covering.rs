//! Which nodes are selected for pods that nothing ties to a node: pools, weights, limits, zones and numbers.

use std::collections::BTreeMap;

use crate::one_pool::{World, instance_type, node, pod, pool};
use mortise_apis::labels;
use mortise_apis::values::money::MicroUsd;
use mortise_planning::scheduling::LaunchPlan;
use mortise_state::snapshot::PoolUsage;
use serde_json::{Value, json};

const TAINT: &str = "example.com/spot";

fn of(way: &str) -> Value {
    json!([{"key": labels::CAPACITY_TYPE, "operator": "In", "values": [way]}])
}

/// Spot nodes, tainted, are preferred by weight for pods that tolerate them.
fn spot_and_on_demand() -> World {
    let taints = json!({"spec": {"weight": 10, "template": {"spec": {"taints": [{"key": TAINT, "effect": "NoSchedule"}]}}}});
    World::new().pools([
        pool("on-demand", of("on-demand"), json!({"spec": {"weight": 1}})),
        pool("spot", of("spot"), taints),
    ])
}

fn tolerant() -> Value {
    json!({"tolerations": [{"key": TAINT, "operator": "Exists"}]})
}

/// This number of pods of an app, each with this CPU.
fn pods(mut world: World, app: &str, count: usize, cpu: &str, more: &Value) -> World {
    for at in 0..count {
        world = world.pending(pod(&format!("{app}-{at:02}"), app, cpu, more.clone()));
    }
    world
}

/// By pool: nodes, and pods of each app.
fn counts(plan: &LaunchPlan) -> BTreeMap<String, (usize, BTreeMap<String, usize>)> {
    let mut counts: BTreeMap<String, (usize, BTreeMap<String, usize>)> = BTreeMap::new();
    for claim in &plan.claims {
        let own = counts.entry(claim.pool.to_string()).or_default();
        own.0 += 1;
        for pod in &claim.pods {
            let app = pod.key.name.split('-').next().unwrap().to_owned();
            *own.1.entry(app).or_default() += 1;
        }
    }
    counts
}

fn placed(plan: &LaunchPlan) -> Vec<String> {
    let pods = plan.claims.iter().flat_map(|claim| &claim.pods);
    let mut names: Vec<String> = pods.map(|pod| pod.key.name.to_string()).collect();
    names.sort_unstable();
    names
}

#[test]
fn pods_that_may_be_on_spot_do_not_fill_on_demand_nodes() {
    let world = pods(spot_and_on_demand(), "firm", 6, "3", &json!({}));
    let world = pods(world, "cheap", 21, "2900m", &tolerant());
    let (filled, covered) = (world.repacked(0).0, world.solve().0);
    assert_eq!(placed(&filled), placed(&covered));
    let before = counts(&filled)["on-demand"].1["cheap"];
    assert!(
        before > 0,
        "first-fit puts some of them on nodes that are open"
    );
    assert!(
        covered.price() < filled.price(),
        "{:?} {:?}",
        covered.price(),
        filled.price()
    );
    let after = counts(&covered);
    assert!(
        after["spot"].1["cheap"] > counts(&filled)["spot"].1["cheap"],
        "{after:?}"
    );
    assert_eq!(after["on-demand"].1["firm"], 6);
}

#[test]
fn a_pool_of_less_weight_is_not_selected_for_its_price() {
    let world = World::new().pools([
        pool(
            "expensive",
            of("on-demand"),
            json!({"spec": {"weight": 10}}),
        ),
        pool("cheap", of("spot"), json!({"spec": {"weight": 1}})),
    ]);
    let plan = pods(world, "a", 30, "3", &json!({})).solve().0;
    assert_eq!(counts(&plan).keys().collect::<Vec<_>>(), ["expensive"]);
}

#[test]
fn of_pools_of_one_weight_the_cheaper_is_selected() {
    let world = World::new().pools([
        pool("on-demand", of("on-demand"), json!({})),
        pool("spot", of("spot"), json!({})),
    ]);
    let world = pods(world, "a", 30, "3", &json!({}));
    let plan = world.solve().0;
    assert_eq!(
        counts(&plan).keys().collect::<Vec<_>>(),
        ["spot"],
        "{:?}",
        plan.price()
    );
}

#[test]
fn limits_hold() {
    for limits in [json!({"nodes": "3"}), json!({"cpu": "50"})] {
        let world = World::new().pools([
            pool("on-demand", of("on-demand"), json!({})),
            pool("spot", of("spot"), json!({"spec": {"limits": limits}})),
        ]);
        let plan = pods(world, "a", 40, "3", &json!({})).solve().0;
        let own = counts(&plan);
        assert_eq!(placed(&plan).len(), 40);
        let nodes = own.get("spot").map_or(0, |own| own.0);
        assert!(nodes <= 3, "{limits}: {own:?}");
    }
}

/// Large nodes at twice the price for their size, which are only selected where nothing else holds a pod.
fn large_ones_are_expensive() -> World {
    let mut world = World::new();
    world.types = vec![instance_type(4, "amd64"), instance_type(16, "amd64")];
    for offering in &mut world.types[1].offerings {
        offering.price = offering.price.map(|price| MicroUsd(price.0 * 2));
    }
    world
}

#[test]
fn more_nodes_are_selected_when_each_saves_its_charge() {
    let world = pods(large_ones_are_expensive(), "a", 24, "3", &json!({}));
    let (filled, covered) = (world.repacked(0).0, world.solve().0);
    assert_eq!(placed(&filled), placed(&covered));
    assert!(covered.claims.len() > filled.claims.len());
    assert_eq!(
        covered.price(),
        Some(MicroUsd(24 * 4 * 400)),
        "a small node for each"
    );
    let again = world.solve().0;
    assert_eq!(
        again.claims.len(),
        covered.claims.len(),
        "same question, same answer"
    );
}

#[test]
fn a_pool_over_its_limits_keeps_no_other_pool_from_covering() {
    let over = json!({
        "metadata": {"labels": {labels::NODEPOOL: "over"}},
        "spec": {"taints": [{"key": "example.com/closed", "effect": "NoSchedule"}]},
    });
    let alone = pods(large_ones_are_expensive(), "a", 24, "3", &json!({}));
    let with_other = pods(large_ones_are_expensive(), "a", 24, "3", &json!({}))
        .pool(pool(
            "over",
            of("on-demand"),
            json!({"spec": {"limits": {"cpu": "4"}}}),
        ))
        .node(node("eight-cpus", "z1", over));
    let snapshot = with_other.snapshot();
    let usage = &PoolUsage::all(&snapshot)["over"];
    assert_eq!((usage.nodes, usage.capacity.cpu), (1, 8_000));
    let plan = with_other.solve().0;
    assert_eq!(counts(&plan).keys().collect::<Vec<_>>(), ["general"]);
    assert_eq!(plan.price(), alone.solve().0.price());
    assert!(plan.price() < with_other.repacked(0).0.price());
}

#[test]
fn pods_that_are_spread_stay_in_their_zones() {
    let spread = |app: &str| {
        json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": labels::TOPOLOGY_ZONE, "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": app}}}]})
    };
    let world = pods(large_ones_are_expensive(), "a", 18, "3", &spread("a"));
    let world = pods(world, "b", 9, "900m", &spread("b"));
    let (filled, covered) = (world.repacked(0).0, world.solve().0);
    assert!(covered.price() < filled.price());
    for app in ["a", "b"] {
        let mut zones: BTreeMap<String, usize> = BTreeMap::new();
        for claim in &covered.claims {
            let own = claim.requirements.get(labels::TOPOLOGY_ZONE).unwrap();
            assert_eq!(own.values().len(), 1);
            let here = claim
                .pods
                .iter()
                .filter(|pod| pod.key.name.starts_with(app))
                .count();
            *zones.entry(own.values()[0].to_string()).or_default() += here;
        }
        let expected = placed(&covered)
            .iter()
            .filter(|name| name.starts_with(app))
            .count()
            / 3;
        assert!(
            zones.len() == 3 && zones.values().all(|count| *count == expected),
            "{zones:?}"
        );
    }
}
