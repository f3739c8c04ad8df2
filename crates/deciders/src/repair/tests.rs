//! Stories of nodes that are unhealthy.

use serde_json::{Value, json};

use crate::tests::cluster_with;
use mortise_apis::labels;
use mortise_cloudprovider::RepairPolicy;
use mortise_engine::freshness::WatchState;
use mortise_engine::record::Record;
use mortise_planning::reason::Reason;
use mortise_planning::settings::{FeatureGates, RepairPolicies, Settings};
use mortise_sim::test_cluster::{TestCluster, served};
use mortise_state::resource_kinds::ObjectKind;

const MINUTE: i64 = 60_000;

fn settings() -> Settings {
    let policy = |condition, status, toleration_seconds| RepairPolicy {
        condition,
        status,
        toleration_seconds,
    };
    Settings {
        gates: FeatureGates {
            node_repair: true,
            ..FeatureGates::default()
        },
        repair: vec![RepairPolicies {
            serves: served(),
            policies: vec![
                policy("Ready", "False", 600),
                policy("Ready", "Unknown", 600),
                policy("Gpu", "False", 60),
            ],
        }],
        ..Settings::default()
    }
}

/// A world with a number of nodes that are well.
fn world(nodes: usize) -> TestCluster {
    let mut world = cluster_with(settings());
    for n in 0..nodes {
        world.up(&format!("c{n}"), &json!({}));
    }
    world
}

#[test]
fn an_unhealthy_node_waits_for_a_watch_that_is_old() {
    let mut world = world(5);
    fall(&mut world, &[0], "Ready", "False");
    world.report_watch(ObjectKind::Node, WatchState::Stands);
    world.report_watch(ObjectKind::Node, WatchState::Broke);
    world.pass(20 * MINUTE);
    assert!(world.has("NodeClaim/c0"), "{:?}", world.done);
    let old = |reason: &Reason| matches!(reason, Reason::Outdated(old) if old.kind == "Node");
    let told = |record: &&Record| record.reasons.iter().any(old);
    let told = world.records.iter().filter(told).count();
    assert!((9..=11).contains(&told), "once a minute, not {told} times");
    world.report_watch(ObjectKind::Node, WatchState::Stands);
    world.report_watch(ObjectKind::Node, WatchState::Bookmark(Some(u64::MAX)));
    world.pass(2 * MINUTE);
    assert!(!world.has("NodeClaim/c0"), "{:?}", world.done);
}

/// The nodes' condition takes this status now.
fn fall(world: &mut TestCluster, nodes: &[usize], condition: &str, status: &str) {
    for n in nodes {
        let now = world.now().to_string();
        let mut all: Vec<Value> =
            vec![json!({ "type": condition, "status": status, "lastTransitionTime": now })];
        if condition != "Ready" {
            all.push(json!({ "type": "Ready", "status": "True", "lastTransitionTime": now }));
        }
        world.edit(
            &format!("Node/node-c{n}"),
            &json!({ "status": { "conditions": all } }),
        );
    }
    world.settle();
}

fn annotate(world: &mut TestCluster, key: &str, value: &str) {
    world.edit(
        "NodePool/default",
        &json!({ "metadata": { "annotations": { key: value } } }),
    );
    world.settle();
}

fn going(world: &TestCluster, n: usize) -> bool {
    let claim = world.get(&format!("NodeClaim/c{n}"));
    claim.is_null() || !claim["metadata"]["deletionTimestamp"].is_null()
}

#[test]
fn a_node_that_is_not_ready_for_too_long_is_replaced_and_its_pods_are_not_asked() {
    for status in ["False", "Unknown"] {
        let mut world = world(1);
        world.pod(
            "guarded",
            "node-c0",
            &json!({ "metadata": { "annotations": { labels::DO_NOT_DISRUPT: "true" } } }),
        );
        fall(&mut world, &[0], "Ready", status);
        world.pass(10 * MINUTE - 1_000);
        assert!(!going(&world, 0));
        world.pass(2_000);
        assert!(going(&world, 0), "{status}");
        world.pass(MINUTE);
        assert!(!world.has("NodeClaim/c0") && world.instances().is_empty());
        assert_eq!(world.violations(), [""; 0]);
        let event = world.event("DisruptionTerminating").unwrap();
        assert!(
            event.message.contains("Unhealthy") && event.message.contains("Ready"),
            "{}",
            event.message
        );
    }
}

#[test]
fn a_node_that_recovers_in_time_stays() {
    let mut world = world(1);
    fall(&mut world, &[0], "Ready", "False");
    world.pass(9 * MINUTE);
    fall(&mut world, &[0], "Ready", "True");
    world.pass(30 * MINUTE);
    assert!(!going(&world, 0));
    assert!(
        world.get("NodeClaim/c0")["metadata"]["annotations"]
            .get(labels::TERMINATION_TIMESTAMP)
            .is_none()
    );
}

