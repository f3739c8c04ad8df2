//! Capacity buffers as a story: room is there before pods are, pods take it at once, and disruption keeps it.

use std::collections::BTreeSet;
use std::sync::Arc;

use mortise_apis::values::since;
use mortise_deciders::{CapacityBufferDecider, DisruptionDecider, ProvisioningDecider};
use mortise_engine::decider::Decider;
use mortise_engine::effect::Effect;
use mortise_engine::write::{ObjectEdit, ObjectWrite, StatusEdit};
use mortise_planning::settings::{FeatureGates, Settings};
use mortise_sim::test_cluster::{TestCluster, ordinary_types};
use serde_json::{Value, json};

fn deciders(_: &Settings) -> Vec<Box<dyn Decider>> {
    vec![
        Box::new(CapacityBufferDecider::default()),
        Box::new(ProvisioningDecider::new()),
        Box::new(DisruptionDecider::new()),
    ]
}

/// Types of 2, 4 and 8 CPUs, and a NodePool `default`.
fn cluster() -> TestCluster {
    cluster_with(deciders)
}

/// The same with other deciders.
pub(crate) fn cluster_with(deciders: fn(&Settings) -> Vec<Box<dyn Decider>>) -> TestCluster {
    let settings = Settings {
        gates: FeatureGates {
            capacity_buffer: true,
            ..FeatureGates::default()
        },
        ..Settings::default()
    };
    let mut cluster = TestCluster::with_types(deciders, settings, ordinary_types());
    cluster.put_automatic_pool();
    cluster
}

fn pods(cpu: i64) -> Value {
    json!({
        "metadata": { "labels": { "app": "room" } },
        "spec": {
            "containers": [{ "name": "c", "resources": { "requests": { "cpu": format!("{cpu}m"), "memory": format!("{cpu}Mi") } } }],
            "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": "nowhere" } }],
        },
    })
}

fn put_template(world: &mut TestCluster, cpu: i64) {
    world.put(&json!({
        "kind": "PodTemplate", "metadata": { "name": "room", "namespace": "default", "generation": cpu }, "template": pods(cpu),
    }));
}

fn put_buffer(world: &mut TestCluster, spec: &Value) {
    world.put(&json!({
        "kind": "CapacityBuffer", "metadata": { "name": "room", "namespace": "default" }, "spec": spec,
    }));
}

/// A buffer for this number of pods of a PodTemplate.
fn put_room(world: &mut TestCluster, replicas: i64, cpu: i64) {
    put_template(world, cpu);
    put_buffer(
        world,
        &json!({ "podTemplateRef": { "name": "room" }, "replicas": replicas }),
    );
}

/// Status, reason and message of a condition of the buffer.
fn told(world: &TestCluster, type_: &str) -> [String; 3] {
    told_of(world, "room", type_)
}

fn told_of(world: &TestCluster, name: &str, type_: &str) -> [String; 3] {
    let status = &world.get(&format!("CapacityBuffer/default/{name}"))["status"];
    let list = status["conditions"].as_array().cloned().unwrap_or_default();
    let found = list.iter().find(|each| each["type"] == type_);
    ["status", "reason", "message"].map(|field| {
        let text = found.and_then(|found| found[field].as_str());
        text.unwrap_or_default().to_owned()
    })
}

fn provisioning(world: &TestCluster) -> [String; 3] {
    told(world, "Provisioning")
}

fn has_room(world: &TestCluster) -> bool {
    has_room_of(world, "room")
}

fn has_room_of(world: &TestCluster, name: &str) -> bool {
    told_of(world, name, "Provisioning")[1] == "FitsExistingCapacity"
}

/// Statuses that were written to buffers.
fn writes(world: &TestCluster) -> usize {
    let is_status = |effect: &Effect| {
        matches!(
            effect,
            Effect::Write(ObjectWrite {
                edit: ObjectEdit::SetStatus(StatusEdit::CapacityBuffer(_)),
                ..
            })
        )
    };
    let all = world.effects.iter();
    all.filter(|(_, effect)| is_status(effect)).count()
}

fn nodes(world: &TestCluster) -> BTreeSet<String> {
    world.names("Node").into_iter().collect()
}

