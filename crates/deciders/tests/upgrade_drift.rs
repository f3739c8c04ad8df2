//! Nodes that drift with an upgrade of the service: it is known how many they are before the first is replaced.

use crate::automatic_cluster::{automatic_cluster, drift, nodes_with_a_pod};
use mortise_apis::labels;
use mortise_engine::record::Verdict;
use mortise_planning::reason::{DisruptionBlocker, Reason};
use mortise_planning::settings::Settings;
use mortise_sim::test_cluster::{TestCluster, ordinary_types};
use serde_json::{Value, json};

const MINUTE: i64 = 60_000;

/// Nodes `m0`, `m1`, ..., each with a pod that needs most of it, and no consolidation. Budgets allow to disrupt all.
fn cluster(nodes: usize, settings: Settings) -> TestCluster {
    let mut world = automatic_cluster(ordinary_types(), settings);
    let never = json!({ "spec": { "disruption": { "consolidateAfter": "Never" } } });
    world.pool("default", &never);
    nodes_with_a_pod(&mut world, nodes, 1_500);
    world.pass(5 * MINUTE);
    world
}

fn annotate(world: &mut TestCluster, upgraded_at: &Value) {
    let annotations = json!({ labels::VERSION: "0.2.0", labels::UPGRADED_AT: upgraded_at });
    world.edit(
        "NodePool/default",
        &json!({ "metadata": { "annotations": annotations } }),
    );
}

/// The service was upgraded now.
fn upgrade(world: &mut TestCluster) {
    let now = world.now().to_string();
    annotate(world, &json!(now));
}

fn drift_first(world: &mut TestCluster, count: usize) {
    for at in 0..count {
        drift(world, &format!("m{at}"));
    }
}

/// How many of the old nodes are left.
fn old(world: &TestCluster) -> usize {
    let names = world.names("Node");
    names.iter().filter(|name| name.starts_with('m')).count()
}

/// What was held: drifted nodes, and all; with whether it was to end by itself.
fn held(world: &TestCluster) -> Vec<(usize, usize, bool)> {
    let records = world.records_of(Verdict::Blocked);
    let reasons = records.iter().flat_map(|record| &record.reasons);
    let mut all: Vec<_> = reasons
        .filter_map(|reason| match reason {
            Reason::NotDisrupted(DisruptionBlocker::UpgradeDrift {
                drifted,
                nodes,
                until,
                ..
            }) => Some((*drifted, *nodes, until.is_some())),
            _ => None,
        })
        .collect();
    all.dedup();
    all
}

#[test]
fn a_cluster_that_drifts_with_an_upgrade_waits_for_a_person() {
    let mut world = cluster(9, Settings::default());
    upgrade(&mut world);
    drift_first(&mut world, 9);
    world.pass(60 * MINUTE);
    assert_eq!(old(&world), 9);
    assert!(world.claim_times().is_empty());
    assert_eq!(held(&world), [(9, 9, true), (9, 9, false)]);
    let events = world.events_of("DisruptionBlocked");
    let last = events.last().unwrap();
    assert_eq!(
        last.message,
        "9 of 9 nodes of NodePool \"default\" drifted right after the upgrade to mortise 0.2.0: they wait until its annotation mortise.sh/upgraded-at is removed"
    );
    annotate(&mut world, &Value::Null);
    world.pass(10 * MINUTE);
    assert_eq!(old(&world), 0);
    assert_eq!(world.pending(), 0);
}

#[test]
fn some_nodes_wait_until_no_others_can_follow() {
    // Three of nine are more than a fifth, and no reason to call a person.
    let mut world = cluster(9, Settings::default());
    upgrade(&mut world);
    drift_first(&mut world, 3);
    world.pass(5 * MINUTE);
    assert_eq!(old(&world), 9);
    world.pass(5 * MINUTE);
    assert_eq!(old(&world), 6);
    assert_eq!(held(&world), [(3, 9, true)]);
}

#[test]
fn a_person_may_agree_at_once() {
    let mut world = cluster(9, Settings::default());
    upgrade(&mut world);
    drift_first(&mut world, 9);
    world.pass(MINUTE);
    assert_eq!(old(&world), 9);
    annotate(&mut world, &Value::Null);
    world.pass(2 * MINUTE);
    assert_eq!(old(&world), 0);
}

#[test]
fn the_share_is_set() {
    let settings = |upgrade_drift_percent| Settings {
        upgrade_drift_percent,
        ..Settings::default()
    };
    // Percentage, nodes that drift of twenty, and how many are left then.
    let table = [
        (20, 4, 16),
        (20, 5, 20),
        (50, 10, 10),
        (50, 11, 20),
        (0, 3, 17),
        (0, 4, 20),
        (100, 20, 0),
    ];
    for (percent, drifting, left) in table {
        let mut world = cluster(20, settings(percent));
        upgrade(&mut world);
        drift_first(&mut world, drifting);
        world.pass(20 * MINUTE);
        assert_eq!(old(&world), left, "{percent} %, {drifting} of 20");
    }
}

#[test]
fn drift_of_another_time_does_not_wait() {
    // Before the upgrade ...
    let mut world = cluster(6, Settings::default());
    let paused = json!({ "metadata": { "annotations": { "mortise.sh/pause": "for now" } } });
    world.edit("NodePool/default", &paused);
    drift_first(&mut world, 6);
    world.pass(MINUTE);
    upgrade(&mut world);
    let resumed = json!({ "metadata": { "annotations": { "mortise.sh/pause": null } } });
    world.edit("NodePool/default", &resumed);
    world.pass(5 * MINUTE);
    assert_eq!(old(&world), 0);
    // ... long after it ...
    let mut world = cluster(6, Settings::default());
    upgrade(&mut world);
    world.pass(7 * MINUTE);
    drift_first(&mut world, 6);
    world.pass(5 * MINUTE);
    assert_eq!(old(&world), 0);
    // ... and of nodes that the new version launched.
    let mut world = cluster(0, Settings::default());
    upgrade(&mut world);
    world.pass(2 * MINUTE);
    nodes_with_a_pod(&mut world, 6, 1_500);
    drift_first(&mut world, 6);
    world.pass(3 * MINUTE);
    assert_eq!(old(&world), 0);
}

#[test]
fn nodes_wait_before_the_node_pool_shows_the_upgrade() {
    let settings = Settings {
        version: "0.2.0".to_owned(),
        ..Settings::default()
    };
    let mut world = cluster(9, settings);
    let before = json!({ "metadata": { "annotations": { labels::VERSION: "0.1.0" } } });
    world.edit("NodePool/default", &before);
    drift_first(&mut world, 9);
    world.pass(5_000);
    upgrade(&mut world);
    world.pass(10 * MINUTE);
    assert_eq!(old(&world), 9);
    assert!(world.claim_times().is_empty());
}
