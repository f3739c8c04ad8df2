//! Stories of nodes that are being deleted.

use jiff::Timestamp;
use serde_json::json;

use crate::tests::cluster;
use mortise_apis::labels;
use mortise_apis::names::{NamespacedName, PodKey};
use mortise_apis::values::{after, since};
use mortise_engine::freshness::WatchState;
use mortise_engine::record::{Record, Verdict};
use mortise_planning::reason::Reason;
use mortise_sim::test_cluster::TestCluster;
use mortise_state::resource_kinds::ObjectKind;
use mortise_state::watch_age::Age;

fn position(world: &TestCluster, what: &str) -> usize {
    world
        .done
        .iter()
        .position(|each| each == what)
        .unwrap_or_else(|| panic!("{what} not in {:#?}", world.done))
}

fn deadline(world: &TestCluster, claim: &str) -> Timestamp {
    world.get(&format!("NodeClaim/{claim}"))["metadata"]["annotations"]
        [labels::TERMINATION_TIMESTAMP]
        .as_str()
        .unwrap()
        .parse()
        .unwrap()
}

#[test]
fn a_deleted_claim_is_drained_under_its_budget_and_nothing_is_left() {
    let mut world = cluster();
    let node = world.up("c", &json!({}));
    world.pod("web", &node, &json!({}));
    world.answers.blocked.insert("Pod/default/web".to_owned());
    world.delete("NodeClaim/c");
    world.pass(500);
    let tainted = world.get(&format!("Node/{node}"));
    assert!(tainted["spec"]["taints"].as_array().unwrap().iter().any(|taint| taint["key"] == labels::DISRUPTED_TAINT && taint["effect"] == "NoSchedule"));
    assert_eq!(
        tainted["metadata"]["labels"][labels::EXCLUDE_LB],
        "karpenter"
    );
    assert_eq!(
        world.condition("c", "Drained").unwrap(),
        ("Unknown".to_owned(), "Draining".to_owned())
    );
    assert!(world.event("FailedDraining").is_some());
    assert_eq!(
        world.verdicts(&format!("node/{node}")),
        [Verdict::Waiting, Verdict::Blocked]
    );
    let attempts = |world: &TestCluster| {
        world
            .done
            .iter()
            .filter(|each| *each == "evict pod/default/web")
            .count()
    };
    let early = attempts(&world);
    assert!(
        (2..=4).contains(&early),
        "{early} attempts in the first half second"
    );
    world.pass(60_000);
    let late = attempts(&world) - early;
    assert!(
        (8..=14).contains(&late),
        "{late} attempts in the following minute, back-off ends at 10 s"
    );
    assert_eq!(world.instances().len(), 1);

    world.answers.blocked.clear();
    world.pass(11_000);
    assert!(!world.has("Pod/default/web"));
    assert!(world.event("Evicted").unwrap().message.ends_with(
        "Forceful Termination; its NodeClaim or Node was deleted by a user or another controller"
    ));
    world.pass(20_000);
    assert!(!world.has(&format!("Node/{node}")) && !world.has("NodeClaim/c"));
    assert!(world.instances().is_empty());
    assert!(
        position(&world, &format!("delete node/{node}"))
            < position(&world, "evict pod/default/web")
    );
    assert!(position(&world, "evict pod/default/web") < position(&world, "terminate nodeclaim/c"));
    assert_eq!(
        world.verdicts("nodeclaim/c").last(),
        Some(&Verdict::Removed)
    );
    let snapshot = world.snapshot();
    assert_eq!(
        (
            snapshot.nodes.len(),
            snapshot.claims.len(),
            snapshot.ledger.fences().len()
        ),
        (0, 0, 0)
    );
}

