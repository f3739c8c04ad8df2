//! Kubernetes objects of the stories, as JSON: what every story needs, with the story's own fields merged over it.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

/// `over` merged into `base`: objects by key, everything else replaced.
pub(crate) fn merged(mut base: Value, over: Value) -> Value {
    merge(&mut base, over);
    base
}

fn merge(base: &mut Value, over: Value) {
    match (base, over) {
        (Value::Object(base), Value::Object(over)) => {
            for (key, value) in over {
                merge(base.entry(key).or_insert(Value::Null), value);
            }
        }
        (base, over) => *base = over,
    }
}

/// The object of this kind in the table of those that nothing is to be said about.
pub(crate) fn good(kind: &str) -> Result<Value> {
    let table = include_str!("../../webhooks/tests/data/good_manifests.yaml");
    let mut all: BTreeMap<String, Value> = serde_saphyr::from_str(table)?;
    all.remove(kind).with_context(|| format!("no good {kind}"))
}

/// Service accounts `reader` and `stranger` in `default`, as YAML: this rule of a ClusterRole holds for the reader.
pub(crate) fn reader_and_stranger(rule: Value) -> String {
    let group = "rbac.authorization.k8s.io";
    let account = |name: &str| json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": name } });
    let role = json!({
        "apiVersion": format!("{group}/v1"), "kind": "ClusterRole", "metadata": { "name": "mortise-debug" }, "rules": [rule],
    });
    let binding = json!({
        "apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding", "metadata": { "name": "mortise-debug" },
        "roleRef": { "apiGroup": group, "kind": "ClusterRole", "name": "mortise-debug" },
        "subjects": [{ "kind": "ServiceAccount", "name": "reader", "namespace": "default" }],
    });
    [account("reader"), account("stranger"), role, binding]
        .map(|object| object.to_string())
        .join("\n---\n")
}

/// A definition that takes any object of a kind, with these subresources.
pub(crate) fn open_definition(
    group: &str,
    version: &str,
    kind: &str,
    subresources: Value,
) -> String {
    let singular = kind.to_lowercase();
    let plural = format!("{singular}s");
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.{group}"), "annotations": { "api-approved.kubernetes.io": "unapproved, for a test" } },
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": { "kind": kind, "plural": plural, "singular": singular },
            "versions": [{
                "name": version, "served": true, "storage": true, "subresources": subresources,
                "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } },
            }],
        },
    })
    .to_string()
}

/// A KWOKNodeClass named `default`.
pub(crate) fn kwok_class() -> Value {
    json!({ "apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": { "name": "default" } })
}

/// A NodePool of the kwok class `default` that may disrupt all its nodes at once, with these requirements; `over` is merged
/// into its spec.
pub(crate) fn pool(name: &str, requirements: &[(&str, &str, &[&str])], over: Value) -> Value {
    let requirements: Vec<Value> = requirements
        .iter()
        .map(
            |(key, operator, values)| json!({ "key": key, "operator": operator, "values": values }),
        )
        .collect();
    let spec = json!({
        "template": { "spec": {
            "nodeClassRef": { "group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default" },
            "requirements": requirements,
            "expireAfter": "Never",
        } },
        "disruption": { "consolidateAfter": "0s", "budgets": [{ "nodes": "100%" }] },
    });
    json!({ "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": { "name": name }, "spec": merged(spec, over) })
}

/// A NodePool of on-demand instances with two CPUs, as [`pool`].
pub(crate) fn small_pool(name: &str, over: Value) -> Value {
    pool(name, &[types(&["c-2x-amd64-linux"]), ON_DEMAND], over)
}

/// The NodePool `general` of [`small_pool`] with limits, in which nothing is consolidated.
pub(crate) fn limited_pool(limits: &Value) -> Value {
    small_pool("general", merged(never(), json!({ "limits": limits })))
}

/// Part of a NodePool's spec: nothing is consolidated.
pub(crate) fn never() -> Value {
    json!({ "disruption": { "consolidateAfter": "Never" } })
}

/// Requirement: only these instance types.
pub(crate) const fn types<'a>(names: &'a [&'a str]) -> (&'a str, &'a str, &'a [&'a str]) {
    ("node.kubernetes.io/instance-type", "In", names)
}

/// Requirement: on-demand capacity only, so that prices are those of the price list.
pub(crate) const ON_DEMAND: (&str, &str, &[&str]) =
    ("karpenter.sh/capacity-type", "In", &["on-demand"]);
/// Requirement: x86 instances.
pub(crate) const AMD64: (&str, &str, &[&str]) = ("kubernetes.io/arch", "In", &["amd64"]);
/// Requirement: Linux instances.
pub(crate) const LINUX: (&str, &str, &[&str]) = ("kubernetes.io/os", "In", &["linux"]);

/// A Deployment whose pods have label `app`, ask for `cpu` and `memory`, and end at once; `over` is merged into the pod's spec.
pub(crate) fn deployment(
    name: &str,
    replicas: usize,
    (cpu, memory): (&str, &str),
    over: Value,
) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": name },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": { "app": name } },
            "template": { "metadata": { "labels": { "app": name } }, "spec": merged(pod_spec(cpu, memory), over) },
        },
    })
}

/// A bare pod with label `app`.
pub(crate) fn pod(name: &str, app: &str, (cpu, memory): (&str, &str), over: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "labels": { "app": app } },
        "spec": merged(pod_spec(cpu, memory), over),
    })
}

fn pod_spec(cpu: &str, memory: &str) -> Value {
    json!({
        "terminationGracePeriodSeconds": 0,
        "containers": [{ "name": "main", "image": "registry.test/main", "resources": { "requests": { "cpu": cpu, "memory": memory } } }],
    })
}

/// A DaemonSet on every node, whatever its taints.
pub(crate) fn daemon_set(name: &str, cpu: &str) -> Value {
    let over = json!({ "tolerations": [{ "operator": "Exists" }] });
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": { "name": name },
        "spec": {
            "selector": { "matchLabels": { "app": name } },
            "template": { "metadata": { "labels": { "app": name } }, "spec": merged(pod_spec(cpu, "64Mi"), over) },
        },
    })
}

/// A PodDisruptionBudget of the pods with label `app`.
pub(crate) fn budget(app: &str, min_available: usize) -> Value {
    json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": { "name": app },
        "spec": { "minAvailable": min_available, "selector": { "matchLabels": { "app": app } } },
    })
}
