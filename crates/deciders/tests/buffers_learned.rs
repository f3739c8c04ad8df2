//! Buffers that learn from the replicas of their workload.

use mortise_apis::karpenter::capacitybuffer::ReplicaPeaks;
use mortise_deciders::{CapacityBufferDecider, ProvisioningDecider};
use mortise_engine::decider::Decider;
use mortise_engine::effect::Effect;
use mortise_engine::write::{ObjectEdit, ObjectWrite};
use mortise_planning::settings::Settings;
use mortise_sim::test_cluster::TestCluster;
use serde_json::{Value, json};

use crate::buffers::cluster_with;

const PEAKS: &str = "mortise.sh/replica-peaks";
const MINUTE: i64 = 60_000;

fn deciders(_: &Settings) -> Vec<Box<dyn Decider>> {
    vec![
        Box::new(CapacityBufferDecider::default()),
        Box::new(ProvisioningDecider::new()),
    ]
}

fn cluster() -> TestCluster {
    cluster_with(deciders)
}

fn scale(world: &mut TestCluster, replicas: u32) {
    world.put(&json!({
        "kind": "Deployment", "metadata": { "name": "web", "namespace": "default" },
        "spec": { "replicas": replicas, "selector": { "matchLabels": { "app": "web" } }, "template": {
            "metadata": { "labels": { "app": "web" } },
            "spec": { "containers": [{ "name": "c", "resources": { "requests": { "cpu": "1", "memory": "1Gi" } } }] },
        } },
    }));
    world.settle();
}

fn put_buffer(world: &mut TestCluster, annotations: &Value) {
    world.put(&json!({
        "kind": "CapacityBuffer", "metadata": { "name": "room", "namespace": "default", "annotations": annotations },
        "spec": { "scalableRef": { "apiGroup": "apps", "kind": "Deployment", "name": "web" } },
    }));
    world.settle();
}

/// Learns of a workload with two replicas.
fn observing() -> TestCluster {
    let mut world = cluster();
    scale(&mut world, 2);
    put_buffer(
        &mut world,
        &json!({ "mortise.sh/buffer-learning": "observe" }),
    );
    world
}

fn buffer(world: &TestCluster) -> &Value {
    world.get("CapacityBuffer/default/room")
}

fn peaks(world: &TestCluster) -> &str {
    buffer(world)["metadata"]["annotations"][PEAKS]
        .as_str()
        .unwrap_or_default()
}

/// The recorded peaks, without the first hour.
fn recorded(world: &TestCluster) -> &str {
    let (_, recorded) = peaks(world).split_once(' ').unwrap();
    recorded
}

/// Status, reason and message of what was learned.
fn told(world: &TestCluster) -> [&str; 3] {
    let list = buffer(world)["status"]["conditions"].as_array();
    let mut list = list.into_iter().flatten();
    let found = list.find(|each| each["type"] == "DemandLearned");
    ["status", "reason", "message"].map(|field| {
        let text = found.and_then(|found| found[field].as_str());
        text.unwrap_or_default()
    })
}

/// Peaks that were written.
fn writes(world: &TestCluster) -> usize {
    let is_of_peaks = |effect: &Effect| {
        matches!(
            effect,
            Effect::Write(ObjectWrite {
                edit: ObjectEdit::SetReplicaPeaks(_),
                ..
            })
        )
    };
    let all = world.effects.iter();
    all.filter(|(_, effect)| is_of_peaks(effect)).count()
}

