//! Provisioning as a story: pods come, claims are made for them, and nothing is launched twice.

use crate::automatic_cluster::ordinary_cluster;
use mortise_apis::values::after;
use mortise_engine::decider_id::DeciderId;
use mortise_engine::effect::Effect;
use mortise_engine::engine::EngineInput;
use mortise_engine::record::Verdict;
use mortise_planning::reason::Reason;
use mortise_sim::test_cluster::{GROUP, KIND, TestCluster};
use mortise_state::resource_kinds::{ObjectEvent, ObjectKey};
use serde_json::json;

#[test]
fn a_single_pod_that_fits_nowhere_gets_a_claim_within_300_ms() {
    let mut world = ordinary_cluster();
    world.pass(1_000);
    world.pods("web", 1, 500, &json!({}));
    world.pass(60_000);
    let times = world.claim_times();
    // 100 ms for pods that belong to it; the scheduler's word, which comes 20 ms after the pod, does not add to them.
    assert_eq!(times, [1_100]);
    assert_eq!(world.node_types(), ["small"]);
    assert_eq!(world.pending(), 0);
    let nominated = world.events_of("Nominated");
    assert_eq!(nominated.len(), 1);
    assert!(
        nominated[0]
            .message
            .starts_with("Pod should schedule on: nodeclaim/default-"),
        "{:?}",
        nominated[0]
    );
}

#[test]
fn the_decision_says_why_and_the_claim_says_for_whom() {
    let mut world = ordinary_cluster();
    world.pods("web", 2, 500, &json!({}));
    world.pass(5_000);
    let decided = world.records_of(Verdict::NodePlanned);
    assert_eq!(decided.len(), 1);
    let text: Vec<String> = decided[0].reasons.iter().map(ToString::to_string).collect();
    assert!(text[0].starts_with("for default/web-"), "{text:?}");
    assert_eq!(text[1], "from pool default");
    assert!(
        text[2].starts_with("small in a, on-demand, $0.1000/h"),
        "{text:?}"
    );
    let name = world.names("NodeClaim").remove(0);
    assert_eq!(name.len(), "default-".len() + 5);
    let claim = world.get(&format!("NodeClaim/{name}"));
    let annotation = claim["metadata"]["annotations"]["mortise.sh/nominated-pods"]
        .as_str()
        .unwrap();
    assert_eq!(annotation.split(',').count(), 2, "{annotation}");
}

#[test]
fn a_burst_of_pods_is_solved_together() {
    let mut world = ordinary_cluster();
    for _ in 0..50 {
        world.pods("web", 1, 500, &json!({}));
        world.pass(20);
    }
    world.pass(60_000);
    let times = world.claim_times();
    let first = times.first().unwrap();
    assert!(times.iter().all(|at| at == first), "one batch: {times:?}");
    assert!((1_000..2_000).contains(first), "{times:?}");
    assert_eq!(world.pending(), 0);
    // 25 CPUs: three nodes of 8 and the rest, never more than the pods need.
    assert!(world.bill() <= 1_300_000, "{:?}", world.node_types());
    assert_eq!(world.records_of(Verdict::Nominated).len(), 50);
}

/// Long before the idle window of a second ends, and whatever else waits for the scheduler's word.
#[test]
fn pods_that_fit_nowhere_get_claims_as_soon_as_their_burst_is_over() {
    let mut world = ordinary_cluster();
    world.running_node("m1", "large", "default");
    world.pass(1_000);
    for _ in 0..6 {
        world.pods("wide", 1, 7_000, &json!({}));
        world.pass(10);
    }
    world.pods("narrow", 1, 500, &json!({}));
    world.pass(60_000);
    let times = world.claim_times();
    // Six of 7 CPUs, one of which fits on the node of 8 that is there.
    assert_eq!(times.len(), 5, "{times:?}");
    assert!(
        times.iter().all(|at| (1_060..1_300).contains(at)),
        "{times:?}"
    );
    assert_eq!(world.pending(), 0);
    assert!(world.bound()["m1"].len() == 2, "{:?}", world.bound());
}

#[test]
fn pods_that_fit_on_what_is_there_are_left_to_the_scheduler() {
    let mut world = ordinary_cluster();
    world.running_node("m1", "large", "default");
    world.pods("web", 4, 500, &json!({}));
    world.pass(30_000);
    assert!(world.claim_times().is_empty());
    assert_eq!(world.bound()["m1"].len(), 4);
}