#[test]
fn the_condition_that_is_due_first_counts() {
    let mut world = world(1);
    fall(&mut world, &[0], "Gpu", "False");
    world.pass(MINUTE - 1_000);
    assert!(!going(&world, 0));
    world.pass(2_000);
    assert!(going(&world, 0));
}

#[test]
fn too_many_at_once_are_left_alone_until_some_recover() {
    // Of ten, two may be unhealthy; of one, one.
    let mut world = world(10);
    fall(&mut world, &[1, 2, 3], "Ready", "False");
    world.pass(11 * MINUTE);
    assert!((0..10).all(|n| !going(&world, n)));
    let about: Vec<String> = world
        .events()
        .filter(|event| event.reason == "NodeRepairBlocked")
        .map(|event| format!("{} {}", event.target, event.message))
        .collect();
    let text = "more than 20% nodes are unhealthy in the nodepool";
    for object in ["node/node-c1", "nodeclaim/c1", "nodepool/default"] {
        assert!(about.contains(&format!("{object} {text}")), "{about:?}");
    }
    fall(&mut world, &[3], "Ready", "True");
    world.pass(MINUTE);
    assert!(going(&world, 1) && going(&world, 2) && !going(&world, 3));
}

#[test]
fn a_pool_has_its_own_limit_time_and_manner() {
    let mut world = world(4);
    annotate(&mut world, labels::REPAIR_MAX_UNHEALTHY, "3");
    annotate(&mut world, labels::REPAIR_TOLERATION_DURATION, "30s");
    annotate(&mut world, labels::REPAIR_MODE, "graceful");
    world.pod(
        "guarded",
        "node-c0",
        &json!({ "metadata": { "annotations": { labels::DO_NOT_DISRUPT: "true" } } }),
    );
    world.pod("other", "node-c1", &json!({}));
    fall(&mut world, &[0, 1, 2], "Ready", "False");
    world.pass(31_000);
    assert!(going(&world, 0) && going(&world, 1) && going(&world, 2));
    world.pass(5 * MINUTE);
    assert!(world.has("NodeClaim/c0"), "its pod is protected");
    assert!(!world.has("NodeClaim/c1"));
    assert!(
        world.done.contains(&"evict pod/default/other".to_owned()),
        "{:?}",
        world.done
    );
}

#[test]
fn off_means_off() {
    let mut world = world(1);
    annotate(&mut world, labels::REPAIR_MODE, "off");
    fall(&mut world, &[0], "Ready", "False");
    world.pass(60 * MINUTE);
    assert!(!going(&world, 0));
    annotate(&mut world, labels::REPAIR_MODE, "forceful");
    world.pass(1_000);
    assert!(going(&world, 0), "switched on again it is long overdue");
    let mut closed = cluster_with(Settings {
        gates: FeatureGates::default(),
        ..settings()
    });
    closed.up("c0", &json!({}));
    fall(&mut closed, &[0], "Ready", "False");
    closed.pass(60 * MINUTE);
    assert!(!going(&closed, 0), "the gate is closed");
}

#[test]
fn settings_that_cannot_be_read_are_said_and_do_not_count() {
    let mut world = world(1);
    for (key, value, part) in [
        (labels::REPAIR_MODE, "gracefull", "did you mean graceful?"),
        (
            labels::REPAIR_TOLERATION_DURATION,
            "soon",
            "must be a duration",
        ),
        (
            labels::REPAIR_MAX_UNHEALTHY,
            "120%",
            "percentage from 0% to 100%",
        ),
    ] {
        annotate(&mut world, key, value);
        let said = world.events().any(|event| {
            event.reason == "InvalidRepairSetting"
                && event.message.contains(part)
                && event.message.contains(key)
        });
        assert!(said, "{key}: {:?}", world.events().collect::<Vec<_>>());
    }
    fall(&mut world, &[0], "Ready", "False");
    world.pass(10 * MINUTE + 1_000);
    assert!(going(&world, 0), "as if nothing was said");
}

#[test]
fn killed_after_any_write_an_unhealthy_node_still_goes() {
    for effect in ["patch", "delete"] {
        let mut world = world(1);
        fall(&mut world, &[0], "Ready", "False");
        world.pass(10 * MINUTE - 1_000);
        world.answers.crash_after = Some(effect);
        world.pass(2 * MINUTE);
        assert!(
            !world.has("NodeClaim/c0") && world.instances().is_empty(),
            "{effect}: {:?}",
            world.done
        );
        assert_eq!(world.violations(), [""; 0]);
    }
}
