//! The best of several nodes.

use serde_json::{Value, json};

use super::{HOST, PREFERRED, REQUIRED, ZONE, asks, cpu, left, node, on};

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn the_best_node() {
    let preferred = |app: &str| {
        let term = json!({"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": ZONE});
        json!([{"weight": 10, "podAffinityTerm": term}])
    };
    let near = |app: &str| json!({"affinity": {"podAffinity": {PREFERRED: preferred(app)}}});
    let apart = |app: &str| json!({"affinity": {"podAntiAffinity": {PREFERRED: preferred(app)}}});
    let spread = |key: &str| {
        json!({"topologySpreadConstraints": [{
            "maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {"matchLabels": {"app": "x"}},
        }]})
    };
    let preferred = json!([{"weight": 5, "preference": {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["b"]}]}}]);
    let taints = |name: &str, zone: &str| {
        let taint = json!({"key": "t", "effect": "PreferNoSchedule"});
        node(name, zone, json!({"spec": {"taints": [taint]}}))
    };
    let term = json!({"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": ZONE});
    let rows: Vec<(&str, Vec<Value>, Value, &str)> = vec![
        (
            "the first by name of equal ones",
            vec![],
            asks("x", json!({})),
            "a1",
        ),
        (
            "the emptiest",
            vec![on(
                "a1",
                "1",
                "y",
                json!({"spec": {"containers": cpu("1")}}),
            )],
            asks("x", json!({})),
            "a2",
        ),
        (
            "preferred affinity",
            vec![on("c1", "1", "y", json!({}))],
            asks("x", near("y")),
            "c1",
        ),
        (
            "preferred anti-affinity",
            vec![on("a1", "1", "y", json!({}))],
            asks("x", apart("y")),
            "b1",
        ),
        (
            "what a pod that is there prefers",
            vec![on("c1", "1", "y", json!({"spec": near("x")}))],
            asks("x", json!({})),
            "c1",
        ),
        (
            "what a pod that is there would rather not",
            vec![on("a1", "1", "y", json!({"spec": apart("x")}))],
            asks("x", json!({})),
            "b1",
        ),
        (
            "what a pod that is there requires",
            vec![on(
                "b1",
                "1",
                "y",
                json!({"spec": {"affinity": {"podAffinity": {REQUIRED: [term]}}}}),
            )],
            asks("x", json!({})),
            "b1",
        ),
        (
            "soft spread over zones",
            vec![on("a1", "1", "x", json!({})), on("b1", "2", "x", json!({}))],
            asks("x", spread(ZONE)),
            "c1",
        ),
        (
            "soft spread over hosts",
            vec![on("a1", "1", "x", json!({}))],
            asks("x", spread(HOST)),
            "a2",
        ),
        (
            "soft spread: a node without the label is worst",
            vec![
                node("a1", "a", json!({"metadata": {"labels": {ZONE: null}}})),
                node("a2", "a", json!({"metadata": {"labels": {ZONE: null}}})),
            ],
            asks("x", spread(ZONE)),
            "b1",
        ),
        (
            "preferred node affinity",
            vec![],
            asks(
                "x",
                json!({"affinity": {"nodeAffinity": {PREFERRED: preferred}}}),
            ),
            "b1",
        ),
        (
            "soft taints",
            vec![taints("a1", "a"), taints("a2", "a")],
            asks("x", json!({})),
            "b1",
        ),
    ];
    for (rule, objects, pod, best) in rows {
        let (all, found) = left(&objects, &pod);
        assert_eq!(found.as_deref(), Some(best), "{rule}: {all:?}");
    }
}