#[test]
fn room_is_launched_once_and_told() {
    let mut world = cluster();
    put_room(&mut world, 3, 1_500);
    world.pass(1_000);
    let coming = "3/3 virtual pods required new capacity, 0 failed";
    assert_eq!(
        provisioning(&world),
        ["False", "RequiresNewCapacity", coming]
    );
    world.pass(10 * 60_000);
    let fits = "all 3 virtual pods fit on existing nodes";
    assert_eq!(provisioning(&world), ["True", "FitsExistingCapacity", fits]);
    assert_eq!(
        told(&world, "ReadyForProvisioning"),
        ["True", "Resolved", ""]
    );
    let status = world.get("CapacityBuffer/default/room")["status"].clone();
    assert_eq!(status["replicas"], 3);
    assert_eq!(status["podTemplateRef"]["name"], "room");
    assert_eq!(status["podTemplateGeneration"], 1_500);
    assert_eq!(world.claim_times().len(), world.names("Node").len());
    assert_eq!(writes(&world), 3, "resolved, coming, there");
    // There is no event of pods that do not exist.
    assert_eq!(world.events_of("Nominated").len(), 0);
    assert_eq!(world.events_of("FailedScheduling").len(), 0);
    let claims = world.names("NodeClaim");
    let claim = world.get(&format!("NodeClaim/{}", claims[0]));
    let nominated = &claim["metadata"]["annotations"]["mortise.sh/nominated-pods"];
    assert!(nominated.is_null(), "{nominated}");
    assert_eq!(world.violations(), [""; 0]);
}

/// Time until the last of the pods of a burst is bound.
fn burst(world: &mut TestCluster) -> i64 {
    let from = world.now();
    world.pods("web", 3, 1_500, &json!({}));
    while world.pending() > 0 {
        world.pass(50);
        assert!(since(world.now(), from) < 10 * 60_000, "pods wait");
    }
    since(world.now(), from)
}

#[test]
fn a_burst_is_bound_at_once_with_a_buffer_and_after_a_boot_without() {
    let mut without = cluster();
    without.pass(60_000);
    let slow = burst(&mut without);
    let mut with = cluster();
    put_room(&mut with, 3, 1_500);
    with.pass(60_000);
    let before = nodes(&with);
    let fast = burst(&mut with);
    assert!(fast <= 1_000 && slow >= 5_000, "{fast} ms and {slow} ms");
    let used: BTreeSet<String> = with.bound().into_keys().collect();
    assert!(used.is_subset(&before), "{used:?} were there");
    // The room is refilled, by nodes that were ordered as soon as it was used.
    with.pass(60_000);
    assert!(has_room(&with), "{:?}", provisioning(&with));
    assert!(nodes(&with).len() > before.len());
    let ordered = with.claim_times();
    let refill = ordered.last().unwrap() - 60_000;
    assert!(refill <= 2_000, "after {refill} ms");
}

#[test]
fn emptiness_keeps_nodes_with_room_and_takes_the_others() {
    let mut world = cluster();
    put_room(&mut world, 1, 1_500);
    world.running_node("m1", "small", "default");
    world.running_node("m2", "small", "default");
    world.pass(10 * 60_000);
    assert_eq!(world.names("Node").len(), 1, "{:?}", nodes(&world));
    assert_eq!(world.claim_times().len(), 0, "nothing is launched");
    assert!(has_room(&world));
    world.delete("CapacityBuffer/default/room");
    world.pass(60_000);
    assert_eq!(world.names("Node").len(), 0, "room for nothing");
}

#[test]
fn consolidation_keeps_room_and_gets_it_cheaper() {
    let mut world = cluster();
    put_room(&mut world, 1, 1_500);
    // One node of 8 CPUs with a small pod and room: the pod and the room fit on less.
    world.running_node("m1", "large", "default");
    let on = json!({ "spec": { "nodeName": "m1" }, "status": { "phase": "Running" } });
    world.pods("web", 1, 1_500, &on);
    world.pass(10 * 60_000);
    assert_eq!(world.node_types(), ["medium"], "for both pods");
    assert!(has_room(&world), "{:?}", provisioning(&world));
    let launched = world.claim_times().len();
    assert_eq!(launched, 1, "no node for the room alone");
    world.pass(60 * 60_000);
    assert_eq!(world.claim_times().len(), launched, "and it stays");
    assert_eq!(world.violations(), [""; 0]);
}

