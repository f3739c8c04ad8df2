//! Pauses stop every decider that takes nodes from running pods, and nothing else.

use serde_json::{Value, json};

use super::{cluster, cluster_with};
use mortise_apis::labels;
use mortise_cloudprovider::{InterruptionKind, RepairPolicy};
use mortise_engine::effect::Effect;
use mortise_planning::settings::{FeatureGates, RebalancePolicy, RepairPolicies, Settings};
use mortise_sim::test_cluster::{GROUP, KIND, TestCluster, served};

const MINUTE: i64 = 60_000;

fn paused(reason: Option<&str>) -> Value {
    json!({ "metadata": { "annotations": { labels::PAUSE: reason } } })
}

/// Settings of a service in the namespace `mortise`.
fn settings() -> Settings {
    Settings {
        namespace: "mortise".to_owned(),
        ..Settings::default()
    }
}

fn put_namespace(world: &mut TestCluster, reason: Option<&str>) {
    world.put(&json!({ "kind": "Namespace", "metadata": { "name": "mortise" } }));
    world.edit("Namespace/mortise", &paused(reason));
}

fn evictions(world: &TestCluster) -> usize {
    let evictions = world.effects.iter();
    evictions
        .filter(|(_, effect)| matches!(&**effect, Effect::Evict { .. }))
        .count()
}

fn is_deleted(world: &TestCluster, claim: &str) -> bool {
    let name = format!("NodeClaim/{claim}");
    !world.has(&name) || world.get(&name)["metadata"]["deletionTimestamp"].is_string()
}

#[test]
fn claims_do_not_expire_while_their_node_pool_or_cluster_is_paused() {
    for on in [
        "Node/node-c",
        "NodeClaim/c",
        "NodePool/default",
        "Namespace/mortise",
    ] {
        let mut world = cluster_with(settings());
        put_namespace(&mut world, None);
        world.up("c", &json!({ "expireAfter": "1h" }));
        world.edit(on, &paused(Some("release of the shop")));
        world.pass(90 * MINUTE);
        assert!(!is_deleted(&world, "c"), "{on}");
        let told = world.event("DisruptionBlocked").unwrap();
        assert!(
            told.message.contains("is paused: release of the shop"),
            "{}",
            told.message
        );
        world.edit(on, &paused(None));
        world.pass(6_000);
        assert!(is_deleted(&world, "c"), "{on}");
    }
}

/// A policy of the NodePool `default` with a pause.
fn pausing_policy(pause: &Value) -> Value {
    json!({
        "kind": "NodePoolPolicy",
        "metadata": { "name": "team", "generation": 1 },
        "spec": { "nodePools": ["default"], "disruption": { "pause": pause } },
    })
}

#[test]
fn claims_do_not_expire_while_the_policy_of_their_node_pool_pauses_it() {
    let mut world = cluster();
    world.up("c", &json!({ "expireAfter": "1h" }));
    world.put(&pausing_policy(&json!({ "reason": "release of the shop" })));
    world.pass(90 * MINUTE);
    world.restart();
    world.pass(MINUTE);
    assert!(!is_deleted(&world, "c"));
    let told = world.event("DisruptionBlocked").unwrap();
    let words = "disruption of the NodePools of NodePoolPolicy team is paused: release of the shop";
    assert!(told.message.contains(words), "{}", told.message);
    // Without an end, it goes on when the manifest has it no more; with one, at that time.
    let until = mortise_apis::values::after(world.now(), 30 * MINUTE).to_string();
    world.put(&pausing_policy(&json!({ "reason": "x", "until": until })));
    world.pass(30 * MINUTE - 1_000);
    assert!(!is_deleted(&world, "c"));
    world.pass(2_000);
    assert!(is_deleted(&world, "c"));
}

#[test]
fn the_pause_of_a_policy_that_is_not_in_force_pauses_nothing() {
    let mut world = cluster();
    let mut older = pausing_policy(&Value::Null);
    older["metadata"] =
        json!({ "name": "older", "generation": 1, "creationTimestamp": "2020-01-01T00:00:00Z" });
    world.put(&older);
    world.put(&pausing_policy(&json!({ "reason": "release of the shop" })));
    world.up("c", &json!({ "expireAfter": "1h" }));
    world.pass(61 * MINUTE);
    assert!(is_deleted(&world, "c"));
}

#[test]
fn a_drain_stops_while_the_policy_of_the_node_pool_pauses_it() {
    let mut world = cluster();
    let node = world.up("c", &json!({}));
    world.pod("web", &node, &json!({}));
    world.put(&pausing_policy(&json!({ "reason": "incident 7" })));
    world.delete("NodeClaim/c");
    world.pass(10 * MINUTE);
    assert_eq!(evictions(&world), 0);
    let told = world.events_of("FailedDraining");
    let remedy = "remove spec.disruption.pause from NodePoolPolicy team";
    assert!(
        told.iter().any(|event| event.message.contains(remedy)),
        "{told:?}"
    );
    world.put(&pausing_policy(&Value::Null));
    world.pass(MINUTE);
    assert!(!world.has("NodeClaim/c") && world.instances().is_empty());
}

