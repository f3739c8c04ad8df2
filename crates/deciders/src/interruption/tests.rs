//! The decider among those of nodes.

use serde_json::json;

use crate::tests::cluster;
use mortise_apis::labels;
use mortise_cloudprovider::InterruptionKind;
use mortise_engine::record::Verdict;

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
