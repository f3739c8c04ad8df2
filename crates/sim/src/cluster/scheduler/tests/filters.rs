//! Resources, taints, node selectors and node affinity, ports.

use serde_json::{Value, json};

use super::{ALL, REQUIRED, asks, check, cpu, node, on};

fn other(spec: Value) -> Value {
    on("a1", "other", "x", json!({"spec": spec}))
}

fn tainted(effect: &str) -> Value {
    let taint = json!({"key": "team", "value": "red", "effect": effect});
    node("a1", "a", json!({"spec": {"taints": [taint]}}))
}

fn affinity(terms: Value) -> Value {
    let node = json!({REQUIRED: {"nodeSelectorTerms": terms}});
    asks("x", json!({"affinity": {"nodeAffinity": node}}))
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn resources() {
    let request = |container: &str, amount: &str| json!({"name": container, "resources": {"requests": {"cpu": amount}}});
    let sidecar = |amount: &str| json!({"name": "side", "restartPolicy": "Always", "resources": {"requests": {"cpu": amount}}});
    check(vec![
        (
            "room on all",
            vec![],
            asks("x", json!({"containers": cpu("4")})),
            ALL,
        ),
        (
            "too large",
            vec![],
            asks("x", json!({"containers": cpu("4001m")})),
            &[],
        ),
        (
            "a node that is taken",
            vec![other(json!({"containers": cpu("2")}))],
            asks("x", json!({"containers": cpu("3")})),
            &["a2", "b1", "c1"],
        ),
        (
            "what is not asked for may be short",
            vec![other(json!({"containers": cpu("9")}))],
            asks("x", json!({})),
            ALL,
        ),
        (
            "a node with its number of pods",
            vec![
                node("a1", "a", json!({"status": {"allocatable": {"pods": "1"}}})),
                other(json!({})),
            ],
            asks("x", json!({})),
            &["a2", "b1", "c1"],
        ),
        (
            "completed pods use nothing",
            vec![on(
                "a1",
                "other",
                "x",
                json!({"spec": {"containers": cpu("3")}, "status": {"phase": "Succeeded"}}),
            )],
            asks("x", json!({"containers": cpu("3")})),
            ALL,
        ),
        (
            "a limit is a request",
            vec![],
            asks(
                "x",
                json!({"containers": [{"name": "a", "resources": {"limits": {"cpu": "5"}}}]}),
            ),
            &[],
        ),
        (
            "containers add up",
            vec![],
            asks(
                "x",
                json!({"containers": [request("a", "2"), request("b", "2100m")]}),
            ),
            &[],
        ),
        (
            "init containers do not",
            vec![],
            asks(
                "x",
                json!({"containers": cpu("2"), "initContainers": [request("i", "3"), request("j", "4")]}),
            ),
            ALL,
        ),
        (
            "the largest init container counts",
            vec![],
            asks(
                "x",
                json!({"containers": cpu("1"), "initContainers": [request("i", "5")]}),
            ),
            &[],
        ),
        (
            "sidecars run together with containers",
            vec![],
            asks(
                "x",
                json!({"containers": cpu("3"), "initContainers": [sidecar("1100m")]}),
            ),
            &[],
        ),
        (
            "and with later init containers",
            vec![],
            asks(
                "x",
                json!({"containers": cpu("1"), "initContainers": [sidecar("1"), request("i", "3100m")]}),
            ),
            &[],
        ),
        (
            "not with earlier ones",
            vec![],
            asks(
                "x",
                json!({"containers": cpu("1"), "initContainers": [request("i", "3100m"), sidecar("1")]}),
            ),
            ALL,
        ),
        (
            "overhead is added",
            vec![],
            asks(
                "x",
                json!({"containers": cpu("4"), "overhead": {"cpu": "1m"}}),
            ),
            &[],
        ),
        (
            "the pod as a whole",
            vec![],
            asks(
                "x",
                json!({"containers": cpu("1"), "resources": {"requests": {"cpu": "5"}}}),
            ),
            &[],
        ),
        (
            "extended resources",
            vec![node(
                "b1",
                "b",
                json!({"status": {"allocatable": {"example.com/gpu": "1"}}}),
            )],
            asks(
                "x",
                json!({"containers": [{"name": "a", "resources": {"requests": {"example.com/gpu": "1"}}}]}),
            ),
            &["b1"],
        ),
    ]);
}

#[test]
fn taints_and_cordons() {
    let stands = |toleration: Value| asks("x", json!({"tolerations": [toleration]}));
    let rest: &[&str] = &["a2", "b1", "c1"];
    let cordoned = || node("a1", "a", json!({"spec": {"unschedulable": true}}));
    check(vec![
        (
            "NoSchedule",
            vec![tainted("NoSchedule")],
            asks("x", json!({})),
            rest,
        ),
        (
            "NoExecute",
            vec![tainted("NoExecute")],
            asks("x", json!({})),
            rest,
        ),
        (
            "PreferNoSchedule",
            vec![tainted("PreferNoSchedule")],
            asks("x", json!({})),
            ALL,
        ),
        (
            "Equal",
            vec![tainted("NoSchedule")],
            stands(json!({"key": "team", "value": "red"})),
            ALL,
        ),
        (
            "another value",
            vec![tainted("NoSchedule")],
            stands(json!({"key": "team", "operator": "Equal", "value": "blue"})),
            rest,
        ),
        (
            "Exists",
            vec![tainted("NoSchedule")],
            stands(json!({"key": "team", "operator": "Exists"})),
            ALL,
        ),
        (
            "everything",
            vec![tainted("NoExecute")],
            stands(json!({"operator": "Exists"})),
            ALL,
        ),
        (
            "another effect",
            vec![tainted("NoExecute")],
            stands(json!({"key": "team", "operator": "Exists", "effect": "NoSchedule"})),
            rest,
        ),
        ("cordoned", vec![cordoned()], asks("x", json!({})), rest),
        (
            "cordoned, and stood",
            vec![cordoned()],
            stands(json!({"key": "node.kubernetes.io/unschedulable", "operator": "Exists"})),
            ALL,
        ),
        (
            "not ready",
            vec![node(
                "a1",
                "a",
                json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}),
            )],
            asks("x", json!({})),
            rest,
        ),
    ]);
}

