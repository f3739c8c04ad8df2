//! Every shape of a drain that cannot finish: told within a minute, with owner, age and what would clear it.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::hand_over_tests::{cluster, deployment, handed_over_pod};
use mortise_apis::labels;
use mortise_apis::values::since;
use mortise_cloudprovider::{CloudError, Retry};
use mortise_engine::effect::EffectError;
use mortise_planning::drain::pdb::Pdbs;
use mortise_planning::drain::{stuck_drains, undrainable_because, undrainable_nodes};
use mortise_planning::drain_blocker::{DrainBlocker, DrainBlockerKind};
use mortise_planning::reason::Reason;
use mortise_sim::test_cluster::TestCluster;

const MINUTE: i64 = 60_000;

fn ready(status: &str) -> Value {
    json!({ "metadata": { "labels": { "app": "web" } }, "status": { "conditions": [{ "type": "Ready", "status": status }] } })
}

/// A budget of the pods with label `app: web`, whose eviction it blocks.
fn budget(world: &mut TestCluster, name: &str, status: &Value) {
    world.put(&json!({ "kind": "PodDisruptionBudget", "metadata": { "name": name, "namespace": "default", "generation": 1 },
        "spec": { "minAvailable": 2, "selector": { "matchLabels": { "app": "web" } } }, "status": status }));
}

/// A pod with a budget of this status on the node.
fn budgeted(world: &mut TestCluster, is_ready: &str, status: &Value) {
    budget(world, "web", status);
    world.pod("web", "node-c", &ready(is_ready));
    world.answers.blocked.insert("Pod/default/web".to_owned());
}

fn counts(healthy: i64, desired: i64, expected: i64) -> Value {
    json!({ "disruptionsAllowed": 0, "currentHealthy": healthy, "desiredHealthy": desired, "expectedPods": expected, "observedGeneration": 1 })
}

fn refused(world: &mut TestCluster, error: EffectError) {
    world.pod("web", "node-c", &json!({}));
    world
        .answers
        .eviction_errors
        .insert("Pod/default/web".to_owned(), error);
}

/// A pod that never ends.
fn endless(world: &mut TestCluster, grace: i64, more: &Value) {
    world.pod("web", "node-c", more);
    world.edit(
        "Pod/default/web",
        &json!({ "spec": { "terminationGracePeriodSeconds": grace } }),
    );
    world.stuck.insert("Pod/default/web".to_owned());
}

fn attachment(world: &mut TestCluster, more: &Value) {
    world.put(&json!({ "kind": "VolumeAttachment", "metadata": { "name": "va", "finalizers": ["csi"] },
        "spec": { "attacher": "ebs.csi", "nodeName": "node-c", "source": { "persistentVolumeName": "pv-1" } } }));
    world.edit("VolumeAttachment/va", more);
}

