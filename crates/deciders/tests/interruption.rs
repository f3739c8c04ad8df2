//! Interruptions with time: the replacement comes first, and the drain when it is ready or when time requires it.

use jiff::Timestamp;
use mortise_apis::labels;
use mortise_apis::values::after;
use mortise_cloudprovider::{InterruptionKind, InterruptionNotice};
use mortise_deciders::{DisruptionDecider, InterruptionDecider, ProvisioningDecider};
use mortise_engine::decider::Decider;
use mortise_planning::settings::{RebalancePolicy, Settings};
use mortise_sim::test_cluster::{TestCluster, ordinary_types};
use serde_json::{Value, json};

const HOUR_MS: i64 = 3_600_000;

fn deciders(_: &Settings) -> Vec<Box<dyn Decider>> {
    vec![
        Box::new(InterruptionDecider::new()),
        Box::new(ProvisioningDecider::new()),
        Box::new(DisruptionDecider::new()),
    ]
}

/// A node `m1` of 8 CPUs, which a pod nearly fills.
fn cluster(settings: Settings) -> TestCluster {
    let mut world = TestCluster::with_types(deciders, settings, ordinary_types());
    world.put_automatic_pool();
    world.running_node("m1", "large", "default");
    world.pods("web", 1, 7_000, &json!({}));
    world.pass(30_000);
    assert_eq!(world.bound()["m1"].len(), 1);
    world
}

fn send(world: &mut TestCluster, kind: InterruptionKind, starts: Option<Timestamp>) {
    let notice = InterruptionNotice {
        id: Some("m".into()),
        kind,
        instances: vec!["m1".into()],
        sent: None,
        starts,
    };
    world.send_notice(notice);
    world.settle();
}

fn is_going(world: &TestCluster) -> bool {
    !world.has("NodeClaim/m1")
        || world.get("NodeClaim/m1")["metadata"]["deletionTimestamp"].is_string()
}

fn annotation<'a>(world: &'a TestCluster, key: &str) -> &'a Value {
    &world.get("NodeClaim/m1")["metadata"]["annotations"][key]
}

/// The other node exists and is ready.
fn has_replacement(world: &TestCluster) -> bool {
    world.names("Node").iter().any(|name| name != "m1")
}

/// Passes time until the claim goes; asserts that the replacement was ready by then.
fn wait_for_replacement(world: &mut TestCluster) {
    for _ in 0..600 {
        if is_going(world) {
            assert!(
                has_replacement(world),
                "drained before its replacement was ready"
            );
            return;
        }
        world.pass(500);
    }
    panic!("never drained: {:?}", world.done);
}

#[test]
fn a_change_that_is_days_ahead_waits_and_then_is_replaced_first() {
    let mut world = cluster(Settings::default());
    let starts = after(world.now(), 72 * HOUR_MS);
    send(&mut world, InterruptionKind::ScheduledChange, Some(starts));
    let stored = annotation(&world, labels::INTERRUPTION).as_str().unwrap();
    assert!(stored.starts_with("scheduled_change 20"), "{stored}");
    assert_eq!(world.acknowledged(), ["m"], "it is stored");
    world.pass(47 * HOUR_MS);
    assert!(!is_going(&world) && annotation(&world, labels::FENCE).is_null());
    // A restart forgets the message, and the claim remembers it.
    world.restart();
    world.pass(HOUR_MS - 60_000);
    assert!(!is_going(&world) && !has_replacement(&world));
    world.pass(31_000);
    wait_for_replacement(&mut world);
    assert_eq!(annotation(&world, labels::FENCE), "interruption");
    let taints = world.get("Node/m1")["spec"]["taints"].to_string();
    assert!(taints.contains(labels::DISRUPTED_TAINT), "{taints}");
    world.pass(60_000);
    assert_eq!(world.pending(), 0);
    assert!(!world.has("NodeClaim/m1"));
    assert_eq!(world.events_of("TerminatingOnInterruption").len(), 2);
}

#[test]
fn time_that_runs_out_ends_the_wait() {
    let mut world = cluster(Settings::default());
    world.automation.no_capacity = true;
    let starts = after(world.now(), HOUR_MS);
    send(&mut world, InterruptionKind::EventStatus, Some(starts));
    assert_eq!(annotation(&world, labels::FENCE), "interruption");
    world.pass(50 * 60_000);
    assert!(!is_going(&world), "no replacement, and time is left");
    world.pass(5 * 60_000);
    assert!(is_going(&world), "the drain takes the rest");
}

#[test]
fn a_node_without_pods_needs_no_replacement() {
    let mut world = TestCluster::with_types(deciders, Settings::default(), ordinary_types());
    world.put_automatic_pool();
    world.running_node("m1", "large", "default");
    let starts = after(world.now(), HOUR_MS);
    send(
        &mut world,
        InterruptionKind::CapacityBlockExpiration,
        Some(starts),
    );
    assert!(is_going(&world));
    assert!(world.event("CapacityBlockExpiring").is_some());
}

#[test]
fn recommendations_follow_the_pool() {
    let settings = |rebalance| Settings {
        rebalance,
        ..Settings::default()
    };
    let kind = InterruptionKind::RebalanceRecommendation;
    let mut ignored = cluster(settings(RebalancePolicy::Ignore));
    send(&mut ignored, kind, None);
    ignored.pass(10 * 60_000);
    assert!(!is_going(&ignored) && annotation(&ignored, labels::INTERRUPTION).is_null());
    assert!(ignored.event("SpotRebalanceRecommendation").is_some());

    let mut cordoned = cluster(settings(RebalancePolicy::Cordon));
    send(&mut cordoned, kind, None);
    cordoned.pass(10 * 60_000);
    assert!(!is_going(&cordoned) && !has_replacement(&cordoned));
    assert_eq!(annotation(&cordoned, labels::FENCE), "rebalance");
    let taints = cordoned.get("Node/m1")["spec"]["taints"].to_string();
    assert!(taints.contains(labels::DISRUPTED_TAINT), "{taints}");

    let mut replaced = cluster(settings(RebalancePolicy::Ignore));
    let own = json!({ "metadata": { "annotations": { labels::REBALANCE_RECOMMENDATION: "replace-first" } } });
    replaced.edit("NodePool/default", &own);
    send(&mut replaced, kind, None);
    assert!(!is_going(&replaced));
    wait_for_replacement(&mut replaced);

    let mut misspelled = cluster(settings(RebalancePolicy::Ignore));
    let own =
        json!({ "metadata": { "annotations": { labels::REBALANCE_RECOMMENDATION: "replace" } } });
    misspelled.edit("NodePool/default", &own);
    send(&mut misspelled, kind, None);
    let told = &misspelled
        .event("InvalidInterruptionSetting")
        .unwrap()
        .message;
    assert!(told.contains("replace-first"), "{told}");
}

#[test]
fn spot_interruptions_are_replaced_at_once() {
    let mut world = cluster(Settings::default());
    send(&mut world, InterruptionKind::SpotInterruption, None);
    assert!(is_going(&world));
    let before = world.claim_times().len();
    world.pass(2_000);
    assert_eq!(
        world.claim_times().len(),
        before + 1,
        "the purchase does not wait for the drain"
    );
}