#[test]
fn pods_that_wait_for_a_coming_node_are_no_reason_to_launch_another() {
    let mut world = ordinary_cluster();
    world.set_boot_ms(120_000);
    world.pods("web", 3, 500, &json!({}));
    world.pass(110_000);
    assert_eq!(world.claim_times().len(), 1);
    // Room is left on the coming node.
    world.pods("web", 1, 300, &json!({}));
    world.pass(5_000);
    assert_eq!(world.claim_times().len(), 1);
    // And then none.
    world.pods("web", 1, 1_500, &json!({}));
    world.pass(5_000);
    assert_eq!(world.claim_times().len(), 2);
    world.pass(200_000);
    assert_eq!(world.pending(), 0);
    assert_eq!(world.claim_times().len(), 2);
}

/// The first instance that the cloud does not launch is no reason to leave all others alone.
#[test]
fn a_claim_that_is_never_launched_holds_up_nothing_else() {
    let mut world = ordinary_cluster();
    world.running_node("empty", "small", "default");
    let slow = json!({
        "kind": "NodeClaim",
        "metadata": {
            "name": "slow",
            "labels": { "karpenter.sh/nodepool": "default" }, "finalizers": ["karpenter.sh/termination"],
        },
        "spec": {
            "nodeClassRef": { "group": GROUP, "kind": KIND, "name": "default" }, "requirements": [],
            "taints": [{ "key": "for-others", "effect": "NoSchedule" }],
        },
    });
    world.put(&slow);
    world.pass(1_000);
    world.pods("web", 1, 7_000, &json!({}));
    world.pass(60_000);
    assert!(world.get("NodeClaim/slow")["status"]["providerID"].is_null());
    assert_eq!(world.pending(), 0, "a pod got its node");
    assert_eq!(world.claim_times().len(), 1);
    assert!(
        !world.has("NodeClaim/empty"),
        "an empty node went: {:?}",
        world.names("NodeClaim")
    );
}

#[test]
fn a_pod_that_no_type_fits_is_told_why_once() {
    let mut world = ordinary_cluster();
    world.pods("huge", 1, 64_000, &json!({}));
    world.pass(120_000);
    assert!(world.claim_times().is_empty());
    let events = world.events_of("FailedScheduling");
    assert_eq!(events.len(), 1, "{events:?}");
    assert!(events[0].warning);
    assert!(
        events[0].message.starts_with("Failed to schedule pod, "),
        "{}",
        events[0].message
    );
    let records = world.records_of(Verdict::Unschedulable);
    assert_eq!(records.len(), 1);
    assert!(!records[0].reasons.is_empty());
    world.pass(300_000);
    assert_eq!(
        world.events_of("FailedScheduling").len(),
        2,
        "again after five minutes"
    );
}

#[test]
fn a_pool_whose_requirements_leave_no_type_is_told_once_a_minute() {
    let mut world = ordinary_cluster();
    let requirements = json!([
        { "key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["discontinued"] },
    ]);
    world.pool(
        "typo",
        &json!({ "spec": { "template": { "spec": { "requirements": requirements } } } }),
    );
    world.pods("huge", 1, 64_000, &json!({}));
    world.pass(30_000);
    let told = world.events_of("NoCompatibleInstanceTypes");
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0].target.to_string(), "nodepool/typo");
    world.pass(60_000);
    assert_eq!(world.events_of("NoCompatibleInstanceTypes").len(), 2);
}

#[test]
fn a_limit_holds_to_the_last_node() {
    let mut world = ordinary_cluster();
    world.pool(
        "default",
        &json!({ "spec": { "limits": { "cpu": "10", "nodes": "3" } } }),
    );
    world.pods("web", 40, 1_000, &json!({}));
    world.pass(120_000);
    assert!(world.names("Node").len() <= 3);
    let cpus: i64 = world
        .names("Node")
        .iter()
        .map(|node| {
            world.get(&format!("Node/{node}"))["status"]["capacity"]["cpu"]
                .as_str()
                .unwrap()
                .parse::<i64>()
                .unwrap()
        })
        .sum();
    assert!(
        (8..=10).contains(&cpus),
        "{cpus} CPUs of {:?}",
        world.node_types()
    );
    assert!(!world.records_of(Verdict::Unschedulable).is_empty());
    // A higher limit helps at once.
    world.pool(
        "default",
        &json!({ "spec": { "limits": { "cpu": "100", "nodes": null } } }),
    );
    world.pass(60_000);
    assert_eq!(world.pending(), 0);
}

#[test]
fn the_heavier_pool_comes_first() {
    let mut world = ordinary_cluster();
    world.pool("preferred", &json!({ "spec": { "weight": 50 } }));
    world.pods("web", 1, 500, &json!({}));
    world.pass(5_000);
    let claim = world.names("NodeClaim").remove(0);
    assert!(claim.starts_with("preferred-"), "{claim}");
}

