//! ProvisioningRequests as a story: room for all pods or none, on nodes that are there or new, kept until it is used or too old.

use crate::automatic_cluster::{automatic_cluster, fleet, random, running};
use mortise_deciders::{DisruptionDecider, ProvisioningDecider, ProvisioningRequestDecider};
use mortise_engine::decider::Decider;
use mortise_planning::settings::Settings;
use mortise_sim::test_cluster::{TestCluster, ordinary_types};
use mortise_state::snapshot::GangKind;
use serde_json::{Value, json};

const SECOND: i64 = 1_000;
const MINUTE: i64 = 60 * SECOND;
const CHECK: &str = "check-capacity.autoscaling.x-k8s.io";
const ATOMIC: &str = "best-effort-atomic-scale-up.autoscaling.x-k8s.io";

fn settings() -> Settings {
    Settings {
        provisioning_requests: true,
        gangs: [GangKind::Request].into(),
        ..Settings::default()
    }
}

fn deciders(_: &Settings) -> Vec<Box<dyn Decider>> {
    vec![
        Box::new(ProvisioningDecider::new()),
        Box::new(DisruptionDecider::new()),
        Box::new(ProvisioningRequestDecider::default()),
    ]
}

/// Types of 2, 4 and 8 CPUs, and a NodePool `default` that may have this number of nodes.
fn cluster(most_nodes: usize) -> TestCluster {
    let mut world = TestCluster::with_types(deciders, settings(), ordinary_types());
    world.put_automatic_pool();
    let limits = json!({ "spec": { "limits": { "nodes": most_nodes.to_string() } } });
    world.pool("default", &limits);
    world
}

fn template(world: &mut TestCluster, name: &str, cpu: i64) {
    world.put(&json!({
        "kind": "PodTemplate", "metadata": { "name": name, "namespace": "default" },
        "template": {
            "metadata": { "labels": { "app": name } },
            "spec": { "containers": [{ "name": "c", "resources": { "requests": { "cpu": format!("{cpu}m"), "memory": format!("{cpu}Mi") } } }] },
        },
    }));
}

/// A request for pods of the template `work`.
fn request(world: &mut TestCluster, class: &str, count: i64, parameters: &Value) {
    let sets = json!([{ "podTemplateRef": { "name": "work" }, "count": count }]);
    request_of(world, ("batch", class), &sets, parameters);
}

fn request_of(
    world: &mut TestCluster,
    (name, class): (&str, &str),
    sets: &Value,
    parameters: &Value,
) {
    world.put(&json!({
        "kind": "ProvisioningRequest", "metadata": { "name": name, "namespace": "default" },
        "spec": { "podSets": sets, "provisioningClassName": class, "parameters": parameters },
    }));
}

/// Status and reason of a condition; empty where there is none.
fn condition(world: &TestCluster, type_: &str) -> [String; 2] {
    let [status, reason, _] = told(world, type_);
    [status, reason]
}

fn told(world: &TestCluster, type_: &str) -> [String; 3] {
    let status = &world.get("ProvisioningRequest/default/batch")["status"];
    let list = status["conditions"].as_array().cloned().unwrap_or_default();
    let found = list.iter().find(|each| each["type"] == type_);
    ["status", "reason", "message"].map(|field| {
        let text = found.and_then(|found| found[field].as_str());
        text.unwrap_or_default().to_owned()
    })
}

fn nodes(world: &TestCluster) -> usize {
    world.names("Node").len()
}

/// Pods that use the request.
fn users(world: &mut TestCluster, count: usize, cpu: i64) {
    let annotations = json!({ "autoscaling.x-k8s.io/consume-provisioning-request": "batch" });
    let patch = json!({ "metadata": { "annotations": annotations } });
    world.pods("user", count, cpu, &patch);
}

