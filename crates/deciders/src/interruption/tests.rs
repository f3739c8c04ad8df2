//! The decider among those of nodes.

use serde_json::json;

use crate::tests::cluster;
use mortise_apis::labels;
use mortise_apis::values::after;
use mortise_cloudprovider::{InterruptionKind, InterruptionNotice};
use mortise_engine::metric_event::MetricEvent;
use mortise_engine::record::Verdict;
use mortise_engine::write::render::annotation_time;
use mortise_sim::test_cluster::TestCluster;

#[test]
fn an_interruption_fences_deletes_and_then_acknowledges() {
    let mut world = cluster();
    let node = world.up("c", &json!({}));
    world.pod("web", &node, &json!({}));
    world.notice("m1", InterruptionKind::SpotInterruption, "i-00000001");
    world.settle();
    assert!(
        world.get("NodeClaim/c")["metadata"]
            .get("deletionTimestamp")
            .is_some()
    );
    assert_eq!(
        world.get("NodeClaim/c")["metadata"]["annotations"][labels::FENCE],
        "interruption"
    );
    assert!(world.snapshot().ledger.fence("c").is_some());
    let at = |what: &str| world.done.iter().position(|each| each == what).unwrap();
    assert!(at("delete nodeclaim/c") < at("acknowledge "));
    assert_eq!(world.acknowledged(), ["m1"]);
    let reasons: Vec<(&str, String)> = world
        .events()
        .map(|event| (&*event.reason, event.target.to_string()))
        .filter(|(reason, _)| reason.contains("nterrupt"))
        .collect();
    let target = format!("node/{node}");
    assert_eq!(
        reasons,
        [
            ("SpotInterrupted", "nodeclaim/c".to_owned()),
            ("SpotInterrupted", target.clone()),
            ("TerminatingOnInterruption", "nodeclaim/c".to_owned()),
            ("TerminatingOnInterruption", target),
        ]
    );
    assert!(world.verdicts("nodeclaim/c").contains(&Verdict::Notified));

    // The same message again, and others about the same instance, change nothing.
    world.notice("m2", InterruptionKind::SpotInterruption, "i-00000001");
    world.notice("m3", InterruptionKind::Terminated, "i-00000001");
    world.settle();
    assert_eq!(world.acknowledged(), ["m1", "m2", "m3"]);
    assert_eq!(
        world
            .done
            .iter()
            .filter(|each| *each == "delete nodeclaim/c")
            .count(),
        1
    );
    world.pass(30_000);
    assert!(!world.has("NodeClaim/c") && world.instances().is_empty());
}

#[test]
fn a_recommendation_is_only_told_and_strangers_are_acknowledged() {
    let mut world = cluster();
    world.up("c", &json!({}));
    world.notice(
        "m1",
        InterruptionKind::RebalanceRecommendation,
        "i-00000001",
    );
    world.notice("m2", InterruptionKind::SpotInterruption, "i-00000099");
    world.notice("m3", InterruptionKind::Other, "i-00000001");
    world.settle();
    assert_eq!(world.acknowledged(), ["m1", "m2", "m3"]);
    assert!(
        world
            .event("SpotRebalanceRecommendation")
            .is_some_and(|event| !event.warning)
    );
    assert!(
        world.get("NodeClaim/c")["metadata"]
            .get("deletionTimestamp")
            .is_none()
    );
}

#[test]
fn killed_before_the_deletion_was_answered_the_message_is_not_acknowledged() {
    let mut world = cluster();
    world.up("c", &json!({}));
    world.notice("m1", InterruptionKind::SpotInterruption, "i-00000001");
    world.answers.crash_after = Some("delete");
    world.settle();
    assert!(world.acknowledged().is_empty());
    world.notice("m1-again", InterruptionKind::SpotInterruption, "i-00000001");
    world.settle();
    assert_eq!(world.acknowledged(), ["m1-again"]);
}

fn polled(world: &mut TestCluster, kind: InterruptionKind) {
    world.send_notice(InterruptionNotice {
        id: None,
        kind,
        instances: vec!["i-00000001".into()],
        sent: None,
        starts: None,
    });
    world.settle();
}

#[test]
fn a_failed_status_ends_the_grace_period_and_counts_once() {
    let mut world = cluster();
    let node = world.up("c", &json!({ "terminationGracePeriod": "48h" }));
    world.pod("web", &node, &json!({}));
    polled(&mut world, InterruptionKind::SystemStatus);
    let meta = world.get("NodeClaim/c")["metadata"].clone();
    assert!(meta["deletionTimestamp"].is_string());
    let deadline = meta["annotations"][labels::TERMINATION_TIMESTAMP].as_str();
    assert_eq!(deadline, Some(&*annotation_time(world.now())));
    assert_eq!(meta["annotations"][labels::INTERRUPTION], "system_status");
    let told = |world: &TestCluster| world.events_of("InstanceUnhealthy").len();
    assert_eq!(told(&world), 2);
    polled(&mut world, InterruptionKind::SystemStatus);
    polled(&mut world, InterruptionKind::InstanceStatus);
    let counted = |category| MetricEvent::InstanceUnhealthy { category };
    assert_eq!(
        world.tallies,
        [counted("SystemStatus"), counted("InstanceStatus")]
    );
    assert_eq!(told(&world), 2, "a poll says the same until it is over");
    assert!(world.acknowledged().is_empty(), "nothing to acknowledge");
}

#[test]
fn a_drain_under_way_is_forced_by_a_failed_status() {
    let mut world = cluster();
    let node = world.up("c", &json!({}));
    let keeps = json!({ "metadata": { "annotations": { labels::DO_NOT_DISRUPT: "true" } } });
    world.pod("web", &node, &keeps);
    world.notice("m1", InterruptionKind::ScheduledChange, "i-00000001");
    world.pass(60_000);
    assert!(world.has("NodeClaim/c"), "a protected pod holds the drain");
    polled(&mut world, InterruptionKind::InstanceStatus);
    world.pass(60_000);
    assert!(!world.has("NodeClaim/c"));
}

#[test]
fn a_poll_that_goes_on_after_recovery_counts_again() {
    let mut world = cluster();
    world.up("c", &json!({}));
    // Nothing follows from an event that is days ahead but its count.
    let starts = Some(after(world.now(), 72 * 3_600_000));
    let event = InterruptionNotice {
        id: None,
        kind: InterruptionKind::EventStatus,
        instances: vec!["i-00000001".into(), "i-00000099".into()],
        sent: None,
        starts,
    };
    for minutes in [1, 1, 5, 1] {
        world.send_notice(event.clone());
        world.pass(minutes * 60_000);
    }
    assert_eq!(world.tallies.len(), 2, "{:?}", world.tallies);
    assert_eq!(
        world.event("InstanceUnhealthy").map(|event| event.warning),
        Some(true)
    );
    assert!(world.get("NodeClaim/c")["metadata"]["deletionTimestamp"].is_null());
}
