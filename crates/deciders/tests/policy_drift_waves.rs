//! Drift in the waves of a NodePoolPolicy: few nodes first, more when the new ones and their pods are ready.

use crate::automatic_cluster::{automatic_cluster, drift, nodes_with_a_pod, ordinary_cluster};
use mortise_engine::metric_event::MetricEvent;
use mortise_engine::record::Verdict;
use mortise_planning::reason::{DisruptionBlocker, Reason, UnprovenCause, UnprovenNode};
use mortise_planning::settings::Settings;
use mortise_sim::test_cluster::{TestCluster, ordinary_types};
use serde_json::{Value, json};

const MINUTE: i64 = 60_000;
/// `readyFor` of the policy.
const READY_FOR: i64 = 2 * MINUTE;

fn policy(first: i64) -> Value {
    json!({
        "kind": "NodePoolPolicy",
        "metadata": { "name": "team", "generation": 1, "creationTimestamp": "2025-01-01T00:00:00Z" },
        "spec": { "nodePools": ["default"], "disruption": { "drift": { "firstWave": first, "readyFor": "2m" } } },
    })
}

/// Nodes `m0`, `m1`, ..., each with a pod that needs most of it, and no consolidation. Budgets allow to disrupt all.
fn cluster(nodes: usize) -> TestCluster {
    let mut world = ordinary_cluster();
    let never = json!({ "spec": { "disruption": { "consolidateAfter": "Never" } } });
    world.pool("default", &never);
    nodes_with_a_pod(&mut world, nodes, 1_500);
    world.pass(5 * MINUTE);
    world
}

fn drift_all(world: &mut TestCluster, nodes: usize) {
    for at in 0..nodes {
        drift(world, &format!("m{at}"));
    }
}

fn with_policy(nodes: usize, first: i64) -> TestCluster {
    let mut world = cluster(nodes);
    world.put(&policy(first));
    drift_all(&mut world, nodes);
    world
}

/// Replacements by wave: those that were launched within half a minute of the one before, and when the first of them was.
fn waves(world: &TestCluster) -> Vec<(usize, i64)> {
    let mut waves: Vec<(usize, i64)> = Vec::new();
    let mut before = i64::MIN;
    for time in world.claim_times() {
        match waves.last_mut() {
            Some((count, _)) if time - before < MINUTE / 2 => *count += 1,
            _ => waves.push((1, time)),
        }
        before = time;
    }
    waves
}

fn sizes(world: &TestCluster) -> Vec<usize> {
    waves(world).into_iter().map(|(count, _)| count).collect()
}

/// What the waves that kept nodes back waited for: under way, limit, and the first of them.
fn held(world: &TestCluster) -> Vec<(i64, i64, Option<UnprovenNode>)> {
    let records = world.records_of(Verdict::Blocked);
    let reasons = records.iter().flat_map(|record| &record.reasons);
    reasons
        .filter_map(|reason| match reason {
            Reason::NotDisrupted(DisruptionBlocker::DriftWave {
                under_way,
                limit,
                waits_for,
                ..
            }) => Some((*under_way, *limit, waits_for.clone())),
            _ => None,
        })
        .collect()
}

/// How often drift was evaluated.
fn evaluations(world: &TestCluster) -> usize {
    let is_drift = |event: &&MetricEvent| {
        matches!(
            event,
            MetricEvent::Eligible {
                reason: "drifted",
                ..
            }
        )
    };
    world.tallies.iter().filter(is_drift).count()
}

/// The only NodeClaim that none of the old nodes has.
fn replacement(world: &TestCluster) -> String {
    let mut names = world.names("NodeClaim");
    names.retain(|name| name.starts_with("default-"));
    let [name] = names.as_slice() else {
        panic!("{names:?}");
    };
    name.clone()
}

#[test]
fn waves_double_while_the_new_nodes_become_ready() {
    let mut world = with_policy(9, 1);
    world.pass(30 * MINUTE);
    assert_eq!(sizes(&world), [1, 1, 2, 4, 1]);
    assert!(!world.names("Node").iter().any(|name| name.starts_with('m')));
    assert_eq!(world.pending(), 0);
    // No wave begins before the one before it was ready for the time of the policy, nor much later.
    let waves = waves(&world);
    for pair in waves.windows(2) {
        let [(_, before), (_, after)] = pair else {
            panic!()
        };
        let between = after - before;
        assert!(between >= READY_FOR, "{waves:?}");
        assert!(between <= READY_FOR + 90_000, "{waves:?}");
    }
    assert!(
        held(&world)
            .iter()
            .all(|(under_way, limit, _)| under_way >= limit)
    );
}

#[test]
fn without_a_policy_the_budgets_alone_count() {
    let mut world = cluster(6);
    drift_all(&mut world, 6);
    world.pass(10 * MINUTE);
    assert_eq!(sizes(&world), [6]);
}

#[test]
fn the_first_wave_may_be_larger() {
    let mut world = with_policy(9, 3);
    world.pass(20 * MINUTE);
    assert_eq!(sizes(&world), [3, 3, 3]);
}