/// Brings the world into a state in which a drain of `c` ends up with this in its way.
fn set_up(world: &mut TestCluster, shape: DrainBlockerKind) {
    let refusal = |code: u16, message: &str| EffectError::Refused {
        code,
        message: message.to_owned(),
    };
    let annotated =
        |value: &str| json!({ "metadata": { "annotations": { labels::DO_NOT_DISRUPT: value } } });
    match shape {
        DrainBlockerKind::PdbNeverAllows => budgeted(world, "True", &counts(2, 2, 2)),
        DrainBlockerKind::PdbPodsNotReady => budgeted(world, "True", &counts(2, 2, 3)),
        DrainBlockerKind::PdbPodNotReady => budgeted(world, "False", &counts(1, 2, 3)),
        DrainBlockerKind::PdbPodsPending => {
            budgeted(world, "True", &counts(2, 2, 3));
            world.put(&json!({ "kind": "Pod", "metadata": { "name": "web-2", "namespace": "default", "labels": { "app": "web" } }, "spec": {},
                "status": { "phase": "Pending", "conditions": [{ "type": "PodScheduled", "status": "False", "reason": "Unschedulable" }] } }));
        }
        DrainBlockerKind::PdbNotComputed => budgeted(world, "True", &json!({})),
        DrainBlockerKind::PdbNotCountable => budgeted(
            world,
            "True",
            &json!({ "observedGeneration": 1,
            "conditions": [{ "type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed" }] }),
        ),
        DrainBlockerKind::PdbExhausted => budgeted(world, "True", &counts(3, 2, 3)),
        DrainBlockerKind::MultiplePdbs => {
            budget(world, "one", &counts(3, 2, 3));
            budget(world, "two", &counts(3, 2, 3));
            world.pod("web", "node-c", &ready("True"));
            world.answers.eviction_errors.insert(
                "Pod/default/web".to_owned(),
                EffectError::MultipleBudgets(String::new()),
            );
        }
        DrainBlockerKind::DoNotDisrupt => world.pod("web", "node-c", &annotated("true")),
        DrainBlockerKind::DoNotDisruptUntil => world.pod("web", "node-c", &annotated("3h")),
        DrainBlockerKind::DisruptionPaused => {
            world.pod("web", "node-c", &json!({}));
            world.edit(
                "Node/node-c",
                &json!({ "metadata": { "annotations": { labels::PAUSE: "release" } } }),
            );
        }
        DrainBlockerKind::HandingOver => {
            deployment(world, &json!({}));
            handed_over_pod(world, "web", "true");
        }
        DrainBlockerKind::InGracePeriod => endless(world, 600, &json!({})),
        DrainBlockerKind::PodFinalizer => endless(
            world,
            2,
            &json!({ "metadata": { "finalizers": ["example.com/backup"] } }),
        ),
        DrainBlockerKind::KubeletNotResponding => {
            endless(world, 30, &json!({}));
            world.edit(
                "Node/node-c",
                &json!({ "status": { "conditions": [{ "type": "Ready", "status": "Unknown" }] } }),
            );
        }
        DrainBlockerKind::PodStuck => endless(world, 2, &json!({})),
        DrainBlockerKind::EvictionDenied => refused(world, refusal(400, "denied by policy")),
        DrainBlockerKind::EvictionForbidden => refused(
            world,
            refusal(403, "User cannot create resource pods/eviction"),
        ),
        DrainBlockerKind::EvictionUnavailable => {
            refused(world, EffectError::Unavailable("no answer".to_owned()))
        }
        DrainBlockerKind::VolumeAttached => attachment(world, &json!({})),
        DrainBlockerKind::VolumeDetaching => {
            let now = world.now().to_string();
            attachment(world, &json!({ "metadata": { "deletionTimestamp": now } }));
        }
        DrainBlockerKind::VolumeDetachFailed => {
            let now = world.now().to_string();
            attachment(
                world,
                &json!({ "metadata": { "deletionTimestamp": now }, "status": { "detachError": { "message": "device is busy" } } }),
            );
        }
        DrainBlockerKind::InstanceTerminationFailed => {
            world.answers.terminate_error = Some(CloudError {
                label: "unauthorized",
                message: "not allowed".to_owned(),
                retry: Retry::Again,
            })
        }
        DrainBlockerKind::InstanceTerminating => world.set_termination_ms(60 * MINUTE),
        DrainBlockerKind::NodeFinalizer => foreign_finalizer(world, "Node/node-c"),
        DrainBlockerKind::ClaimFinalizer => foreign_finalizer(world, "NodeClaim/c"),
        DrainBlockerKind::ApiWriteRejected => {
            world
                .answers
                .refused_writes
                .insert("Node/node-c".to_owned());
        }
    }
}

fn foreign_finalizer(world: &mut TestCluster, key: &str) {
    let own = [labels::TERMINATION_FINALIZER, "example.com/inventory"];
    world.edit(key, &json!({ "metadata": { "finalizers": own } }));
}

/// What was told about a shape: when, of whom, since when, and what would clear it.
fn told(
    world: &TestCluster,
    wanted: DrainBlockerKind,
) -> Option<(Timestamp, Option<String>, Timestamp, String)> {
    world.records.iter().find_map(|record| {
        record.reasons.iter().find_map(|reason| match reason {
            Reason::DrainBlocked(DrainBlocker {
                kind,
                owner,
                since,
                unblocks,
                ..
            }) if *kind == wanted => Some((record.at, owner.clone(), *since, unblocks.clone())),
            _ => None,
        })
    })
}