#[test]
fn the_most_replicas_of_each_hour_are_written_and_few_writes_are_needed() {
    let mut world = observing();
    assert_eq!((recorded(&world), writes(&world)), ("2", 1));
    let [status, reason, message] = told(&world);
    assert_eq!((status, reason), ("False", "Recording"));
    assert!(
        message.starts_with("the replicas of the workload are recorded since "),
        "{message}"
    );
    // A workload that grows pod by pod is written once it grew for a while.
    for replicas in 3..12 {
        scale(&mut world, replicas);
        world.pass(10_000);
    }
    scale(&mut world, 4);
    assert_eq!(writes(&world), 1);
    world.pass(10 * MINUTE);
    assert_eq!((recorded(&world), writes(&world)), ("11", 2));
    // A peak at the end of the hour, and one of the next hour.
    world.pass(46 * MINUTE);
    for replicas in [12, 13, 4] {
        scale(&mut world, replicas);
    }
    world.pass(60 * MINUTE);
    assert_eq!((recorded(&world), writes(&world)), ("13 4", 4));
    let mut late = world.get("CapacityBuffer/default/room").clone();
    world.pass(5 * 60 * MINUTE);
    assert_eq!(
        (recorded(&world), writes(&world)),
        ("13 4*6", 9),
        "one an hour"
    );
    // A start in between loses nothing of what was written.
    world.restart();
    world.pass(MINUTE);
    assert_eq!((recorded(&world), writes(&world)), ("13 4*6", 9));
    // Replacing the object removes what was learned, and it begins again.
    late["metadata"]["annotations"] = json!({ "mortise.sh/buffer-learning": "observe" });
    world.put(&late);
    world.pass(MINUTE);
    assert_eq!(recorded(&world), "4");
    assert_eq!(world.violations(), [""; 0]);
}

#[test]
fn hours_without_a_service_are_not_known() {
    let mut world = observing();
    world.lead(false);
    world.pass(3 * 60 * MINUTE);
    scale(&mut world, 5);
    world.lead(true);
    world.pass(MINUTE);
    assert_eq!(recorded(&world), "2 -*2 5");
}

/// Peaks of two weeks until now: this many in each hour.
fn two_weeks(world: &TestCluster, replicas: u32) -> String {
    let mut peaks = ReplicaPeaks::default();
    for hour in (1..=2 * 168).rev() {
        let at = world.now() - jiff::SignedDuration::from_hours(hour);
        peaks.record(at, replicas);
    }
    peaks.to_string()
}

#[test]
fn what_is_expected_is_shown_before_it_is_applied() {
    let mut world = cluster();
    scale(&mut world, 2);
    let peaks = two_weeks(&world, 5);
    let annotations = |mode: &str| json!({ "mortise.sh/buffer-learning": mode, PEAKS: peaks });
    put_buffer(&mut world, &annotations("observe"));
    let [status, reason, message] = told(&world);
    assert_eq!((status, reason), ("True", "Observed"));
    let expected = "5 replicas are expected until ";
    let rest = "(percentile 90 of 2 weeks); in the last week 168 of 168 hours had no more than were expected";
    assert!(
        message.starts_with(expected) && message.ends_with(rest),
        "{message}"
    );
    assert_eq!(buffer(&world)["status"]["replicas"], 0);
    world.pass(MINUTE);
    assert_eq!(world.claim_times().len(), 0, "nothing is launched");
    put_buffer(&mut world, &annotations("apply"));
    assert_eq!(told(&world)[1], "Applied");
    assert_eq!(
        buffer(&world)["status"]["replicas"],
        3,
        "two of five are there"
    );
    world.pass(MINUTE);
    assert!(!world.claim_times().is_empty());
    // Pods that come take the place of room.
    scale(&mut world, 4);
    assert_eq!(buffer(&world)["status"]["replicas"], 1);
    // Without learning nothing of it is left.
    put_buffer(&mut world, &json!({ PEAKS: peaks }));
    assert_eq!(told(&world), [""; 3]);
    assert_eq!(buffer(&world)["status"]["replicas"], 0);
}

#[test]
fn peaks_that_cannot_be_read_are_left_alone() {
    let mut world = cluster();
    scale(&mut world, 2);
    put_buffer(
        &mut world,
        &json!({ "mortise.sh/buffer-learning": "apply", PEAKS: "2026-01-05T07:00:00Z 3 many" }),
    );
    let [status, reason, message] = told(&world);
    assert_eq!((status, reason), ("False", "RecordingUnreadable"));
    assert!(
        message.contains(
            "mortise.sh/replica-peaks cannot be read: \"many\" is not a number of replicas"
        ),
        "{message}"
    );
    world.pass(3 * 60 * MINUTE);
    assert_eq!((recorded(&world), writes(&world)), ("3 many", 0));
}