#[test]
fn a_replacement_that_never_gets_ready_ends_the_drift() {
    let mut world = cluster(6);
    world.automation.never_ready = true;
    world.put(&policy(1));
    drift_all(&mut world, 6);
    let before = evaluations(&world);
    world.pass(60 * MINUTE);
    assert_eq!(sizes(&world), [1]);
    for at in 0..6 {
        assert!(world.has(&format!("Node/m{at}")), "m{at}");
    }
    let claim = replacement(&world).as_str().into();
    let why = UnprovenCause::NotInitialized;
    let waits_for = Some(UnprovenNode { claim, why });
    assert_eq!(held(&world).last(), Some(&(1, 1, waits_for)));
    // It is said, and neither said nor evaluated all the time.
    let text = "replaces drifted nodes in waves";
    let events = world.events_of("DisruptionBlocked");
    let events = events.iter().filter(|event| event.message.contains(text));
    assert!((2..=62).contains(&events.count()));
    let evaluations = evaluations(&world) - before;
    assert!(evaluations < 60, "{evaluations}");
}

#[test]
fn a_pod_that_is_not_ready_on_the_new_node_ends_the_drift_until_it_is() {
    let mut world = with_policy(6, 1);
    let pod = loop {
        world.pass(1_000);
        let new: Vec<String> = world
            .bound()
            .into_iter()
            .filter(|(node, _)| node.starts_with("default-"))
            .flat_map(|(_, pods)| pods)
            .collect();
        if let [pod] = new.as_slice()
            && world.get(&format!("Pod/{pod}"))["status"]["phase"] == "Running"
        {
            break pod.clone();
        }
    };
    let key = format!("Pod/{pod}");
    let mut broken = world.true_condition("Ready");
    broken["status"] = json!("False");
    world.edit(&key, &json!({ "status": { "conditions": [broken] } }));
    world.pass(60 * MINUTE);
    assert_eq!(sizes(&world), [1]);
    let last = held(&world).pop().unwrap().2.unwrap();
    assert!(
        matches!(&last.why, UnprovenCause::PodNotReady(key) if key.to_string() == pod),
        "{last:?}"
    );
    // A moment of readiness, as between two crashes, is not enough.
    let ready = world.true_condition("Ready");
    world.edit(&key, &json!({ "status": { "conditions": [ready] } }));
    world.pass(READY_FOR - 10_000);
    let mut broken = world.true_condition("Ready");
    broken["status"] = json!("False");
    world.edit(&key, &json!({ "status": { "conditions": [broken] } }));
    world.pass(30 * MINUTE);
    assert_eq!(sizes(&world), [1]);
    let ready = world.true_condition("Ready");
    world.edit(&key, &json!({ "status": { "conditions": [ready] } }));
    world.pass(30 * MINUTE);
    assert_eq!(sizes(&world), [1, 1, 2, 2]);
}

#[test]
fn a_restart_between_waves_changes_nothing() {
    let mut world = with_policy(4, 1);
    while world
        .names("Node")
        .iter()
        .filter(|name| name.starts_with('m'))
        .count()
        == 4
    {
        world.pass(1_000);
    }
    world.restart();
    world.pass(30 * MINUTE);
    assert_eq!(sizes(&world), [1, 1, 2]);
    let waves = waves(&world);
    for pair in waves.windows(2) {
        assert!(pair[1].1 - pair[0].1 >= READY_FOR, "{waves:?}");
    }
}

#[test]
fn nodes_that_are_not_marked_yet_prove_nothing() {
    let mut world = cluster(8);
    world.put(&policy(1));
    // Providers are asked one node after another.
    for at in 0..8 {
        drift(&mut world, &format!("m{at}"));
        world.pass(15_000);
    }
    assert_eq!(sizes(&world), [1]);
    world.pass(60 * MINUTE);
    assert!(!world.names("Node").iter().any(|name| name.starts_with('m')));
    let sizes = sizes(&world);
    assert!(sizes.len() >= 4, "{sizes:?}");
}

#[test]
fn empty_nodes_do_not_wait_for_their_wave() {
    let mut world = cluster(5);
    let budgets = json!([{ "nodes": "0", "reasons": ["Empty"] }, { "nodes": "100%" }]);
    let budgets = json!({ "spec": { "disruption": { "budgets": budgets } } });
    world.pool("default", &budgets);
    world.scale_down("web", 5);
    world.put(&policy(1));
    world.pass(MINUTE);
    assert_eq!(world.names("Node").len(), 5);
    drift_all(&mut world, 5);
    world.pass(MINUTE);
    assert!(world.names("Node").is_empty(), "{:?}", world.names("Node"));
    assert!(world.claim_times().is_empty());
}

#[test]
fn static_pools_have_the_same_waves() {
    let mut settings = Settings::default();
    settings.gates.static_capacity = true;
    let mut world = automatic_cluster(ordinary_types(), settings);
    let nodes = 5;
    world.pool("default", &json!({ "spec": { "replicas": nodes } }));
    for at in 0..nodes {
        world.running_node(&format!("m{at}"), "small", "default");
    }
    world.pass(5 * MINUTE);
    world.put(&policy(1));
    drift_all(&mut world, nodes);
    world.pass(30 * MINUTE);
    assert_eq!(sizes(&world), [1, 1, 2, 1]);
    assert_eq!(world.names("Node").len(), nodes);
}
