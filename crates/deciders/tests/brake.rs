//! Nodes that are ready are not disrupted while many others are not.

use crate::automatic_cluster::{drift, nodes_with_a_pod, ordinary_cluster};
use mortise_engine::record::Verdict;
use mortise_planning::reason::{DisruptionBlocker, Reason};
use mortise_sim::test_cluster::TestCluster;
use serde_json::json;

const MINUTE: i64 = 60_000;

/// Nodes `m0`, `m1`, ..., each with a pod that fills a quarter of it.
fn cluster(nodes: usize) -> TestCluster {
    let mut world = ordinary_cluster();
    nodes_with_a_pod(&mut world, nodes, 500);
    world
}

fn set_ready(world: &mut TestCluster, nodes: std::ops::Range<usize>, status: &str) {
    for at in nodes {
        let mut ready = world.true_condition("Ready");
        ready["status"] = json!(status);
        let change = json!({ "status": { "conditions": [ready] } });
        world.edit(&format!("Node/m{at}"), &change);
    }
}

/// What the brake counted: unready nodes, and all.
fn braked(world: &TestCluster) -> Vec<(usize, usize)> {
    let records = world.records_of(Verdict::Blocked);
    let reasons = records.iter().flat_map(|record| &record.reasons);
    let mut counts: Vec<(usize, usize)> = reasons
        .filter_map(|reason| match reason {
            Reason::NotDisrupted(DisruptionBlocker::Braked { unready, nodes }) => {
                Some((*unready, *nodes))
            }
            _ => None,
        })
        .collect();
    counts.dedup();
    counts
}

#[test]
fn ready_nodes_stay_until_others_are_ready_again() {
    let mut world = cluster(9);
    set_ready(&mut world, 0..4, "Unknown");
    // Consolidation would move the pods of those that are not ready first.
    for at in 0..4 {
        let kept =
            json!({ "metadata": { "annotations": { "karpenter.sh/do-not-disrupt": "true" } } });
        world.edit(&format!("Node/m{at}"), &kept);
    }
    world.pass(30 * MINUTE);
    let ready = |world: &TestCluster| {
        (4..9)
            .filter(|at| world.has(&format!("Node/m{at}")))
            .count()
    };
    assert_eq!(ready(&world), 5);
    assert_eq!(braked(&world), [(4, 9)]);
    set_ready(&mut world, 0..4, "True");
    world.pass(30 * MINUTE);
    assert!(ready(&world) < 5, "{:?}", world.node_types());
}

#[test]
fn some_unready_nodes_are_no_reason() {
    let mut world = cluster(4);
    set_ready(&mut world, 0..3, "False");
    world.pass(30 * MINUTE);
    assert_eq!(braked(&world), []);
    assert!(world.node_types().len() < 4, "{:?}", world.node_types());
    // Four of twelve are a third, and not more; four of the eleven that consolidation leaves are.
    let mut world = cluster(12);
    set_ready(&mut world, 0..4, "False");
    world.pass(30 * MINUTE);
    assert_eq!(braked(&world).first(), Some(&(4, 11)));
}

/// A drift that replaces what does not work is what helps.
#[test]
fn nodes_that_are_not_ready_are_replaced_for_drift() {
    let mut world = cluster(6);
    set_ready(&mut world, 0..4, "False");
    for at in 0..6 {
        drift(&mut world, &format!("m{at}"));
    }
    world.pass(MINUTE);
    assert!(!braked(&world).is_empty());
    world.pass(60 * MINUTE);
    let left = (0..6).filter(|at| world.has(&format!("Node/m{at}")));
    assert_eq!(left.count(), 0, "{:?}", world.names("Node"));
}