#[test]
fn an_empty_node_is_held_for_pods_bound_in_the_last_moment() {
    let mut world = cluster();
    let node = world.up("c", &json!({}));
    world.delete("NodeClaim/c");
    let start = world.now();
    world.pass(3_000);
    world.restart();
    world.pod("late", &node, &json!({}));
    world.pass(1_500);
    assert!(
        !world.has("Pod/default/late"),
        "a pod that came late is evicted"
    );
    while world
        .instances()
        .iter()
        .all(|instance| instance.claim == "c")
        && !world.done.iter().any(|each| each.starts_with("terminate"))
    {
        world.pass(100);
    }
    let held = since(world.now(), start);
    assert!((5_000..7_500).contains(&held), "held {held} ms");
}

#[test]
fn groups_leave_one_after_another_and_some_pods_stay() {
    let mut world = cluster();
    let node = world.up("c", &json!({}));
    let daemon = json!({ "metadata": { "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "ds", "uid": "ds", "controller": true }] } });
    let critical = json!({ "spec": { "priorityClassName": "system-cluster-critical" } });
    let mut both = daemon.clone();
    mortise_sim::test_cluster::merge_into(&mut both, &critical);
    world.pod("d-critical-daemon", &node, &both);
    world.pod("c-critical", &node, &critical);
    world.pod("b-daemon", &node, &daemon);
    world.pod("a-plain", &node, &json!({}));
    world.pod(
        "tolerates",
        &node,
        &json!({ "spec": { "tolerations": [{ "operator": "Exists" }] } }),
    );
    world.pod("mirror", &node, &json!({ "metadata": { "ownerReferences": [{ "apiVersion": "v1", "kind": "Node", "name": "n", "uid": "n", "controller": true }] } }));
    world.delete("NodeClaim/c");
    world.pass(30_000);
    let evicted: Vec<&str> = world
        .done
        .iter()
        .filter_map(|each| each.strip_prefix("evict pod/default/"))
        .collect();
    assert_eq!(
        evicted,
        ["a-plain", "b-daemon", "c-critical", "d-critical-daemon"]
    );
    assert!(!world.has("NodeClaim/c"));
}

#[test]
fn deleting_the_node_is_the_same_as_deleting_the_claim() {
    let mut world = cluster();
    let node = world.up("c", &json!({}));
    world.pod("web", &node, &json!({}));
    world.delete(&format!("Node/{node}"));
    world.pass(30_000);
    assert!(
        !world.has(&format!("Node/{node}"))
            && !world.has("NodeClaim/c")
            && !world.has("Pod/default/web")
    );
    assert!(world.instances().is_empty());
}

#[test]
fn protected_pods_stay_until_the_grace_period_ends() {
    let mut world = cluster();
    let node = world.up("c", &json!({ "terminationGracePeriod": "2m" }));
    world.pod(
        "protected",
        &node,
        &json!({ "metadata": { "annotations": { labels::DO_NOT_DISRUPT: "true" } } }),
    );
    world.pod(
        "budgeted",
        &node,
        &json!({ "spec": { "terminationGracePeriodSeconds": 60 } }),
    );
    world
        .answers
        .blocked
        .insert("Pod/default/budgeted".to_owned());
    world.delete("NodeClaim/c");
    let start = world.now();
    world.pass(1_000);
    assert_eq!(deadline(&world, "c"), after(start, 120_000));
    assert!(
        world
            .event("TerminationGracePeriodExpiring")
            .unwrap()
            .warning
    );
    world.restart();
    world.pass(57_000);
    assert!(
        !world
            .done
            .iter()
            .any(|each| each == "evict pod/default/protected" || each.starts_with("delete pod/"))
    );
    world.pass(4_000);
    assert!(
        world
            .done
            .contains(&"delete pod/default/budgeted".to_owned()),
        "60 s of grace end at the deadline"
    );
    assert!(world.has("Pod/default/protected"));
    world.pass(31_000);
    assert!(!world.has("Pod/default/protected"));
    assert!(
        !world
            .done
            .contains(&"evict pod/default/protected".to_owned())
    );
    assert!(world.event("Disrupted").is_some());
    world.pass(15_000);
    assert!(!world.has("NodeClaim/c"));
}

#[test]
fn a_protection_that_lapses_lets_the_pod_go() {
    let mut world = cluster();
    let node = world.up("c", &json!({}));
    world.pod(
        "guarded",
        &node,
        &json!({ "metadata": { "annotations": { labels::DO_NOT_DISRUPT: "5m" } } }),
    );
    world.delete("NodeClaim/c");
    world.pass(299_000);
    assert!(world.has("Pod/default/guarded"));
    world.pass(5_000);
    assert!(!world.has("Pod/default/guarded"));
}

#[test]
fn a_pod_stuck_in_deletion_is_not_waited_for() {
    let mut world = cluster();
    let node = world.up("c", &json!({}));
    world.pod("stuck", &node, &json!({}));
    world.stuck.insert("Pod/default/stuck".to_owned());
    world.delete("NodeClaim/c");
    world.pass(85_000);
    assert!(world.has("NodeClaim/c"), "30 s of grace and a minute");
    world.pass(20_000);
    assert!(!world.has("NodeClaim/c"));
    assert_eq!(
        world
            .done
            .iter()
            .filter(|each| each.starts_with("evict"))
            .count(),
        1,
        "asked once, then it is on its way"
    );
}

#[test]
fn volumes_are_waited_for_unless_a_staying_pod_uses_them() {
    let mut world = cluster();
    let node = world.up("c", &json!({}));
    world.put(&json!({ "kind": "PersistentVolumeClaim", "metadata": { "name": "kept", "namespace": "default" }, "spec": { "volumeName": "pv-kept" } }));
    world.pod("stays", &node, &json!({ "spec": { "tolerations": [{ "operator": "Exists" }], "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": "kept" } }] } }));
    for (name, volume) in [("kept", "pv-kept"), ("data", "pv-data")] {
        world.put(&json!({ "kind": "VolumeAttachment", "metadata": { "name": name }, "spec": { "nodeName": node, "source": { "persistentVolumeName": volume } } }));
    }
    world.delete("NodeClaim/c");
    world.pass(30_000);
    assert_eq!(
        world.condition("c", "VolumesDetached").unwrap(),
        ("Unknown".to_owned(), "AwaitingVolumeDetachment".to_owned())
    );
    let event = world.event("AwaitingVolumeDetachment").unwrap();
    assert_eq!(
        event.message,
        "Awaiting deletion of bound volumeattachments (data)"
    );
    assert_eq!(world.instances().len(), 1);
    world.delete("VolumeAttachment/data");
    world.pass(10_000);
    assert!(world.instances().is_empty() && !world.has("NodeClaim/c"));
}