#[test]
fn node_selectors() {
    let of = |key: &str, operator: &str, values: &[&str]| json!([{"matchExpressions": [{"key": key, "operator": operator, "values": values}]}]);
    let big = || node("a1", "a", json!({"metadata": {"labels": {"size": "7"}}}));
    let rest: &[&str] = &["a2", "b1", "c1"];
    check(vec![
        (
            "selector",
            vec![big()],
            asks("x", json!({"nodeSelector": {"size": "7"}})),
            &["a1"],
        ),
        (
            "selector that no node has",
            vec![],
            asks("x", json!({"nodeSelector": {"size": "7"}})),
            &[],
        ),
        (
            "In",
            vec![big()],
            affinity(of("size", "In", &["6", "7"])),
            &["a1"],
        ),
        (
            "NotIn, also where it is not",
            vec![big()],
            affinity(of("size", "NotIn", &["7"])),
            rest,
        ),
        (
            "Exists",
            vec![big()],
            affinity(of("size", "Exists", &[])),
            &["a1"],
        ),
        (
            "DoesNotExist",
            vec![big()],
            affinity(of("size", "DoesNotExist", &[])),
            rest,
        ),
        (
            "Gt",
            vec![big()],
            affinity(of("size", "Gt", &["6"])),
            &["a1"],
        ),
        (
            "Gt, not more",
            vec![big()],
            affinity(of("size", "Gt", &["7"])),
            &[],
        ),
        (
            "Lt",
            vec![big()],
            affinity(of("size", "Lt", &["8"])),
            &["a1"],
        ),
        (
            "one term is enough",
            vec![],
            affinity(json!([
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b1"]}]},
                {"matchExpressions": [{"key": super::ZONE, "operator": "In", "values": ["c"]}]},
            ])),
            &["b1", "c1"],
        ),
        (
            "all of a term must hold",
            vec![big()],
            affinity(json!([{"matchExpressions": [
                {"key": "size", "operator": "Exists"}, {"key": super::ZONE, "operator": "In", "values": ["b"]},
            ]}])),
            &[],
        ),
        (
            "an empty term is nothing",
            vec![],
            affinity(json!([{}])),
            &[],
        ),
    ]);
}

#[test]
fn host_ports() {
    let port = |over: Value| {
        let mut port = json!({"containerPort": 80, "hostPort": 80});
        json_patch::merge(&mut port, &over);
        json!({"containers": [{"name": "main", "ports": [port]}]})
    };
    let rest: &[&str] = &["a2", "b1", "c1"];
    let taken = || vec![other(port(json!({})))];
    let bound_to = |ip: &str| vec![other(port(json!({"hostIP": ip})))];
    let sidecar = json!({"containers": [{"name": "main"}], "initContainers": [
        {"name": "side", "restartPolicy": "Always", "ports": [{"containerPort": 80, "hostPort": 80}]},
    ]});
    check(vec![
        ("the same", taken(), asks("x", port(json!({}))), rest),
        (
            "another",
            taken(),
            asks("x", port(json!({"hostPort": 81}))),
            ALL,
        ),
        (
            "another protocol",
            taken(),
            asks("x", port(json!({"protocol": "UDP"}))),
            ALL,
        ),
        (
            "no host port",
            taken(),
            asks("x", port(json!({"hostPort": 0}))),
            ALL,
        ),
        (
            "the same address",
            bound_to("10.0.0.1"),
            asks("x", port(json!({"hostIP": "10.0.0.1"}))),
            rest,
        ),
        (
            "another address",
            bound_to("10.0.0.1"),
            asks("x", port(json!({"hostIP": "10.0.0.2"}))),
            ALL,
        ),
        (
            "every address",
            bound_to("10.0.0.1"),
            asks("x", port(json!({"hostIP": "0.0.0.0"}))),
            rest,
        ),
        ("of a sidecar", taken(), asks("x", sidecar), rest),
        (
            "of the node's network",
            taken(),
            asks(
                "x",
                json!({"hostNetwork": true, "containers": [{"name": "main", "ports": [{"containerPort": 80}]}]}),
            ),
            rest,
        ),
    ]);
}