#[test]
fn nodes_are_launched_for_a_request_and_kept_for_its_pods() {
    let mut world = cluster(10);
    template(&mut world, "work", 1_500);
    request(&mut world, ATOMIC, 4, &json!({}));
    world.pass(2 * SECOND);
    assert_eq!(condition(&world, "Accepted"), ["True", "Accepted"]);
    let coming = condition(&world, "Provisioned");
    assert_eq!(coming, ["False", "WaitingForNodes"]);
    world.pass(3 * MINUTE);
    let found = condition(&world, "Provisioned");
    assert_eq!(found, ["True", "CapacityIsProvisioned"]);
    let launched = nodes(&world);
    // Empty as they are, they stay as long as the room is booked.
    world.pass(6 * MINUTE);
    assert_eq!(nodes(&world), launched);
    assert_eq!(condition(&world, "BookingExpired"), ["", ""]);

    users(&mut world, 4, 1_500);
    world.pass(MINUTE);
    assert_eq!((running(&world, "user"), nodes(&world)), (4, launched));
    world.pass(10 * MINUTE);
    let expired = condition(&world, "BookingExpired");
    assert_eq!(expired, ["True", "CapacityReservationTimeExpired"]);
    assert_eq!((running(&world, "user"), nodes(&world)), (4, launched));
    assert!(world.violations().is_empty());
}

#[test]
fn room_that_nothing_uses_is_free_again() {
    let mut world = cluster(10);
    template(&mut world, "work", 1_500);
    request(&mut world, ATOMIC, 3, &json!({}));
    world.pass(5 * MINUTE);
    assert!(nodes(&world) > 0);
    world.pass(30 * MINUTE);
    assert_eq!(nodes(&world), 0);
    let expired = condition(&world, "BookingExpired");
    assert_eq!(expired, ["True", "CapacityReservationTimeExpired"]);
}

#[test]
fn a_deleted_request_keeps_no_room() {
    let mut world = cluster(10);
    template(&mut world, "work", 1_500);
    request(&mut world, ATOMIC, 3, &json!({}));
    world.pass(5 * MINUTE);
    world.erase("ProvisioningRequest/default/batch");
    world.pass(20 * MINUTE);
    assert_eq!(nodes(&world), 0);
    assert!(world.snapshot().pods.is_empty());
}

#[test]
fn a_request_gets_all_its_room_or_none() {
    let mut world = cluster(1);
    template(&mut world, "work", 7_000);
    request(
        &mut world,
        ATOMIC,
        3,
        &json!({ "ValidUntilSeconds": "600" }),
    );
    world.pass(2 * MINUTE);
    let [status, reason, message] = told(&world, "Provisioned");
    assert_eq!([&*status, &*reason], ["False", "CapacityIsNotFound"]);
    let why = "ProvisioningRequest default/batch runs 3 pods together or none, and only 1 have a place; pod default/batch-0-";
    assert!(message.contains(why), "{message}");
    assert!(world.names("NodeClaim").is_empty());
    // Once there may be enough nodes, it gets them.
    world.pool(
        "default",
        &json!({ "spec": { "limits": { "nodes": "3" } } }),
    );
    world.pass(3 * MINUTE);
    assert_eq!(condition(&world, "Provisioned")[0], "True");
    assert_eq!(nodes(&world), 3);
}

#[test]
fn a_request_without_room_fails_when_it_is_too_old() {
    let mut world = cluster(0);
    template(&mut world, "work", 1_000);
    request(&mut world, ATOMIC, 1, &json!({ "ValidUntilSeconds": "90" }));
    world.pass(89 * SECOND);
    assert_eq!(condition(&world, "Failed"), ["", ""]);
    world.pass(2 * SECOND);
    assert_eq!(condition(&world, "Failed"), ["True", "Expired"]);
    world.pool(
        "default",
        &json!({ "spec": { "limits": { "nodes": "3" } } }),
    );
    world.pass(5 * MINUTE);
    assert!(world.names("NodeClaim").is_empty());
}

#[test]
fn a_check_uses_what_is_there_and_launches_nothing() {
    let mut world = cluster(10);
    fleet(&mut world, "medium", &[1_500, 1_500]);
    template(&mut world, "work", 2_000);
    request(&mut world, CHECK, 2, &json!({}));
    world.pass(MINUTE);
    let found = condition(&world, "Provisioned");
    assert_eq!(found, ["True", "CapacityIsFound"]);
    assert_eq!(nodes(&world), 2);
}

#[test]
fn a_check_without_room_is_made_again_or_fails() {
    for (parameters, failed) in [
        (json!({}), ["", ""]),
        (json!({ "noRetry": "true" }), ["True", "CapacityIsNotFound"]),
    ] {
        let mut world = cluster(10);
        fleet(&mut world, "medium", &[1_500, 1_500]);
        template(&mut world, "work", 2_000);
        request(&mut world, CHECK, 3, &parameters);
        // Other pods of the same size get their node.
        world.pods("other", 1, 2_000, &json!({}));
        world.pass(5 * SECOND);
        assert_eq!(condition(&world, "Failed"), failed);
        world.pass(3 * MINUTE);
        assert_eq!(running(&world, "other"), 1);
        if failed[0].is_empty() {
            let provisioned = condition(&world, "Provisioned");
            assert_eq!(provisioned, ["False", "CapacityIsNotFound"]);
        }
    }
}