#[test]
fn past_the_deadline_volumes_are_left() {
    let mut world = cluster();
    let node = world.up("c", &json!({ "terminationGracePeriod": "60s" }));
    world.put(&json!({ "kind": "VolumeAttachment", "metadata": { "name": "data" }, "spec": { "nodeName": node, "source": { "persistentVolumeName": "pv" } } }));
    world.delete("NodeClaim/c");
    world.pass(59_000);
    assert_eq!(world.instances().len(), 1);
    world.pass(2_000);
    assert_eq!(
        world.condition("c", "VolumesDetached").unwrap().1,
        "TerminationGracePeriodElapsed"
    );
    world.pass(10_000);
    assert!(!world.has("NodeClaim/c"));
}

#[test]
fn an_instance_that_never_registered_goes_without_drain() {
    let mut world = cluster();
    world.claim("c", &json!({}));
    world.settle();
    world.delete("NodeClaim/c");
    world.pass(5_000);
    assert!(!world.has("NodeClaim/c") && world.instances().is_empty());
    assert!(
        !world
            .done
            .iter()
            .any(|each| each.starts_with("delete node/") || each.starts_with("patch node/"))
    );
}

#[test]
fn a_node_whose_instance_is_lost_goes_at_once() {
    let mut world = cluster();
    let node = world.up("c", &json!({}));
    world.pod("web", &node, &json!({}));
    world.answers.blocked.insert("Pod/default/web".to_owned());
    world.edit(
        &format!("Node/{node}"),
        &json!({ "status": { "conditions": [{ "type": "Ready", "status": "Unknown" }] } }),
    );
    world.delete(&format!("Node/{node}"));
    world.pass(4_000);
    assert!(
        world.has(&format!("Node/{node}")),
        "not ready, but the instance is there"
    );
    world.lose_instances();
    world.pass(6_000);
    assert!(
        !world.has(&format!("Node/{node}")) && !world.has("NodeClaim/c"),
        "{:?}",
        world.done
    );
}

