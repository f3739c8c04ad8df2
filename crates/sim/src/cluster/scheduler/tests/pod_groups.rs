//! Groups of pods: bound together, or not at all.

use std::sync::Arc;

use jiff::Timestamp;
use mortise_apis::labels::WellKnown;
use mortise_apis::names::NamespacedName;
use mortise_apis::values::after;
use mortise_state::index::Index;
use mortise_state::resource_kinds::ObjectKey;
use serde_json::{Value, json};

use super::super::{CycleResult, GroupResult, Scheduler};
use super::{asks, change, cpu, node, on, scheduler};
use crate::clock::StoreEvent;

fn at(ms: i64) -> Timestamp {
    after(Timestamp::UNIX_EPOCH, ms)
}

fn member(name: &str, amount: &str) -> Value {
    let mut pod = asks("x", json!({ "containers": cpu(amount) }));
    pod["metadata"]["name"] = json!(name);
    pod["metadata"]["uid"] = json!(name);
    pod["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] = json!("train");
    pod
}

fn group(min: Option<i64>) -> StoreEvent {
    StoreEvent {
        key: ObjectKey::CoschedulingPodGroup(NamespacedName::new("default", "train")),
        object: min.map(|min| {
            json!({ "metadata": { "name": "train", "namespace": "default" }, "spec": { "minMember": min } })
        }),
        version: 0,
    }
}

/// The pods that are bound with their nodes, and the number of those that wait.
fn tried(scheduler: &mut Scheduler, ms: i64) -> (Vec<(String, String)>, usize) {
    let snapshot = Index::new(WellKnown::core(), true, at(0)).freeze(at(0));
    let result = scheduler.cycle(&Arc::new(snapshot), at(ms), None, |_| None);
    let Some(CycleResult::Group(GroupResult {
        bound, rejected, ..
    })) = result
    else {
        panic!("{result:?}");
    };
    let bound = bound.into_iter();
    let bound = bound.map(|(pod, _, node)| (pod.name.to_string(), node.to_string()));
    (bound.collect(), rejected.len())
}

fn names(bound: &[(String, String)]) -> Vec<&str> {
    bound.iter().map(|(pod, _)| pod.as_str()).collect()
}

/// Four nodes of 4 CPUs, a group of this size, and pods of it.
fn with_pods(min: i64, pods: &[Value]) -> Scheduler {
    let (first, others) = pods.split_first().unwrap();
    let mut scheduler = scheduler(&[], first);
    scheduler.observe(&[group(Some(min))], at(0));
    for pod in others {
        scheduler.observe(&[change(pod)], at(0));
    }
    scheduler
}

#[test]
fn a_group_waits_for_its_pods_and_is_bound_at_one_time() {
    let mut scheduler = with_pods(3, &[member("p0", "3"), member("p1", "3")]);
    assert_eq!(tried(&mut scheduler, 1_000), (vec![], 2));
    assert_eq!(
        scheduler.next_due(at(1_000)),
        Some(at(301_000)),
        "nothing else helps"
    );
    scheduler.observe(&[change(&member("p2", "3"))], at(2_000));
    let (bound, waiting) = tried(&mut scheduler, 2_000);
    assert_eq!((names(&bound), waiting), (vec!["p0", "p1", "p2"], 0));
    assert_eq!(scheduler.next_due(at(2_000)), None);
}

#[test]
fn without_room_for_all_none_is_bound_and_no_room_is_held() {
    let pods: Vec<Value> = (0..5).map(|nth| member(&format!("p{nth}"), "3")).collect();
    let mut scheduler = with_pods(5, &pods);
    assert_eq!(tried(&mut scheduler, 0), (vec![], 5));
    assert!(
        scheduler
            .cache
            .node_infos
            .values()
            .all(|node| node.pods.is_empty())
    );
    scheduler.observe(&[change(&node("d1", "a", json!({})))], at(5_000));
    let (bound, waiting) = tried(&mut scheduler, 5_000);
    assert_eq!((bound.len(), waiting), (5, 0));
}

#[test]
fn pods_that_run_count_and_more_than_are_needed_are_bound_as_far_as_there_is_room() {
    let mut running = on("a1", "p9", "x", json!({}));
    running["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] = json!("train");
    let mut pods = vec![running];
    pods.extend((0..5).map(|nth| member(&format!("p{nth}"), "3")));
    let mut scheduler = with_pods(4, &pods);
    let (bound, waiting) = tried(&mut scheduler, 0);
    assert_eq!((names(&bound), waiting), (vec!["p0", "p1", "p2", "p3"], 1));
}

#[test]
fn a_pod_whose_group_does_not_exist_waits_for_it() {
    let mut scheduler = with_pods(1, &[member("p0", "3")]);
    scheduler.observe(&[group(None)], at(0));
    assert_eq!(tried(&mut scheduler, 1_000), (vec![], 1));
    scheduler.observe(&[group(Some(1))], at(2_000));
    assert_eq!(names(&tried(&mut scheduler, 3_000).0), ["p0"]);
}

#[test]
fn where_there_are_no_groups_or_they_are_ignored_pods_are_bound_one_by_one() {
    for is_served in [true, false] {
        let mut scheduler = scheduler(&[], &member("p0", "3"));
        if is_served {
            scheduler.observe(&[group(Some(3))], at(0));
            scheduler.ignore_groups(true);
        }
        let snapshot = Index::new(WellKnown::core(), true, at(0)).freeze(at(0));
        let result = scheduler.cycle(&Arc::new(snapshot), at(2_000), None, |_| None);
        assert!(matches!(result, Some(CycleResult::Bind(..))), "{result:?}");
    }
}