#[test]
fn pods_wait_for_the_request_that_they_use() {
    let mut world = cluster(1);
    template(&mut world, "work", 7_000);
    users(&mut world, 2, 7_000);
    request(&mut world, ATOMIC, 2, &json!({}));
    world.pass(MINUTE);
    assert!(world.names("NodeClaim").is_empty());
    world.pool(
        "default",
        &json!({ "spec": { "limits": { "nodes": "2" } } }),
    );
    world.pass(4 * MINUTE);
    assert_eq!((running(&world, "user"), nodes(&world)), (2, 2));
}

#[test]
fn each_pod_takes_a_place_of_its_size() {
    let mut world = cluster(10);
    template(&mut world, "work", 1_500);
    template(&mut world, "driver", 3_500);
    let sets = json!([
        { "podTemplateRef": { "name": "driver" }, "count": 1 },
        { "podTemplateRef": { "name": "work" }, "count": 2 },
    ]);
    request_of(&mut world, ("batch", ATOMIC), &sets, &json!({}));
    world.pass(4 * MINUTE);
    assert_eq!(condition(&world, "Provisioned")[0], "True");
    users(&mut world, 1, 1_500);
    world.pass(10 * SECOND);
    let snapshot = world.snapshot();
    let left: Vec<&str> = snapshot
        .pending
        .sorted()
        .into_iter()
        .map(|(key, _)| &*key.name)
        .collect();
    assert_eq!(left, ["batch-0-0", "batch-1-0"]);
}

#[test]
fn what_cannot_be_resolved_is_told_and_loses_nothing() {
    let mut world = cluster(10);
    template(&mut world, "werk", 1_000);
    request(&mut world, ATOMIC, 1, &json!({}));
    world.pass(SECOND);
    let [status, reason, message] = told(&world, "Provisioned");
    assert_eq!([&*status, &*reason], ["False", "FailedToCreatePods"]);
    let expected = "PodTemplate \"work\" does not exist in the namespace; did you mean \"werk\"?";
    assert_eq!(message, expected);
    template(&mut world, "work", 1_000);
    world.pass(3 * MINUTE);
    assert_eq!(condition(&world, "Provisioned")[0], "True");
}

#[test]
fn another_leader_goes_on_where_the_first_stopped() {
    let mut world = cluster(10);
    template(&mut world, "work", 1_500);
    request(&mut world, ATOMIC, 4, &json!({}));
    world.pass(2 * SECOND);
    world.restart();
    world.pass(3 * MINUTE);
    assert_eq!(condition(&world, "Provisioned")[0], "True");
    let launched = world.launched();
    world.restart();
    world.pass(2 * MINUTE);
    users(&mut world, 4, 1_500);
    world.pass(MINUTE);
    assert_eq!((running(&world, "user"), world.launched()), (4, launched));
}

#[test]
fn requests_of_others_are_left_alone() {
    let mut world = cluster(10);
    template(&mut world, "work", 1_500);
    request(&mut world, "queued-provisioning.gke.io", 1, &json!({}));
    world.pass(MINUTE);
    assert!(world.get("ProvisioningRequest/default/batch")["status"].is_null());
    // Without the setting none is served.
    let mut world = automatic_cluster(ordinary_types(), Settings::default());
    template(&mut world, "work", 1_500);
    request(&mut world, ATOMIC, 1, &json!({}));
    world.pass(MINUTE);
    assert!(world.names("NodeClaim").is_empty());
}

/// A request that comes at random.
struct Arrival {
    name: String,
    pods: usize,
    is_used: bool,
    users_at: Option<i64>,
    ends_at: Option<i64>,
}

/// Pods that stand for a request and have a place.
fn places(world: &mut TestCluster, name: &str) -> usize {
    let snapshot = world.snapshot();
    let waiting = snapshot.pods.values().filter(|pod| {
        let gang = pod.gang.as_ref().map(|gang| &*gang.group.name);
        pod.requested.is_some() && gang == Some(name)
    });
    waiting
        .filter(|pod| snapshot.ledger.nomination(&pod.uid).is_some())
        .count()
}