#[test]
fn equal_buffers_are_one_class_and_all_have_room() {
    let mut world = cluster();
    put_template(&mut world, 10);
    for at in 0..100 {
        world.put(&json!({
            "kind": "CapacityBuffer", "metadata": { "name": format!("room-{at}"), "namespace": "default" },
            "spec": { "podTemplateRef": { "name": "room" }, "replicas": 100 },
        }));
    }
    world.pass(120_000);
    let snapshot = world.snapshot();
    assert_eq!(snapshot.virtual_pods().count(), 10_000);
    let first = snapshot.virtual_pods().next().unwrap();
    assert!(
        snapshot
            .virtual_pods()
            .all(|pod| Arc::ptr_eq(&pod.class, &first.class)
                && Arc::ptr_eq(&pod.labels, &first.labels)),
        "of one class"
    );
    assert!(has_room_of(&world, "room-99"));
    assert_eq!(world.claim_times().len(), world.names("Node").len());
}

#[test]
fn sizes_and_templates_follow_at_once() {
    let mut world = cluster();
    let workload = |replicas: i64| {
        json!({
            "kind": "Deployment", "metadata": { "name": "web", "namespace": "default" },
            "spec": { "replicas": replicas, "template": pods(1_500) },
        })
    };
    let of = json!({ "apiGroup": "apps", "kind": "Deployment", "name": "web" });
    put_buffer(&mut world, &json!({ "scalableRef": of, "percentage": 50 }));
    world.pass(1_000);
    assert_eq!(
        told(&world, "ReadyForProvisioning"),
        [
            "False",
            "ScalableRefNotFound",
            "Deployment \"web\" not found in namespace \"default\""
        ]
    );
    assert_eq!(provisioning(&world)[1], "NotReadyForProvisioning");
    world.put(&workload(0));
    world.pass(100);
    assert_eq!(provisioning(&world)[1], "BufferEmpty");
    world.put(&workload(5));
    world.pass(500);
    let coming = "3/3 virtual pods required new capacity, 0 failed";
    assert_eq!(provisioning(&world)[2], coming);
    let replicas = |world: &TestCluster| {
        world.get("CapacityBuffer/default/room")["status"]["replicas"].clone()
    };
    assert_eq!(replicas(&world), 3);
    world.put(&workload(6));
    world.pass(100);
    let before = writes(&world);
    // A change of its status is no change.
    let event = world.get("Deployment/default/web").clone();
    world.put(&event);
    world.pass(100);
    assert_eq!(writes(&world), before);
    world.delete("Deployment/default/web");
    world.pass(100);
    assert_eq!(told(&world, "ReadyForProvisioning")[0], "False");
    assert_eq!(replicas(&world), Value::Null, "no stale number");
}

#[test]
fn what_a_pool_does_not_allow_is_counted() {
    let mut world = cluster();
    world.pool("default", &json!({ "spec": { "limits": { "cpu": "4" } } }));
    put_room(&mut world, 4, 1_500);
    world.pass(60_000);
    let [_, reason, message] = provisioning(&world);
    assert_eq!(reason, "RequiresNewCapacity");
    assert_eq!(message, "0/4 virtual pods required new capacity, 2 failed");
    world.pool("default", &json!({ "spec": { "limits": { "cpu": "8" } } }));
    world.pass(60_000);
    assert!(has_room(&world), "{:?}", provisioning(&world));
}

#[test]
fn without_the_gate_no_status_is_written() {
    let mut world = cluster();
    world.settings.gates.capacity_buffer = false;
    world.restart();
    put_room(&mut world, 1, 1_500);
    world.pass(60_000);
    assert_eq!(writes(&world), 0);
    assert_eq!(world.claim_times(), [0; 0]);
}

#[test]
fn a_restart_launches_nothing_again() {
    let mut world = cluster();
    put_room(&mut world, 3, 1_500);
    for ms in [150, 2_000, 30_000] {
        world.pass(ms);
        world.restart();
    }
    world.pass(60_000);
    assert_eq!(world.claim_times().len(), world.names("Node").len());
    assert!(has_room(&world));
    assert_eq!(writes(&world), 3);
}