#[test]
fn pods_of_a_failed_claim_are_planned_again_at_once() {
    let mut world = ordinary_cluster();
    world.automation.no_capacity = true;
    world.pods("web", 1, 500, &json!({}));
    world.pass(900);
    assert_eq!(world.claim_times().len(), 1);
    world.pass(400);
    let times = world.claim_times();
    assert_eq!(times.len(), 2, "{times:?}");
    // The claim was deleted a second after it was made.
    assert!(times[1] - times[0] <= 1_000, "{times:?}");
    world.automation.no_capacity = false;
    world.pass(60_000);
    assert_eq!(world.pending(), 0);
}

#[test]
fn a_refused_claim_is_tried_again_with_back_off() {
    let mut world = ordinary_cluster();
    world.answers.refused_creations = 3;
    world.pods("web", 1, 500, &json!({}));
    world.pass(60_000);
    let times = world.claim_times();
    assert_eq!(times.len(), 4, "{times:?}");
    let gaps: Vec<i64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(
        gaps[0] >= 1_000 && gaps[1] >= 2_000 && gaps[2] >= 4_000,
        "{gaps:?}"
    );
    let failed = world.records_of(Verdict::LaunchFailed);
    assert_eq!(failed.len(), 3);
    assert!(failed[0].reasons.iter().any(
        |reason| matches!(reason, Reason::Failed { error } if error.contains("denied by a policy"))
    ));
    assert_eq!(world.pending(), 0);
}

#[test]
fn names_of_claims_are_never_used_twice() {
    let mut world = ordinary_cluster();
    world.pods("web", 100, 7_500, &json!({}));
    world.pass(60_000);
    let names: Vec<String> = world
        .effects
        .iter()
        .filter_map(|(_, effect)| match &**effect {
            Effect::CreateClaim(claim) => Some(claim.name().to_string()),
            _ => None,
        })
        .collect();
    let mut unique = names.clone();
    unique.sort();
    unique.dedup();
    assert_eq!((names.len(), unique.len()), (100, 100));
}

#[test]
fn a_pod_that_opts_out_is_recorded_and_left_in_peace() {
    let mut world = ordinary_cluster();
    let term = json!({ "matchExpressions": [{ "key": "karpenter.sh/nodepool", "operator": "DoesNotExist" }] });
    let affinity = json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [term] } } });
    world.pods(
        "elsewhere",
        1,
        500,
        &json!({ "spec": { "affinity": affinity } }),
    );
    world.pass(60_000);
    assert!(world.claim_times().is_empty());
    assert_eq!(world.records_of(Verdict::Ignored).len(), 1);
    assert!(world.events_of("FailedScheduling").is_empty());
}

#[test]
fn a_pod_that_cannot_be_read_is_told_what_is_wrong() {
    let mut world = ordinary_cluster();
    let term = json!({ "matchExpressions": [{ "key": "a", "operator": "Inn", "values": ["b"] }] });
    let affinity = json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [term] } } });
    world.pods("odd", 1, 500, &json!({ "spec": { "affinity": affinity } }));
    world.pass(60_000);
    assert!(world.claim_times().is_empty());
    assert_eq!(world.events_of("FailedScheduling").len(), 1);
}

#[test]
fn a_claim_that_is_slow_to_be_created_is_waited_for_where_its_room_becomes_free() {
    let mut world = ordinary_cluster();
    world.pods("web", 1, 500, &json!({}));
    world.pass(60_000);
    let going = world.names("NodeClaim").remove(0);
    world.answers.create_ms = 600;
    let stamp = world.now().to_string();
    let deleted = json!({ "metadata": { "deletionTimestamp": stamp } });
    world.edit(&format!("NodeClaim/{going}"), &deleted);
    // The pod moves while the claim that was decided for it is on its way; the pod in its place has another UID.
    world.plan_drain(&going, 250);
    world.pass(60_000);
    assert_eq!(world.claim_times().len(), 2, "one node for one pod");
    assert_eq!(world.pending(), 0);
}

#[test]
fn a_pod_that_comes_while_a_claim_is_created_goes_on_its_node() {
    let played = |create_ms| {
        let mut world = ordinary_cluster();
        world.answers.create_ms = create_ms;
        world.pods("web", 1, 500, &json!({}));
        world.pass(300);
        world.pods("more", 1, 500, &json!({}));
        world.pass(60_000);
        world
    };
    let quick = played(600);
    assert_eq!(quick.claim_times().len(), 1, "both fit on one node");
    assert_eq!(quick.pending(), 0);
    // However long the API server takes: the claim is known, and so is the room on its node.
    let slow = played(20_000);
    assert_eq!((slow.claim_times().len(), slow.pending()), (1, 0));
}