#[test]
fn no_instance_ends_under_a_pod_that_no_watch_shows() {
    let mut world = cluster();
    let node = world.up("c", &json!({}));
    world.delete("NodeClaim/c");
    world.settle();
    // Bound before the taint was seen, by a scheduler that had not heard of it.
    world.put_unseen(
        &json!({ "kind": "Pod", "metadata": { "name": "late", "namespace": "ns", "uid": "late",
        "generation": 1, "creationTimestamp": world.now().to_string() },
        "spec": { "nodeName": node, "containers": [] }, "status": { "phase": "Running" } }),
    );
    world.pass(60_000);
    assert!(!world.has("NodeClaim/c"), "{:?}", world.done);
    assert!(!world.has("Pod/ns/late"));
    assert!(world.violations().is_empty(), "{:?}", world.violations());
    let evicted = position(&world, "evict pod/ns/late");
    assert!(position(&world, "list_pods node/node-c") < evicted);
    assert!(evicted < position(&world, "terminate nodeclaim/c"));
}

#[test]
fn a_drain_waits_for_a_watch_that_is_old() {
    let mut world = cluster();
    let node = world.up("c", &json!({}));
    world.put(
        &json!({ "kind": "Pod", "metadata": { "name": "p", "namespace": "ns" },
        "spec": { "nodeName": node, "containers": [] }, "status": { "phase": "Running" } }),
    );
    world.settle();
    world.report_watch(ObjectKind::Pod, WatchState::Stands);
    world.pass(91_000);
    world.delete("NodeClaim/c");
    world.pass(30_000);
    let taints = world.get(&format!("Node/{node}"))["spec"]["taints"].to_string();
    assert!(taints.contains(labels::DISRUPTED_TAINT), "closed at once");
    assert!(world.has("Pod/ns/p"), "{:?}", world.done);
    let held = |record: &&Record| {
        let of = |reason: &Reason| matches!(reason, Reason::Outdated(old) if old.kind == "Pod" && old.how == Age::Silent);
        record.verdict == Verdict::Blocked && record.reasons.iter().any(of)
    };
    assert_eq!(world.records.iter().filter(held).count(), 1);
    world.report_watch(ObjectKind::Pod, WatchState::Bookmark(Some(u64::MAX)));
    world.pass(60_000);
    assert!(!world.has("NodeClaim/c"), "{:?}", world.done);
}

#[test]
fn killed_after_any_effect_everything_still_goes() {
    for label in ["patch", "delete", "evict", "terminate"] {
        let mut world = cluster();
        let node = world.up("c", &json!({ "terminationGracePeriod": "10m" }));
        world.pod("web", &node, &json!({}));
        world.delete("NodeClaim/c");
        for _ in 0..12 {
            world.answers.crash_after = Some(label);
            world.pass(1_000);
        }
        world.answers.crash_after = None;
        world.pass(60_000);
        assert!(
            !world.has("NodeClaim/c")
                && !world.has(&format!("Node/{node}"))
                && world.instances().is_empty(),
            "{label}: {:#?}",
            world.done
        );
    }
}

#[test]
fn conflicts_are_decided_again() {
    let mut world = cluster();
    let node = world.up("c", &json!({}));
    world.delete("NodeClaim/c");
    for _ in 0..20 {
        world.answers.conflicts = 1;
        world.pass(1_000);
    }
    world.answers.conflicts = 0;
    world.pass(60_000);
    assert!(!world.has("NodeClaim/c") && !world.has(&format!("Node/{node}")));
}

