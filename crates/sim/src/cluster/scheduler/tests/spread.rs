//! Required topology spread constraints.

use serde_json::{Value, json};

use super::{ALL, HOST, Row, ZONE, asks, check, node, on, waits};

fn spread(over: Value) -> Value {
    let mut own = json!({
        "maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "x"}},
    });
    json_patch::merge(&mut own, &over);
    own
}

fn over(constraint: Value) -> Value {
    json!({"topologySpreadConstraints": [spread(constraint)]})
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn spread_over_domains() {
    let old = |node: &str, name: &str| on(node, name, "x", json!({}));
    let one = || vec![old("a1", "1")];
    let two = || vec![old("a1", "1"), old("b1", "2")];
    let gone = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    let revision = |of: &str| {
        waits(
            "x",
            json!({
                "metadata": {"labels": {"revision": of}}, "spec": over(json!({"matchLabelKeys": ["revision"]})),
            }),
        )
    };
    let rows: Vec<Row> = vec![
        ("no other pod", vec![], asks("x", over(json!({}))), ALL),
        (
            "not where there is one",
            one(),
            asks("x", over(json!({}))),
            &["b1", "c1"],
        ),
        (
            "only where there is none",
            two(),
            asks("x", over(json!({}))),
            &["c1"],
        ),
        (
            "a larger skew",
            one(),
            asks("x", over(json!({"maxSkew": 2}))),
            ALL,
        ),
        (
            "hosts",
            one(),
            asks("x", over(json!({"topologyKey": HOST}))),
            &["a2", "b1", "c1"],
        ),
        (
            "a pod that is not counted itself",
            one(),
            asks("y", over(json!({}))),
            ALL,
        ),
        (
            "a pod that is not counted itself, on its way to too many",
            vec![old("a1", "1"), old("a2", "2")],
            asks("y", over(json!({}))),
            &["b1", "c1"],
        ),
        (
            "ScheduleAnyway",
            two(),
            asks("x", over(json!({"whenUnsatisfiable": "ScheduleAnyway"}))),
            ALL,
        ),
        (
            "pods that are going do not count",
            vec![on("a1", "1", "x", gone)],
            asks("x", over(json!({}))),
            ALL,
        ),
        (
            "pods of other namespaces do not count",
            vec![on(
                "a1",
                "1",
                "x",
                json!({"metadata": {"namespace": "shop"}}),
            )],
            asks("x", over(json!({}))),
            ALL,
        ),
        (
            "an absent selector counts no pod",
            one(),
            asks("x", over(json!({"labelSelector": null}))),
            ALL,
        ),
        (
            "minDomains: fewer domains than that",
            vec![old("a1", "1"), old("b1", "2"), old("c1", "3")],
            asks("x", over(json!({"minDomains": 4}))),
            &[],
        ),
        (
            "minDomains: enough",
            vec![old("a1", "1"), old("b1", "2"), old("c1", "3")],
            asks("x", over(json!({"minDomains": 3}))),
            ALL,
        ),
        (
            "a node without the label",
            vec![node(
                "a2",
                "a",
                json!({"metadata": {"labels": {ZONE: null}}}),
            )],
            asks("x", over(json!({}))),
            &["a1", "b1", "c1"],
        ),
        (
            "pods on a node that lacks the key of another constraint do not count",
            vec![
                node("a1", "a", json!({"metadata": {"labels": {"rack": "1"}}})),
                old("b1", "1"),
            ],
            asks(
                "x",
                json!({"topologySpreadConstraints": [spread(json!({})), spread(json!({"topologyKey": "rack"}))]}),
            ),
            &["a1"],
        ),
        (
            "the node selector's nodes are the domains",
            two(),
            asks(
                "x",
                json!({
                    "nodeSelector": {ZONE: "a"}, "topologySpreadConstraints": [spread(json!({}))],
                }),
            ),
            &["a1", "a2"],
        ),
        (
            "nodeAffinityPolicy Ignore: all nodes are",
            two(),
            asks(
                "x",
                json!({
                    "nodeSelector": {ZONE: "a"}, "topologySpreadConstraints": [spread(json!({"nodeAffinityPolicy": "Ignore"}))],
                }),
            ),
            &[],
        ),
        (
            "nodeTaintsPolicy: nodes with taints are domains",
            vec![
                node(
                    "c1",
                    "c",
                    json!({"spec": {"taints": [{"key": "t", "effect": "NoSchedule"}]}}),
                ),
                old("a1", "1"),
                old("b1", "2"),
            ],
            asks("x", over(json!({}))),
            &[],
        ),
        (
            "nodeTaintsPolicy Honor: they are not",
            vec![
                node(
                    "c1",
                    "c",
                    json!({"spec": {"taints": [{"key": "t", "effect": "NoSchedule"}]}}),
                ),
                old("a1", "1"),
                old("b1", "2"),
            ],
            asks("x", over(json!({"nodeTaintsPolicy": "Honor"}))),
            &["a1", "a2", "b1"],
        ),
        (
            "matchLabelKeys: pods of another revision do not count",
            vec![on(
                "a1",
                "1",
                "x",
                json!({"metadata": {"labels": {"revision": "1"}}}),
            )],
            revision("2"),
            ALL,
        ),
        (
            "matchLabelKeys: pods of the same do",
            vec![on(
                "a1",
                "1",
                "x",
                json!({"metadata": {"labels": {"revision": "2"}}}),
            )],
            revision("2"),
            &["b1", "c1"],
        ),
        (
            "all constraints must hold",
            vec![old("a1", "1"), old("b1", "2"), old("c1", "3")],
            asks(
                "x",
                json!({"topologySpreadConstraints": [spread(json!({})), spread(json!({"topologyKey": HOST}))]}),
            ),
            &["a2"],
        ),
    ];
    check(rows);
}