#[test]
fn each_shape_is_told_within_a_minute_with_owner_age_and_what_would_clear_it() {
    assert!(DrainBlockerKind::ALL.len() >= 20);
    let labels: BTreeSet<&str> = DrainBlockerKind::ALL
        .iter()
        .map(|shape| shape.label())
        .collect();
    assert_eq!(labels.len(), DrainBlockerKind::ALL.len());
    for shape in DrainBlockerKind::ALL.iter().copied() {
        let mut world = cluster();
        world.up("c", &json!({}));
        set_up(&mut world, shape);
        world.settle();
        let start = world.now();
        world.delete("NodeClaim/c");
        // What follows a drain of some seconds comes a few seconds later.
        world.pass(MINUTE + 8_000);
        let Some((at, owner, first, unblocks)) = told(&world, shape) else {
            panic!("{shape:?} was not told: {:#?}", world.records);
        };
        let came = if shape.event() == "FailedDraining" {
            0
        } else {
            8_000
        };
        assert!(
            since(at, start) <= MINUTE + came,
            "{shape:?} after {} ms",
            since(at, start)
        );
        assert!(
            !unblocks.is_empty() && since(at, first) >= 30_000,
            "{shape:?} since {first}, told {at}"
        );
        let owned = match shape.event() {
            _ if shape == DrainBlockerKind::DisruptionPaused => None,
            _ if shape == DrainBlockerKind::HandingOver => Some("ReplicaSet web-5d9f"),
            "FailedDraining" => Some("ReplicaSet web"),
            "AwaitingVolumeDetachment" => Some("driver ebs.csi"),
            _ => None,
        };
        assert_eq!(owner.as_deref(), owned, "{shape:?}");
        let event = world
            .events()
            .find(|event| event.reason == shape.event() && event.message.contains(&unblocks));
        let event =
            event.unwrap_or_else(|| panic!("{shape:?}: {:#?}", world.events().collect::<Vec<_>>()));
        assert!(
            event.warning && event.message.contains(" s; "),
            "{shape:?}: {}",
            event.message
        );
        // A pod that is stuck is left behind a minute after its time, as in Karpenter.
        let left_behind = [
            DrainBlockerKind::PodFinalizer,
            DrainBlockerKind::PodStuck,
            DrainBlockerKind::KubeletNotResponding,
        ];
        if !left_behind.contains(&shape) {
            assert_eq!(world.violations(), [""; 0], "{shape:?}");
        }
    }
}

#[test]
fn a_budget_that_was_counted_for_an_older_spec_is_not_counted() {
    let mut world = cluster();
    world.up("c", &json!({}));
    let before = json!({ "disruptionsAllowed": 1, "currentHealthy": 3, "desiredHealthy": 2, "expectedPods": 3, "observedGeneration": 0 });
    budgeted(&mut world, "True", &before);
    world.delete("NodeClaim/c");
    world.pass(MINUTE);
    assert!(told(&world, DrainBlockerKind::PdbNotComputed).is_some());
    assert_eq!(told(&world, DrainBlockerKind::PdbExhausted), None);
}

#[test]
fn a_budget_that_was_counted_before_its_pod_was_ready_is_not_counted() {
    let mut world = cluster();
    world.up("c", &json!({}));
    budgeted(&mut world, "True", &counts(0, 0, 1));
    world.delete("NodeClaim/c");
    world.pass(MINUTE);
    let (.., unblocks) = told(&world, DrainBlockerKind::PdbNotComputed).unwrap();
    assert!(unblocks.contains("annotate default/web"), "{unblocks}");
    assert_eq!(told(&world, DrainBlockerKind::PdbPodsNotReady), None);
}

#[test]
fn the_arithmetic_of_a_budget_is_told() {
    for (shape, arithmetic) in [
        (
            DrainBlockerKind::PdbNeverAllows,
            "(minAvailable 2) requires 2 of 2 pods",
        ),
        (
            DrainBlockerKind::PdbPodNotReady,
            "(minAvailable 2) has 1 ready pods of 2 required",
        ),
        (
            DrainBlockerKind::PdbPodsNotReady,
            "(minAvailable 2) has 2 ready pods of 3, and requires 2",
        ),
    ] {
        let mut world = cluster();
        world.up("c", &json!({}));
        set_up(&mut world, shape);
        world.delete("NodeClaim/c");
        world.pass(MINUTE);
        let mut said = world.events().map(|event| &event.message);
        assert!(
            said.any(|text| text.contains(arithmetic)),
            "{shape:?}: {:#?}",
            world.events().collect::<Vec<_>>()
        );
    }
}

#[test]
fn a_drain_that_goes_well_is_not_spoken_of() {
    let mut world = cluster();
    world.up("c", &json!({}));
    for name in ["a", "b"] {
        world.pod(name, "node-c", &json!({}));
    }
    world.delete("NodeClaim/c");
    world.pass(5 * MINUTE);
    assert!(!world.has("NodeClaim/c"));
    for shape in DrainBlockerKind::ALL.iter().copied() {
        assert_eq!(told(&world, shape), None);
    }
}