#[test]
fn a_pod_that_went_while_its_plan_was_made_holds_no_room() {
    let nominated = |goes: bool| {
        let mut world = ordinary_cluster();
        world.pods("web", 1, 1_500, &json!({}));
        let mut nominations = 0;
        for ms in [0, 2_000] {
            let now = after(world.now(), ms);
            let job = world.engine.prepare(DeciderId::Provisioning, now).unwrap();
            let key = world.snapshot().pending.sorted()[0].0.clone();
            let finished = job.run(&|| false);
            if goes && ms > 0 {
                let news = ObjectEvent::Deleted(ObjectKey::Pod(key), None);
                world.engine.apply(EngineInput::News(news), now);
            }
            world.engine.commit(finished, now);
            nominations = world.snapshot().ledger.nominations().count();
        }
        nominations
    };
    assert_eq!(nominated(false), 1);
    assert_eq!(nominated(true), 0);
}

/// kube-scheduler asked the extender about the first of two pods, and a node was left.
#[test]
fn nothing_is_launched_for_a_pod_while_the_scheduler_has_a_node_for_it() {
    let mut world = ordinary_cluster();
    world.pass(1_000);
    world.pods("web", 2, 500, &json!({}));
    world.pass(50);
    let asked = world.names("Pod").remove(0);
    let uid = world.get(&format!("Pod/{asked}"))["metadata"]["uid"].clone();
    let signal = EngineInput::Feasible {
        pod: uid.as_str().unwrap().into(),
        at: world.now(),
    };
    world.engine.apply(signal, world.now());
    world.pass(1_000);
    assert_eq!(
        world.claim_times(),
        [1_100],
        "the other one waits for nothing"
    );
    let nominated = |world: &TestCluster| {
        let claim = world.names("NodeClaim").remove(0);
        let annotations = &world.get(&format!("NodeClaim/{claim}"))["metadata"]["annotations"];
        annotations["mortise.sh/nominated-pods"].clone()
    };
    let nominations = nominated(&world);
    assert_eq!(nominations.as_str().unwrap().split(',').count(), 1);
    let left = world.records_of(Verdict::LeftToScheduler);
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].subject.to_string(), format!("pod/{asked}"));
    assert!(world.events_of("FailedScheduling").is_empty());
    // It came to nothing, for a reason that no record tells: after two seconds the pod is ours again.
    let nominated = world.records_of(Verdict::Nominated).len();
    world.pass(1_500);
    assert_eq!(world.records_of(Verdict::Nominated).len(), nominated + 1);
    world.pass(60_000);
    assert_eq!((world.claim_times().len(), world.pending()), (1, 0));
}

/// Kube-scheduler had not refused the pod: its binding may take a while.
#[test]
fn a_pod_that_the_scheduler_never_refused_is_left_to_it_for_ten_seconds() {
    let mut world = ordinary_cluster();
    world.pass(1_000);
    world.automation.scheduler_is_down = true;
    let waits = json!({ "status": { "conditions": [{ "type": "PodScheduled", "status": "False", "reason": "" }] } });
    world.pods("web", 1, 500, &waits);
    let name = world.names("Pod").remove(0);
    let uid = world.get(&format!("Pod/{name}"))["metadata"]["uid"].clone();
    let signal = EngineInput::Feasible {
        pod: uid.as_str().unwrap().into(),
        at: world.now(),
    };
    world.engine.apply(signal, world.now());
    world.pass(9_900);
    assert!(world.claim_times().is_empty());
    world.pass(200);
    assert_eq!(world.claim_times(), [11_000]);
}

#[test]
fn no_node_is_launched_for_a_pod_on_which_the_scheduler_itself_failed() {
    let mut world = ordinary_cluster();
    world.automation.scheduler_is_down = true;
    let failed = json!({ "status": { "conditions": [{ "type": "PodScheduled", "status": "False", "reason": "SchedulerError" }] } });
    world.pods("web", 1, 500, &failed);
    world.pass(60_000);
    assert!(world.claim_times().is_empty());
    assert_eq!(world.records_of(Verdict::Ignored).len(), 1);
    let told = world.events_of("FailedScheduling");
    assert_eq!(told.len(), 1);
    assert!(
        told[0].message.contains("SchedulerError"),
        "{}",
        told[0].message
    );
    // As soon as it has an opinion on the pod, that counts.
    world.automation.scheduler_is_down = false;
    let name = world.names("Pod").remove(0);
    let refused = json!({ "status": { "conditions": [{ "type": "PodScheduled", "status": "False", "reason": "Unschedulable" }] } });
    world.edit(&format!("Pod/{name}"), &refused);
    world.pass(60_000);
    assert_eq!((world.claim_times().len(), world.pending()), (1, 0));
}
