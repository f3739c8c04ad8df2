//! Scheduling cycles: pods are assumed immediately, and events requeue unschedulable pods.

use std::sync::Arc;

use jiff::Timestamp;
use mortise_apis::labels::WellKnown;
use mortise_apis::names::PodKey;
use mortise_apis::values::after;
use mortise_state::index::Index;
use serde_json::{Value, json};

use super::super::{CycleResult, Scheduler};
use super::{HOST, REQUIRED, asks, change, node, on, scheduler, waits};
use crate::clock::StoreEvent;

fn at(ms: i64) -> Timestamp {
    after(Timestamp::UNIX_EPOCH, ms)
}

/// Name of the pod and node, `-` for none; nothing when no pod is due.
fn cycle(scheduler: &mut Scheduler, ms: i64) -> Option<(String, String)> {
    let snapshot = Index::new(WellKnown::core(), true, at(0)).freeze(at(0));
    let verdict = scheduler.cycle(&Arc::new(snapshot), at(ms), None, |_| None)?;
    Some(match verdict {
        CycleResult::Bind(pod, _, node) => (pod.name.to_string(), node.to_string()),
        CycleResult::Unschedulable(pod) => (pod.name.to_string(), "-".to_owned()),
        CycleResult::Group(group) => panic!("{group:?}"),
    })
}

fn named(mut pod: Value, name: &str) -> Value {
    pod["metadata"]["name"] = json!(name);
    pod
}

fn pair(name: &str, node: &str) -> Option<(String, String)> {
    Some((name.to_owned(), node.to_owned()))
}

fn apart() -> Value {
    let term = json!({"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": HOST});
    json!({"affinity": {"podAntiAffinity": {REQUIRED: [term]}}})
}

#[test]
fn a_scheduled_pod_is_assumed_before_the_api_server_shows_its_binding() {
    let mut scheduler = scheduler(&[], &named(asks("x", apart()), "p0"));
    for number in 1..5 {
        let more = named(asks("x", apart()), &format!("p{number}"));
        scheduler.observe(&[change(&more)], at(0));
    }
    let nodes = ["a1", "a2", "b1", "c1"].iter().enumerate();
    for (number, node) in nodes {
        assert_eq!(cycle(&mut scheduler, 0), pair(&format!("p{number}"), node));
    }
    assert_eq!(cycle(&mut scheduler, 0), pair("p4", "-"));
    assert_eq!(cycle(&mut scheduler, 0), None);
}

#[test]
fn a_new_node_requeues_a_rejected_pod_and_an_event_that_cannot_help_does_not() {
    let there =
        ["a1", "a2", "b1", "c1"].map(|name| on(name, &format!("on-{name}"), "x", json!({})));
    let mut scheduler = scheduler(&there, &asks("x", apart()));
    assert_eq!(cycle(&mut scheduler, 0), pair("new", "-"));
    // A pod that no term selects, and more allocatable resources.
    scheduler.observe(&[change(&on("a1", "other", "y", json!({})))], at(10));
    let room = json!({"status": {"allocatable": {"cpu": "9"}}});
    scheduler.observe(&[change(&node("a1", "a", room))], at(10));
    assert_eq!(scheduler.next_due(at(10)), Some(at(300_000)));
    scheduler.observe(&[change(&node("d1", "d", json!({})))], at(10));
    assert_eq!(scheduler.next_due(at(10)), Some(at(1_000)));
    assert_eq!(cycle(&mut scheduler, 999), None);
    assert_eq!(cycle(&mut scheduler, 1_000), pair("new", "d1"));
}

#[test]
fn a_deleted_pod_requeues_the_pods_that_its_anti_affinity_rejected() {
    let there =
        ["a1", "a2", "b1", "c1"].map(|name| on(name, &format!("on-{name}"), "x", json!({})));
    let mut scheduler = scheduler(&there, &asks("x", apart()));
    assert_eq!(cycle(&mut scheduler, 0), pair("new", "-"));
    let gone = StoreEvent {
        object: None,
        ..change(&there[2])
    };
    scheduler.observe(&[gone], at(2_000));
    assert_eq!(cycle(&mut scheduler, 2_000), pair("new", "b1"));
}

#[test]
fn pods_of_other_schedulers_and_gated_pods_are_ignored() {
    let gated = json!({"schedulingGates": [{"name": "hold"}]});
    let mut scheduler = scheduler(&[], &asks("x", gated));
    let others = named(asks("x", json!({"schedulerName": "another"})), "others");
    let going = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    let going = named(waits("x", going), "going");
    scheduler.observe(&[change(&others), change(&going)], at(0));
    assert_eq!(cycle(&mut scheduler, 0), None);
    scheduler.observe(&[change(&asks("x", json!({})))], at(0));
    assert_eq!(cycle(&mut scheduler, 0), pair("new", "a1"));
    let key = PodKey::new("default", "new");
    assert_eq!(
        scheduler
            .cache
            .pods
            .get(&key)
            .and_then(|pod| pod.node.clone()),
        Some("a1".to_owned())
    );
}

#[test]
fn without_a_node_a_pod_waits_for_the_first() {
    let mut scheduler = Scheduler::default();
    scheduler.observe(&[change(&asks("x", json!({})))], at(0));
    assert_eq!(cycle(&mut scheduler, 0), pair("new", "-"));
    scheduler.observe(&[change(&node("a1", "a", json!({})))], at(5_000));
    assert_eq!(cycle(&mut scheduler, 5_000), pair("new", "a1"));
}

#[test]
fn a_deleted_node_gets_no_pods() {
    let mut scheduler = scheduler(&[on("a1", "old", "x", json!({}))], &asks("y", json!({})));
    for name in ["a1", "a2", "b1"] {
        let gone = StoreEvent {
            object: None,
            ..change(&node(name, "a", json!({})))
        };
        scheduler.observe(&[gone], at(0));
    }
    assert_eq!(cycle(&mut scheduler, 0), pair("new", "c1"));
}
