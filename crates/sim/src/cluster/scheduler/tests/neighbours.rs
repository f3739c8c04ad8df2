//! Required affinity and anti-affinity between pods.

use serde_json::{Value, json};

use super::{ALL, HOST, REQUIRED, Row, ZONE, asks, check, node, on, waits};

fn term(app: &str, key: &str) -> Value {
    json!({"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key})
}

fn apart(term: Value) -> Value {
    json!({"affinity": {"podAntiAffinity": {REQUIRED: [term]}}})
}

fn near(terms: &[Value]) -> Value {
    json!({"affinity": {"podAffinity": {REQUIRED: terms}}})
}

fn merged(mut term: Value, over: Value) -> Value {
    json_patch::merge(&mut term, &over);
    term
}

/// A pod of another namespace, with the label `team=red`.
fn elsewhere(node: &str, spec: Value) -> Vec<Value> {
    vec![
        json!({"kind": "Namespace", "metadata": {"name": "shop", "labels": {"team": "red"}}}),
        on(
            node,
            "theirs",
            "x",
            json!({"metadata": {"namespace": "shop"}, "spec": spec}),
        ),
    ]
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn anti_affinity() {
    let there = || vec![on("a1", "old", "x", json!({}))];
    let going = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    let bare = json!({"metadata": {"labels": {ZONE: null}}});
    let keyed = || {
        apart(merged(
            term("x", ZONE),
            json!({"matchLabelKeys": ["revision"]}),
        ))
    };
    let other_keyed = || {
        apart(merged(
            term("x", ZONE),
            json!({"mismatchLabelKeys": ["revision"]}),
        ))
    };
    let revision = |spec: Value, of: &str| {
        waits(
            "x",
            json!({"metadata": {"labels": {"revision": of}}, "spec": spec}),
        )
    };
    let revised = |of: &str| {
        vec![on(
            "a1",
            "old",
            "x",
            json!({"metadata": {"labels": {"revision": of}}}),
        )]
    };
    let rows: Vec<Row> = vec![
        (
            "no other pod",
            vec![],
            asks("x", apart(term("x", ZONE))),
            ALL,
        ),
        (
            "of a host",
            there(),
            asks("x", apart(term("x", HOST))),
            &["a2", "b1", "c1"],
        ),
        (
            "of a zone",
            there(),
            asks("x", apart(term("x", ZONE))),
            &["b1", "c1"],
        ),
        (
            "of other pods",
            there(),
            asks("x", apart(term("y", ZONE))),
            ALL,
        ),
        (
            "an absent selector selects no pod",
            there(),
            asks("x", apart(json!({"topologyKey": ZONE}))),
            ALL,
        ),
        (
            "an empty selector speaks of everybody",
            there(),
            asks(
                "y",
                apart(json!({"topologyKey": ZONE, "labelSelector": {}})),
            ),
            &["b1", "c1"],
        ),
        (
            "a pod that is going counts",
            vec![on("a1", "old", "x", going)],
            asks("x", apart(term("x", HOST))),
            &["a2", "b1", "c1"],
        ),
        (
            "a node without the label is in no domain",
            vec![
                node("a1", "a", bare.clone()),
                on("a1", "old", "x", json!({})),
            ],
            asks("x", apart(term("x", ZONE))),
            ALL,
        ),
        (
            "symmetry: what a pod that is there says holds for the new one",
            vec![on(
                "a1",
                "old",
                "y",
                json!({"spec": apart(term("x", ZONE))}),
            )],
            asks("x", json!({})),
            &["b1", "c1"],
        ),
        (
            "symmetry: not for others",
            vec![on(
                "a1",
                "old",
                "y",
                json!({"spec": apart(term("z", ZONE))}),
            )],
            asks("x", json!({})),
            ALL,
        ),
        (
            "own namespace only",
            elsewhere("a1", json!({})),
            asks("x", apart(term("x", ZONE))),
            ALL,
        ),
        (
            "namespaces",
            elsewhere("a1", json!({})),
            asks(
                "x",
                apart(merged(term("x", ZONE), json!({"namespaces": ["shop"]}))),
            ),
            &["b1", "c1"],
        ),
        (
            "namespaces do not include the own one",
            there(),
            asks(
                "x",
                apart(merged(term("x", ZONE), json!({"namespaces": ["shop"]}))),
            ),
            ALL,
        ),
        (
            "namespaceSelector",
            elsewhere("a1", json!({})),
            asks(
                "x",
                apart(merged(
                    term("x", ZONE),
                    json!({"namespaceSelector": {"matchLabels": {"team": "red"}}}),
                )),
            ),
            &["b1", "c1"],
        ),
        (
            "namespaceSelector of others",
            elsewhere("a1", json!({})),
            asks(
                "x",
                apart(merged(
                    term("x", ZONE),
                    json!({"namespaceSelector": {"matchLabels": {"team": "blue"}}}),
                )),
            ),
            ALL,
        ),
        (
            "an empty namespaceSelector is every namespace",
            elsewhere("a1", json!({})),
            asks(
                "x",
                apart(merged(term("x", ZONE), json!({"namespaceSelector": {}}))),
            ),
            &["b1", "c1"],
        ),
        (
            "symmetry across namespaces",
            elsewhere(
                "a1",
                apart(merged(term("x", ZONE), json!({"namespaces": ["default"]}))),
            ),
            asks("x", json!({})),
            &["b1", "c1"],
        ),
        (
            "matchLabelKeys: the same value",
            revised("1"),
            revision(keyed(), "1"),
            &["b1", "c1"],
        ),
        (
            "matchLabelKeys: another value",
            revised("2"),
            revision(keyed(), "1"),
            ALL,
        ),
        (
            "matchLabelKeys: a label that the pod does not have",
            revised("2"),
            asks("x", keyed()),
            &["b1", "c1"],
        ),
        (
            "mismatchLabelKeys: the same value",
            revised("1"),
            revision(other_keyed(), "1"),
            ALL,
        ),
        (
            "mismatchLabelKeys: another value",
            revised("2"),
            revision(other_keyed(), "1"),
            &["b1", "c1"],
        ),
    ];
    check(rows);
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn affinity() {
    let there = || vec![on("a1", "old", "x", json!({}))];
    let bare = || node("a2", "a", json!({"metadata": {"labels": {ZONE: null}}}));
    check(vec![
        (
            "of a zone",
            there(),
            asks("y", near(&[term("x", ZONE)])),
            &["a1", "a2"],
        ),
        (
            "of a host",
            there(),
            asks("y", near(&[term("x", HOST)])),
            &["a1"],
        ),
        (
            "no pod to be near",
            vec![],
            asks("y", near(&[term("x", ZONE)])),
            &[],
        ),
        (
            "the first of its group",
            vec![],
            asks("x", near(&[term("x", ZONE)])),
            ALL,
        ),
        (
            "the first of its group, where the label is",
            vec![bare()],
            asks("x", near(&[term("x", ZONE)])),
            &["a1", "b1", "c1"],
        ),
        (
            "not the first any more",
            there(),
            asks("x", near(&[term("x", ZONE)])),
            &["a1", "a2"],
        ),
        (
            "a node without the label",
            vec![bare(), on("a1", "old", "x", json!({}))],
            asks("x", near(&[term("x", ZONE)])),
            &["a1"],
        ),
        (
            "every term, by the same pods",
            vec![
                on("a1", "old", "x", json!({})),
                on("b1", "older", "z", json!({})),
            ],
            asks("y", near(&[term("x", ZONE), term("z", ZONE)])),
            &[],
        ),
        (
            "every term",
            vec![on(
                "a1",
                "old",
                "x",
                json!({"metadata": {"labels": {"tier": "web"}}}),
            )],
            asks(
                "y",
                near(&[
                    term("x", ZONE),
                    json!({"labelSelector": {"matchLabels": {"tier": "web"}}, "topologyKey": HOST}),
                ]),
            ),
            &["a1"],
        ),
        (
            "the first, of two terms of which one is about others",
            vec![],
            asks("x", near(&[term("x", ZONE), term("y", ZONE)])),
            &[],
        ),
        (
            "own namespace only",
            elsewhere("a1", json!({})),
            asks("y", near(&[term("x", ZONE)])),
            &[],
        ),
        (
            "namespaceSelector",
            elsewhere("b1", json!({})),
            asks(
                "y",
                near(&[merged(
                    term("x", ZONE),
                    json!({"namespaceSelector": {"matchLabels": {"team": "red"}}}),
                )]),
            ),
            &["b1"],
        ),
        (
            "what a pod that is there wants does not hold for the new one",
            vec![on(
                "a1",
                "old",
                "y",
                json!({"spec": near(&[term("x", ZONE)])}),
            )],
            asks("x", json!({})),
            ALL,
        ),
    ]);
}