#[test]
fn a_blocker_that_stays_is_repeated_every_two_minutes_and_no_more() {
    let mut world = cluster();
    world.up("c", &json!({}));
    set_up(&mut world, DrainBlockerKind::DoNotDisrupt);
    world.delete("NodeClaim/c");
    world.pass(21 * MINUTE);
    let said = world
        .events()
        .filter(|event| {
            event
                .message
                .contains("annotation karpenter.sh/do-not-disrupt protects it")
        })
        .count();
    assert!((9..=11).contains(&said), "{said}");
}

#[test]
fn every_replica_can_list_the_blockers_and_of_the_oldest_first() {
    let mut world = cluster();
    for claim in ["b", "c"] {
        world.up(claim, &json!({}));
        let guarded = json!({ "metadata": { "annotations": { labels::DO_NOT_DISRUPT: "true" } } });
        world.pod(
            &format!("guarded-{claim}"),
            &format!("node-{claim}"),
            &guarded,
        );
    }
    let now = world.now();
    assert_eq!(stuck_drains(&world.snapshot(), now), []);
    world.delete("NodeClaim/c");
    world.pass(30_000);
    world.delete("NodeClaim/b");
    world.pass(30_000);
    let now = world.now();
    let stuck = stuck_drains(&world.snapshot(), now);
    assert_eq!(
        stuck.len(),
        1,
        "b has only been going for half a minute: {stuck:?}"
    );
    world.pass(30_000);
    let now = world.now();
    let stuck = stuck_drains(&world.snapshot(), now);
    let names: Vec<&str> = stuck
        .iter()
        .filter_map(|each| each.claim.as_ref())
        .map(|claim| claim.as_str())
        .collect();
    assert_eq!(names, ["c", "b"]);
    assert_eq!(stuck[0].obstacles[0].kind, DrainBlockerKind::DoNotDisrupt);
    assert_eq!(stuck[0].obstacles[0].what, "pod default/guarded-c");
}

#[test]
fn a_node_is_undrainable_before_any_drain_if_only_a_change_of_an_object_would_end_it() {
    for shape in DrainBlockerKind::ALL.iter().copied() {
        let mut world = cluster();
        world.up("c", &json!({}));
        set_up(&mut world, shape);
        world.settle();
        let (snapshot, now) = (world.snapshot(), world.now());
        let found = undrainable_nodes(&snapshot, now);
        let kinds: Vec<DrainBlockerKind> = found
            .iter()
            .flat_map(|node| &node.blockers)
            .map(|blocker| blocker.kind)
            .collect();
        let needs_a_change = [
            DrainBlockerKind::PdbNeverAllows,
            DrainBlockerKind::PdbNotCountable,
            DrainBlockerKind::MultiplePdbs,
            DrainBlockerKind::DoNotDisrupt,
        ];
        let wanted = if needs_a_change.contains(&shape) {
            vec![shape]
        } else {
            Vec::new()
        };
        assert_eq!(kinds, wanted, "{}", shape.label());
        if let Some(node) = found.first() {
            assert_eq!(node.node.as_str(), "node-c");
            assert_eq!(node.blockers[0].what, "pod default/web");
            assert!(node.blockers[0].owner.is_some() && node.blockers[0].since <= now);
        }
        world.delete("NodeClaim/c");
        world.settle();
        let (snapshot, now) = (world.snapshot(), world.now());
        assert_eq!(undrainable_nodes(&snapshot, now), [], "it is a drain now");
    }
}

#[test]
fn pods_that_end_by_themselves_and_nodes_with_a_deadline_are_drained() {
    let protected = json!({ "metadata": { "annotations": { labels::DO_NOT_DISRUPT: "true" } } });
    let mut world = cluster();
    world.up("c", &json!({ "terminationGracePeriod": "10m" }));
    world.pod("web", "node-c", &protected);
    world.up("d", &json!({}));
    world.pod("batch", "node-d", &protected);
    world.edit(
        "Pod/default/batch",
        &json!({ "metadata": { "ownerReferences": [{ "apiVersion": "batch/v1", "kind": "Job", "name": "batch", "uid": "batch", "controller": true }] } }),
    );
    world.settle();
    let (snapshot, now) = (world.snapshot(), world.now());
    assert_eq!(undrainable_nodes(&snapshot, now), []);
    world.pod("web-2", "node-d", &protected);
    world.settle();
    let (snapshot, now) = (world.snapshot(), world.now());
    let found = undrainable_nodes(&snapshot, now);
    assert_eq!(found.len(), 1, "{found:?}");
    let node = snapshot.nodes.values().find(|node| node.name() == "node-d");
    let own = undrainable_because(&snapshot, &Pdbs::new(&snapshot), now, node.unwrap());
    assert_eq!(own, found[0].blockers);
    assert_eq!(own[0].what, "pod default/web-2");
}
