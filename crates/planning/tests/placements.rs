//! Placements that kube-scheduler once refused to bind (`mortise-bench agreement`), each as small as it gets.

use std::collections::BTreeMap;

use crate::one_pool::{World, pod};
use mortise_apis::labels;
use serde_json::{Value, json};

/// A hard spread over a label for pods with `app: a`, with further fields.
fn spread(key: &str, max_skew: usize, more: &Value) -> Value {
    let mut all = json!({
        "maxSkew": max_skew, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "a"}},
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        all[key] = value.clone();
    }
    json!([all])
}

/// How many pods of the plan each node has, the fullest first.
fn pod_counts(plan: &BTreeMap<String, Vec<String>>) -> Vec<usize> {
    let mut all: Vec<usize> = plan.values().map(Vec::len).collect();
    all.sort_unstable_by(|a, b| b.cmp(a));
    all
}

/// The first pod leaves open what its node is; the others want amd64, and no two of their kind on one node. When one
/// of them joins the first, the first is of its kind.
#[test]
fn a_pod_counts_once_its_node_is_what_a_spread_looks_at() {
    let amd64 = json!({labels::ARCH: "amd64"});
    let apart = spread(labels::HOSTNAME, 1, &json!({}));
    let plan = World::new()
        .pending(pod("large", "a", "2", json!({})))
        .pending(pod(
            "b-0",
            "a",
            "1",
            json!({"nodeSelector": amd64, "topologySpreadConstraints": apart}),
        ))
        .pending(pod(
            "b-1",
            "a",
            "1",
            json!({"nodeSelector": amd64, "topologySpreadConstraints": apart}),
        ))
        .places();
    assert_eq!(pod_counts(&plan), [1, 1, 1], "{plan:?}");
}

/// What one pod asks of labels, in the ways in which a pod can.
fn asks(selector: Value, required: Value, preferred: Value) -> Value {
    let term = |all: &Value| json!({"matchExpressions": all});
    let mut affinity = json!({});
    if required != json!([]) {
        affinity["requiredDuringSchedulingIgnoredDuringExecution"] =
            json!({"nodeSelectorTerms": [term(&required)]});
    }
    if preferred != json!([]) {
        affinity["preferredDuringSchedulingIgnoredDuringExecution"] =
            json!([{"weight": 1, "preference": term(&preferred)}]);
    }
    json!({"nodeSelector": selector, "affinity": {"nodeAffinity": affinity}})
}

/// What contradicts itself is not met by a node without the label, nor does `NotIn` take back what `Exists` asks.
#[test]
fn a_contradiction_is_not_met_by_absence() {
    let is = |operator: &str, value: &str| json!({"key": "team", "operator": operator, "values": [value]});
    let exists = json!({"key": "team", "operator": "Exists"});
    let absent = json!({"key": "team", "operator": "DoesNotExist"});
    let none = || json!([]);
    let cases = [
        (
            "two values",
            asks(json!({"team": "red"}), json!([is("In", "blue")]), none()),
        ),
        (
            "there and not there",
            asks(json!({}), json!([exists, absent]), none()),
        ),
        (
            "this and not this",
            asks(
                json!({}),
                json!([is("In", "red"), is("NotIn", "red")]),
                none(),
            ),
        ),
        (
            "there, but not this",
            asks(json!({}), json!([exists, is("NotIn", "red")]), none()),
        ),
        (
            "a preference for another value",
            asks(json!({"team": "red"}), none(), json!([is("In", "blue")])),
        ),
    ];
    for (name, asked) in cases {
        let world = World::new()
            .node(crate::one_pool::node("plain", "z1", json!({})))
            .pending(pod("p", "a", "1", asked));
        let places = world.places();
        assert!(places.is_empty(), "{name}: {places:?}");
    }
    // Where the label may be missing, it may be missing in both ways of saying so.
    let either = asks(json!({}), json!([absent, is("NotIn", "red")]), none());
    let places = World::new().pending(pod("p", "a", "1", either)).places();
    assert_eq!(places.len(), 1, "{places:?}");
}

/// Required anti-affinity to pods with `app: a`.
fn apart(key: &str) -> Value {
    json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"labelSelector": {"matchLabels": {"app": "a"}}, "topologyKey": key},
    ]}}})
}

/// Where a node has no such label there is no domain, and so no pod to stay away from.
#[test]
fn anti_affinity_looks_only_at_nodes_with_the_label() {
    let here = |name: &str, zone: &str| crate::one_pool::node(name, zone, json!({}));
    // One pod of the kind in every zone, and a node outside of all of them.
    let mut outside = here("outside", "z1");
    outside["metadata"]["labels"]
        .as_object_mut()
        .unwrap()
        .remove(labels::TOPOLOGY_ZONE);
    let mut world = World::new().node(outside);
    for (at, zone) in crate::one_pool::ZONES.iter().enumerate() {
        let node = format!("n{at}");
        world = world
            .node(here(&node, zone))
            .running(&node, pod(&format!("r{at}"), "a", "1", json!({})));
    }
    let places = world
        .pending(pod("p", "b", "1", apart(labels::TOPOLOGY_ZONE)))
        .places();
    assert_eq!(
        places.get("other:///outside"),
        Some(&vec!["p".to_owned()]),
        "{places:?}"
    );

    // No node of the pool has racks.
    let racks = (0..2).fold(World::new(), |world, at| {
        world.pending(pod(&format!("p{at}"), "a", "1", apart("rack")))
    });
    assert_eq!(pod_counts(&racks.places()), [2]);
    // But a spread over racks holds for nodes with racks only, as kube-scheduler has it.
    let spread = json!({"topologySpreadConstraints": spread("rack", 1, &json!({}))});
    assert!(
        World::new()
            .pending(pod("p", "a", "1", spread))
            .places()
            .is_empty()
    );
}

/// The first of a group that wants to be together may go anywhere; one whose group runs on a full node may not.
#[test]
fn a_group_on_a_full_node_is_still_there() {
    let together = json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"labelSelector": {"matchLabels": {"app": "a"}}, "topologyKey": labels::HOSTNAME},
    ]}}});
    let first = World::new().pending(pod("p", "a", "1", together.clone()));
    assert_eq!(pod_counts(&first.places()), [1]);
    let next = World::new()
        .node(crate::one_pool::node("n", "z1", json!({})))
        .running("n", pod("r", "a", "8", json!({})))
        .pending(pod("p", "a", "1", together));
    assert!(next.places().is_empty(), "{:?}", next.places());
}
