//! No method of disruption keeps another from its turn, however much it is refused.

use crate::automatic_cluster::{drift, ordinary_cluster};
use mortise_engine::record::Verdict;
use mortise_sim::test_cluster::TestCluster;
use serde_json::json;

/// As many as there are simulations in a step, and one more.
const STRANDED: usize = 301;

/// A node that has drifted and whose pod runs nowhere else.
fn stranded(world: &mut TestCluster, name: &str) {
    world.running_node(name, "small", "default");
    world.pods(
        "pinned",
        1,
        500,
        &json!({
            "spec": { "nodeName": name, "nodeSelector": { "kubernetes.io/hostname": name } },
            "status": { "phase": "Running" },
        }),
    );
    drift(world, name);
}

#[test]
fn drifted_nodes_without_a_place_keep_nothing_from_being_consolidated() {
    let mut world = ordinary_cluster();
    let budgets = json!({ "spec": { "disruption": { "budgets": [{ "nodes": "100%" }] } } });
    world.pool("default", &budgets);
    for at in 0..STRANDED {
        stranded(&mut world, &format!("d{at:03}"));
    }
    world.running_node("m", "small", "default");
    let running = json!({ "spec": { "nodeName": "m" }, "status": { "phase": "Running" } });
    world.pods("web", 1, 500, &running);
    world.pass(60_000);
    assert!(!world.has("Node/m"), "its pod fits elsewhere");
    assert_eq!(world.names("Node").len(), STRANDED);
    // All of them were checked, and none of them is checked again and again.
    let refused = world.records_of(Verdict::Refused);
    let subjects: std::collections::BTreeSet<String> = refused
        .iter()
        .map(|record| record.subject.to_string())
        .collect();
    assert!(subjects.len() >= STRANDED, "{subjects:?}");
}