#[test]
fn nodes_of_others_are_left_alone() {
    let mut world = cluster();
    let with = |name: &str, more: &str| json!({ "kind": "Node", "metadata": { "name": name, "finalizers": [labels::TERMINATION_FINALIZER], "labels": { more: "x" } }, "spec": { "providerID": format!("other:///{name}") } });
    world.put(&with("theirs", "karpenter.other.com/othernodeclass"));
    world.put(&with(
        "ours",
        &labels::node_class_key("fake.test", "FakeNodeClass"),
    ));
    world.delete("Node/theirs");
    world.delete("Node/ours");
    world.pass(20_000);
    assert!(world.has("Node/theirs"));
    assert!(!world.done.iter().any(|each| each.ends_with("node/theirs")));
    assert!(
        !world.has("Node/ours"),
        "a node of ours whose claim is gone is drained and released"
    );
}

#[test]
fn the_reason_of_a_disruption_is_told() {
    let mut world = cluster();
    let node = world.up("c", &json!({}));
    world.pod("web", &node, &json!({}));
    let mut list = world.get("NodeClaim/c")["status"]["conditions"].clone();
    list.as_array_mut().unwrap().push(json!({ "type": "DisruptionReason", "status": "True", "reason": "Underutilized", "message": "", "lastTransitionTime": "2030-01-01T00:00:00Z" }));
    world.edit("NodeClaim/c", &json!({ "status": { "conditions": list } }));
    world.delete("NodeClaim/c");
    world.pass(20_000);
    assert_eq!(
        world.event("Evicted").unwrap().message,
        "Evicted pod: Underutilized; disruption: its pods fit on fewer or cheaper nodes"
    );
    let record = world
        .records
        .iter()
        .find(|record| record.verdict == Verdict::Evicted)
        .unwrap();
    assert_eq!(record.reasons, [Reason::Underutilized]);
}

#[test]
fn the_reason_is_told_of_pods_that_go_at_once() {
    let mut world = cluster();
    let node = world.up("c", &json!({}));
    let at_once = json!({ "spec": { "terminationGracePeriodSeconds": 0 } });
    world.pod("web", &node, &at_once);
    let mut list = world.get("NodeClaim/c")["status"]["conditions"].clone();
    list.as_array_mut().unwrap().push(json!({ "type": "DisruptionReason", "status": "True", "reason": "Drifted", "message": "", "lastTransitionTime": "2030-01-01T00:00:00Z" }));
    world.edit("NodeClaim/c", &json!({ "status": { "conditions": list } }));
    world.delete("NodeClaim/c");
    world.pass(20_000);
    let told = &world.event("Evicted").unwrap().message;
    assert!(
        told.starts_with("Evicted pod: Drifted; disruption: drifted"),
        "{told}"
    );
}

#[test]
fn the_budget_that_blocks_is_named() {
    let mut world = cluster();
    let node = world.up("c", &json!({}));
    world.pod(
        "web",
        &node,
        &json!({ "metadata": { "labels": { "app": "web" } } }),
    );
    for (name, app, allowed) in [("other", "db", 0), ("free", "web", 1), ("web", "web", 0)] {
        world.put(&json!({ "kind": "PodDisruptionBudget", "metadata": { "name": name, "namespace": "default" },
            "spec": { "selector": { "matchLabels": { "app": app } } }, "status": { "disruptionsAllowed": allowed } }));
    }
    world.answers.blocked.insert("Pod/default/web".to_owned());
    world.delete("NodeClaim/c");
    world.pass(60_000);
    let blocked: Vec<_> = world
        .records
        .iter()
        .filter(|record| record.verdict == Verdict::Blocked)
        .filter(|record| !matches!(record.reasons[..], [Reason::DrainBlocked(_)]))
        .collect();
    assert_eq!(blocked.len(), 1, "said once, not at every attempt");
    assert_eq!(
        blocked[0].reasons,
        [
            Reason::Pdb {
                pdb: NamespacedName::parse("default/web")
            },
            Reason::Eviction {
                pod: PodKey::new("default", "web")
            },
        ]
    );
}