#[test]
fn the_namespace_of_others_pauses_nothing_and_a_pool_only_its_own_nodes() {
    let mut world = cluster_with(settings());
    world.put(&json!({ "kind": "Namespace", "metadata": { "name": "shop" } }));
    world.edit("Namespace/shop", &paused(Some("no")));
    world.put(&json!({ "kind": "NodePool", "metadata": { "name": "other" } }));
    world.edit("NodePool/other", &paused(Some("no")));
    world.up("c", &json!({ "expireAfter": "1h" }));
    world.pass(61 * MINUTE);
    assert!(is_deleted(&world, "c"));
}

#[test]
fn a_pause_ends_at_its_time_also_across_a_restart() {
    let mut world = cluster();
    world.up("c", &json!({ "expireAfter": "1h" }));
    let until = mortise_apis::values::after(world.now(), 2 * 60 * MINUTE).to_string();
    world.edit(
        "NodePool/default",
        &json!({ "metadata": { "annotations": { labels::PAUSE: "release", labels::PAUSE_UNTIL: until } } }),
    );
    world.pass(90 * MINUTE);
    world.restart();
    world.pass(29 * MINUTE);
    assert!(!is_deleted(&world, "c"));
    world.pass(MINUTE + 1_000);
    assert!(is_deleted(&world, "c"));
}

#[test]
fn a_drain_that_has_begun_evicts_no_more_and_goes_on_afterwards() {
    let mut world = cluster_with(settings());
    put_namespace(&mut world, None);
    let node = world.up("c", &json!({ "terminationGracePeriod": "10m" }));
    world.pod("web", &node, &json!({}));
    world.edit("Namespace/mortise", &paused(Some("incident 7")));
    world.delete("NodeClaim/c");
    world.pass(30 * MINUTE);
    assert_eq!(evictions(&world), 0);
    assert!(
        world.has("Pod/default/web") && !world.instances().is_empty(),
        "not even when the grace period of the node ends"
    );
    let told = world.events_of("FailedDraining");
    let told = told.iter().find(|event| {
        event
            .message
            .contains("disruption of the cluster is paused: incident 7")
    });
    let remedy = "remove the annotation mortise.sh/pause from namespace mortise";
    assert!(told.unwrap().message.contains(remedy), "{told:?}");
    world.edit("Namespace/mortise", &paused(None));
    world.pass(MINUTE);
    assert!(!world.has("NodeClaim/c") && world.instances().is_empty());
}

#[test]
fn interruptions_are_acted_on_but_recommendations_are_not() {
    let mut world = cluster_with(Settings {
        rebalance: RebalancePolicy::ReplaceFirst,
        ..settings()
    });
    put_namespace(&mut world, Some("incident 7"));
    let node = world.up("c", &json!({}));
    world.pod("web", &node, &json!({}));
    world.notice(
        "m1",
        InterruptionKind::RebalanceRecommendation,
        "i-00000001",
    );
    world.pass(10 * MINUTE);
    assert!(world.get("NodeClaim/c")["metadata"]["annotations"][labels::FENCE].is_null());
    world.notice("m2", InterruptionKind::SpotInterruption, "i-00000001");
    world.pass(MINUTE);
    assert_eq!(evictions(&world), 1);
    assert!(!world.has("NodeClaim/c"));
}

#[test]
fn an_unhealthy_node_is_not_repaired_while_paused() {
    let mut world = cluster_with(Settings {
        gates: FeatureGates {
            node_repair: true,
            ..FeatureGates::default()
        },
        repair: vec![RepairPolicies {
            serves: served(),
            policies: vec![RepairPolicy {
                condition: "Ready",
                status: "False",
                toleration_seconds: 600,
            }],
        }],
        ..settings()
    });
    world.up("c", &json!({}));
    let since = world.now().to_string();
    world.edit(
        "Node/node-c",
        &json!({ "metadata": { "annotations": { labels::PAUSE: "I am looking into it" } },
            "status": { "conditions": [{ "type": "Ready", "status": "False", "lastTransitionTime": since }] } }),
    );
    world.pass(20 * MINUTE);
    assert!(!is_deleted(&world, "c"));
    world.edit("Node/node-c", &paused(None));
    world.pass(6_000);
    assert!(is_deleted(&world, "c"));
}

#[test]
fn a_static_pool_shrinks_by_the_nodes_that_are_not_paused() {
    let mut world = cluster_with(Settings {
        gates: FeatureGates {
            static_capacity: true,
            ..FeatureGates::default()
        },
        ..settings()
    });
    world.put(&json!({ "kind": "NodePool", "metadata": { "name": "fixed" }, "spec": {
        "replicas": 3,
        "template": { "spec": { "nodeClassRef": { "group": GROUP, "kind": KIND, "name": "default" } } },
    }}));
    world.settle();
    let claims: Vec<String> = world.names("NodeClaim");
    for claim in &claims {
        let node = world.join(claim);
        world.settle();
        world.ready(&node);
    }
    world.settle();
    for claim in claims.iter().take(2) {
        world.edit(&format!("NodeClaim/{claim}"), &paused(Some("debugging")));
    }
    world.edit(
        "NodePool/fixed",
        &json!({ "metadata": { "generation": 2 }, "spec": { "replicas": 0 } }),
    );
    world.pass(MINUTE);
    assert_eq!(world.names("NodeClaim"), claims[..2]);
    for claim in claims.iter().take(2) {
        world.edit(&format!("NodeClaim/{claim}"), &paused(None));
    }
    world.pass(MINUTE);
    assert_eq!(world.names("NodeClaim"), [""; 0]);
}