fn is_true(world: &TestCluster, name: &str, type_: &str) -> bool {
    let status = &world.get(&format!("ProvisioningRequest/default/{name}"))["status"];
    let list = status["conditions"].as_array().into_iter().flatten();
    let mut found = list.filter(|each| each["type"] == type_);
    found.any(|each| each["status"] == "True")
}

/// 100 requests for 1 to 16 pods, in a NodePool with room for two or three, with minutes without capacity and leaders that are lost. One in
/// ten is never used.
#[test]
fn requests_that_come_at_random_are_never_served_in_part() {
    let small = ordinary_types().into_iter().take(1).collect();
    let mut world = TestCluster::with_types(deciders, settings(), small);
    world.put_automatic_pool();
    world.pool(
        "default",
        &json!({ "spec": { "limits": { "nodes": "30" } } }),
    );
    world.automation.keeps_nominations = true;
    template(&mut world, "work", 1_500);
    let mut random = random(7);
    let mut open: Vec<Arrival> = Vec::new();
    let (mut made, mut ended, mut pods, mut second, mut restarted) = (0, 0, 0, 0_i64, -60);
    while ended < 100 {
        assert!(second < 12 * 3_600, "{ended} of 100 requests are over");
        if made < 100 && random(40) == 0 {
            let (name, count) = (format!("r{made:03}"), 1 + random(16));
            let sets = json!([{ "podTemplateRef": { "name": "work" }, "count": count }]);
            request_of(&mut world, (&name, ATOMIC), &sets, &json!({}));
            let is_used = random(10) > 0;
            open.push(Arrival {
                name,
                pods: count,
                is_used,
                users_at: None,
                ends_at: None,
            });
            (made, pods) = (made + 1, pods + count);
        }
        if random(300) == 0 {
            world.restart();
            restarted = second;
        }
        world.automation.no_capacity = (1_800..1_920).contains(&second);
        let mut later =
            |least: i64, more: u64| second + least + i64::try_from(random(more)).unwrap_or(0);
        for request in &mut open {
            if request.users_at.is_none() && is_true(&world, &request.name, "Provisioned") {
                request.users_at = Some(later(1, 60));
            }
            if request.users_at == Some(second) && request.is_used {
                let annotations =
                    json!({ "autoscaling.x-k8s.io/consume-provisioning-request": request.name });
                let patch = json!({ "metadata": { "annotations": annotations } });
                world.pods(&request.name, request.pods, 1_500, &patch);
                request.ends_at = Some(later(60, 180));
            }
            if request.ends_at == Some(second) {
                assert_eq!(
                    running(&world, &request.name),
                    request.pods,
                    "{}",
                    request.name
                );
                world.scale_down(&request.name, request.pods);
            }
        }
        let is_over = |request: &Arrival, world: &TestCluster| {
            request.ends_at == Some(second) || is_true(world, &request.name, "BookingExpired")
        };
        open.retain(|request| {
            let is_over = is_over(request, &world);
            if is_over {
                world.erase(&format!("ProvisioningRequest/default/{}", request.name));
                ended += 1;
            }
            !is_over
        });
        world.pass(SECOND);
        second += 1;
        // Launches that fail take some places away, as a new leader does; the request is whole again soon.
        if (1_800..2_400).contains(&second) || second < restarted + 15 {
            continue;
        }
        for request in open.iter().filter(|request| request.users_at.is_none()) {
            let found = places(&mut world, &request.name);
            assert!(
                found == 0 || found == request.pods,
                "{found} of {} places of {} after {second} s",
                request.pods,
                request.name
            );
        }
    }
    world.pass(20 * MINUTE);
    assert_eq!((nodes(&world), world.names("NodeClaim").len()), (0, 0));
    assert!(world.snapshot().pods.is_empty());
    assert!(world.violations().is_empty(), "{:?}", world.violations());
    let times = world.claim_times();
    let is_after_shortage = |at: &&i64| !(1_800 * SECOND..2_100 * SECOND).contains(*at);
    let launched = times.iter().filter(is_after_shortage).count();
    assert!(
        launched * 100 <= pods * 102,
        "{launched} NodeClaims for {pods} pods"
    );
}
