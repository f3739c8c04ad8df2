//! What is paid for in advance is used first and no further, wherever nodes come from; what is not used saves nothing.

use crate::world::scenarios::{long, nodes_by_capacity_type as nodes, played_with, pool, spread};
use mortise_sim::scenario::ScenarioReport;
use serde_json::{Value, json};

fn policy(name: &str, commitments: &Value) -> Value {
    json!({
        "apiVersion": "mortise.sh/v1alpha1", "kind": "NodePoolPolicy", "metadata": { "name": name, "generation": 1 },
        "spec": { "nodePools": ["general"], "commitments": commitments },
    })
}

fn reserved(instances: u32) -> Value {
    policy("paid", &json!([{ "name": "ri", "instances": instances }]))
}

fn play(minutes: u32, timeline: &Value, policies: &[Value]) -> ScenarioReport {
    play_with(pool(), minutes, timeline, policies)
}

fn play_with(pool: Value, minutes: u32, timeline: &Value, policies: &[Value]) -> ScenarioReport {
    let own = [pool, spread(40)];
    let manifests: Vec<Value> = own.into_iter().chain(policies.iter().cloned()).collect();
    let report = played_with(&long(&format!("{minutes}m"), timeline), &manifests).unwrap();
    assert_eq!(report.totals.violations, Vec::<String>::new());
    report
}

#[test]
fn new_nodes_use_what_is_paid_for_and_no_more() {
    let nothing = json!([]);
    let of = |commitments: Value| {
        let report = play(10, &nothing, &[policy("paid", &commitments)]);
        nodes(&report)
    };
    let types = |of: &str| json!([{ "key": "node.kubernetes.io/instance-type", "operator": "In", "values": [of] }]);
    let smallest = play(10, &nothing, &[reserved(1)]);
    let smallest = smallest
        .nodes
        .iter()
        .find(|node| node.capacity_type == "on-demand");
    let smallest = smallest.unwrap().instance_type.clone();
    let table = [
        (json!([{ "name": "ri", "instances": 10 }]), (10, 30)),
        (json!([{ "name": "ri", "instances": 0 }]), (0, 40)),
        (json!([{ "name": "ri", "instances": 100 }]), (40, 0)),
        // Of one type, and another one.
        (
            json!([{ "name": "ri", "instances": 10, "requirements": types(&smallest) }]),
            (10, 30),
        ),
        (
            json!([{ "name": "ri", "instances": 10, "requirements": types("none-such") }]),
            (0, 40),
        ),
        // Two after another.
        (
            json!([{ "name": "a", "instances": 3 }, { "name": "b", "instances": 4 }]),
            (7, 33),
        ),
        // A label that no node has.
        (
            json!([{ "name": "ri", "instances": 10, "requirements": [{ "key": "team", "operator": "Exists" }] }]),
            (0, 40),
        ),
        (
            json!([{ "name": "ri", "instances": 10, "requirements": [{ "key": "team", "operator": "DoesNotExist" }] }]),
            (10, 30),
        ),
        // It has ended.
        (
            json!([{ "name": "ri", "instances": 10, "until": "2020-01-01T00:00:00Z" }]),
            (0, 40),
        ),
    ];
    for (commitments, expected) in table {
        assert_eq!(of(commitments.clone()), expected, "{commitments}");
    }
    // Commitments of another policy count as well, those for other NodePools do not.
    let mut elsewhere = reserved(5);
    elsewhere["metadata"]["name"] = json!("more");
    let both = play(10, &nothing, &[reserved(10), elsewhere.clone()]);
    assert_eq!(nodes(&both), (15, 25));
    elsewhere["spec"]["nodePools"] = json!(["other"]);
    let one = play(10, &nothing, &[reserved(10), elsewhere]);
    assert_eq!(nodes(&one), (10, 30));
}

#[test]
fn growth_and_shrinking_use_what_is_paid_for() {
    let scale = |at: &str, replicas: u32| json!({ "at": at, "scale": { "deployment": "web", "replicas": replicas } });
    let grown = json!([scale("10m", 60)]);
    assert_eq!(nodes(&play(20, &grown, &[reserved(10)])), (10, 50));
    let interrupted = json!([scale("10m", 60), { "at": "20m", "interrupt": { "count": 15 } }]);
    assert_eq!(nodes(&play(60, &interrupted, &[reserved(10)])), (10, 50));
    let shrunk = json!([scale("10m", 60), scale("30m", 15), scale("60m", 60)]);
    assert_eq!(nodes(&play(240, &shrunk, &[reserved(10)])), (10, 50));
}

/// A NodeClaim that is not launched yet counts, also where it has the label of its one instance type.
#[test]
fn pods_that_come_one_after_another_use_no_more_than_is_paid_for() {
    let mut one_type = pool();
    let types =
        json!({ "key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["t4"] });
    let requirements = &mut one_type["spec"]["template"]["spec"]["requirements"];
    requirements.as_array_mut().unwrap().push(types);
    let scale = |second: u32, replicas: u32| json!({ "at": format!("{second}s"), "scale": { "deployment": "web", "replicas": replicas } });
    let grown: Vec<Value> = (1..=40).map(|n| scale(600 + n, 40 + n)).collect();
    for pool in [pool(), one_type] {
        let report = play_with(pool, 20, &json!(grown), &[reserved(60)]);
        assert_eq!(nodes(&report), (60, 20));
    }
}

#[test]
fn consolidation_leaves_what_is_paid_for_and_fills_what_is_not_used() {
    // Hours later.
    assert_eq!(nodes(&play(6 * 60, &json!([]), &[reserved(10)])), (10, 30));
    // There is no on-demand capacity at first.
    let shortage =
        json!([{ "at": "0m", "shortage": { "capacityType": "on-demand", "for": "30m" } }]);
    assert_eq!(nodes(&play(20, &shortage, &[reserved(10)])), (0, 40));
    assert_eq!(nodes(&play(6 * 60, &shortage, &[reserved(10)])), (10, 30));
}

#[test]
fn what_has_ended_is_replaced_by_what_is_cheaper() {
    let ends = policy(
        "paid",
        &json!([{ "name": "ri", "instances": 10, "until": "2026-01-05T10:00:00Z" }]),
    );
    assert_eq!(
        nodes(&play(60, &json!([]), std::slice::from_ref(&ends))),
        (10, 30)
    );
    assert_eq!(nodes(&play(8 * 60, &json!([]), &[ends])), (0, 40));
}
