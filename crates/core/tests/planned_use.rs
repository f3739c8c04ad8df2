//! What claims will use counts against limits from their plan on, whoever asks and however often the process was killed.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod small_world;

use mortise_core::ledger::PoolUsage;
use serde_json::{Value, json};
use small_world::SmallWorld;

const PLANNED: &str = "mortise.sh/planned-capacity";

fn limited(cpu: &str) -> SmallWorld {
    let mut world = SmallWorld::ordinary();
    world.pool("default", json!({ "spec": { "limits": { "cpu": cpu } } }));
    world
}

/// Runs until more claims are there than before; none of them is launched then.
fn until_claims(world: &mut SmallWorld) -> bool {
    let before = world.names("NodeClaim").len();
    for _ in 0..500 {
        world.run(20);
        if world.names("NodeClaim").len() > before {
            return true;
        }
    }
    false
}

fn usage(world: &mut SmallWorld) -> PoolUsage {
    let snapshot = world.engine.snapshot(world.now);
    PoolUsage::all(&snapshot)
        .remove("default")
        .unwrap_or_default()
}

fn cpus(world: &SmallWorld) -> i64 {
    let all = world.objects.iter();
    let nodes = all.filter(|((kind, _), _)| *kind == "Node");
    nodes
        .map(|(_, node)| {
            let cpu = node["status"]["capacity"]["cpu"].as_str().unwrap();
            cpu.parse::<i64>().unwrap()
        })
        .sum()
}

#[test]
fn killed_between_creation_and_launch_a_process_counts_what_will_be_launched() {
    let mut world = limited("16");
    for _ in 0..6 {
        world.pods("web", 6, 1_000, &json!({}));
        let created = until_claims(&mut world);
        let before = usage(&mut world);
        world.restart();
        assert_eq!(usage(&mut world), before, "a restart forgets nothing");
        if !created {
            break;
        }
    }
    assert!(
        usage(&mut world).capacity.cpu <= 16_000,
        "{:?}",
        usage(&mut world)
    );
    world.run(120_000);
    let cpus = cpus(&world);
    assert!((14..=16).contains(&cpus), "{cpus} CPUs, limit 16");
}

/// A claim of the pool that has no machine, with these annotations and requirements.
fn unlaunched(name: &str, annotations: Value, requirements: Value) -> Value {
    json!({
        "metadata": {
            "name": name, "uid": format!("claim-{name}"), "creationTimestamp": "2023-11-14T22:13:20Z",
            "labels": { "karpenter.sh/nodepool": "default" }, "finalizers": ["karpenter.sh/termination"],
            "annotations": annotations,
        },
        "spec": {
            "nodeClassRef": { "group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default" },
            "requirements": requirements,
        },
    })
}

#[test]
fn without_a_readable_plan_the_most_that_the_claim_allows_counts() {
    let planned = |text: &str| json!({ PLANNED: text });
    let types = |names: &[&str]| json!([{ "key": "node.kubernetes.io/instance-type", "operator": "In", "values": names }]);
    let any = json!([]);
    for (annotations, requirements, cpu) in [
        (planned(r#"{"cpu":"3"}"#), any.clone(), 3_000),
        (json!({}), types(&["small", "medium"]), 4_000),
        (json!({}), any.clone(), 8_000),
        (planned("three"), types(&["small"]), 2_000),
        (planned(r#"{"cpu":"-3"}"#), types(&["small"]), 2_000),
        (planned("{}"), types(&["small"]), 2_000),
        // No type is allowed: whatever the catalogue will offer may be.
        (json!({}), types(&["unheard-of"]), 8_000),
    ] {
        let mut world = limited("100");
        let claim = unlaunched("c", annotations.clone(), requirements.clone());
        world.put("NodeClaim", "c", claim);
        let usage = usage(&mut world);
        assert_eq!(
            (usage.nodes, usage.capacity.cpu),
            (1, cpu),
            "{annotations} {requirements}"
        );
    }
}

#[test]
fn where_no_catalogue_says_what_a_claim_allows_the_pool_is_full() {
    let mut world = limited("100");
    let mut claim = unlaunched("c", json!({}), json!([]));
    claim["spec"]["nodeClassRef"]["name"] = json!("another");
    claim["spec"]["taints"] = json!([{ "key": "for-others", "effect": "NoSchedule" }]);
    world.put("NodeClaim", "c", claim);
    world.pods("web", 1, 1_000, &json!({}));
    world.run(20_000);
    assert_eq!(world.names("NodeClaim"), ["c"]);
    world.remove("NodeClaim", "c");
    world.run(60_000);
    assert_eq!(world.pending(), 0);
}

#[test]
fn a_plan_counts_until_status_says_what_the_machine_has() {
    let mut world = limited("100");
    let annotations = json!({ PLANNED: r#"{"cpu":"8","memory":"32Gi"}"# });
    world.put("NodeClaim", "c", unlaunched("c", annotations, json!([])));
    let id = json!({ "status": { "providerID": "kwok://c" } });
    world.change("NodeClaim", "c", &id);
    assert_eq!(usage(&mut world).capacity.cpu, 8_000);
    let capacity = json!({ "status": { "capacity": { "cpu": "2", "memory": "8Gi" } } });
    world.change("NodeClaim", "c", &capacity);
    let usage = usage(&mut world);
    assert_eq!((usage.nodes, usage.capacity.cpu), (1, 2_000));
}
