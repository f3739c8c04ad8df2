//! Scenarios by a table: one Deployment on one NodePool, whose size changes.

use anyhow::Result;
use serde_json::{Value, json};

use super::scripts::Script;

/// How the pods of a variation relate to each other.
#[derive(Clone, Copy, Debug)]
enum Shape {
    /// Not at all.
    Free,
    /// One per node.
    OnePerNode,
    /// Evenly over zones.
    OverZones,
    /// Evenly over nodes.
    OverNodes,
}

/// A row.
struct Variation {
    name: &'static str,
    /// CPUs and memory of a pod.
    pod: (&'static str, &'static str),
    /// Instance types by their CPUs.
    cpus: &'static [u32],
    shape: Shape,
    /// Pods at the start, and after each change.
    sizes: &'static [u32],
    /// Merged into the NodePool's specification by a merge patch.
    pool: fn() -> Value,
}

const fn row(
    name: &'static str,
    pod: (&'static str, &'static str),
    cpus: &'static [u32],
    shape: Shape,
    sizes: &'static [u32],
) -> Variation {
    Variation {
        name,
        pod,
        cpus,
        shape,
        sizes,
        pool: || json!({}),
    }
}

const ALL: [&[u32]; 4] = [&[2], &[4], &[2, 4, 8], &[16]];

/// All of them.
pub(super) fn all() -> Result<Vec<Script>> {
    let rows = sizes().into_iter().chain(pools());
    rows.map(|row| row.script()).collect()
}

/// Pods and types of several sizes.
fn sizes() -> Vec<Variation> {
    let [two, four, mixed, big] = ALL;
    vec![
        row(
            "small-pods",
            ("100m", "64Mi"),
            two,
            Shape::Free,
            &[20, 60, 5],
        ),
        row(
            "memory-bound",
            ("100m", "3Gi"),
            four,
            Shape::Free,
            &[4, 9, 2],
        ),
        row(
            "one-big-node",
            ("1500m", "1Gi"),
            big,
            Shape::Free,
            &[8, 9, 1],
        ),
        row("mixed-types", ("1", "1Gi"), mixed, Shape::Free, &[3, 10, 4]),
        row(
            "mixed-types-up",
            ("700m", "512Mi"),
            mixed,
            Shape::Free,
            &[1, 5, 21],
        ),
        row("waves", ("1500m", "1Gi"), two, Shape::Free, &[2, 5, 2, 5]),
        row(
            "to-zero-and-back",
            ("1500m", "1Gi"),
            two,
            Shape::Free,
            &[3, 0, 3],
        ),
        row(
            "half-nodes",
            ("1800m", "1Gi"),
            four,
            Shape::Free,
            &[6, 3, 1],
        ),
        row(
            "one-per-node",
            ("200m", "64Mi"),
            two,
            Shape::OnePerNode,
            &[3, 6, 2],
        ),
        row(
            "one-per-node-mixed",
            ("200m", "64Mi"),
            mixed,
            Shape::OnePerNode,
            &[2, 4, 1],
        ),
        row(
            "over-zones",
            ("1500m", "1Gi"),
            two,
            Shape::OverZones,
            &[4, 8, 6],
        ),
        row(
            "over-zones-wide",
            ("500m", "256Mi"),
            four,
            Shape::OverZones,
            &[3, 12],
        ),
        row(
            "over-nodes",
            ("200m", "64Mi"),
            two,
            Shape::OverNodes,
            &[2, 4],
        ),
    ]
}

/// NodePools with limits, policies and budgets.
fn pools() -> Vec<Variation> {
    let [two, ..] = ALL;
    let with = |name, base: Variation, pool: fn() -> Value| Variation { name, pool, ..base };
    let plain = |sizes| row("", ("1500m", "1Gi"), two, Shape::Free, sizes);
    vec![
        with(
            "limit-of-nodes",
            plain(&[2, 6, 1]),
            || json!({ "limits": { "nodes": "4" } }),
        ),
        with(
            "limit-of-cpu",
            plain(&[2, 6]),
            || json!({ "limits": { "cpu": "7" } }),
        ),
        with(
            "only-empty",
            plain(&[4, 1]),
            || json!({ "disruption": { "consolidationPolicy": "WhenEmpty" } }),
        ),
        with(
            "never-consolidated",
            plain(&[4, 1]),
            || json!({ "disruption": { "consolidateAfter": "Never" } }),
        ),
        with(
            "no-disruption",
            plain(&[4, 1]),
            || json!({ "disruption": { "budgets": [{ "nodes": "0" }] } }),
        ),
        with(
            "one-at-a-time",
            plain(&[5, 1]),
            || json!({ "disruption": { "budgets": [{ "nodes": "1" }] } }),
        ),
        with("spot-or-on-demand", plain(&[3, 5, 2]), || {
            json!({ "template": { "spec": { "requirements": [
            types(&[2]), { "key": "karpenter.sh/capacity-type", "operator": "Exists" },
        ] } } })
        }),
    ]
}

fn types(cpus: &[u32]) -> Value {
    let names = cpus.iter().map(|cpus| format!("c-{cpus}x-amd64-linux"));
    json!({ "key": "node.kubernetes.io/instance-type", "operator": "In", "values": names.collect::<Vec<_>>() })
}

impl Variation {
    fn script(&self) -> Result<Script> {
        let mut pool = json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": { "name": "default" },
            "spec": {
                "template": { "spec": {
                    "nodeClassRef": { "group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default" },
                    "requirements": [
                        types(self.cpus),
                        { "key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"] },
                    ],
                    "expireAfter": "Never",
                } },
                "disruption": { "consolidateAfter": "15s", "budgets": [{ "nodes": "100%" }] },
            },
        });
        json_patch::merge(&mut pool["spec"], &(self.pool)());
        let (cpu, memory) = self.pod;
        let mut pod = json!({ "containers": [{
            "name": "main", "image": "registry.test/main", "resources": { "requests": { "cpu": cpu, "memory": memory } },
        }] });
        let selector = json!({ "matchLabels": { "app": "web" } });
        let spread = |key: &str| json!([{ "maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector }]);
        match self.shape {
            Shape::Free => {}
            Shape::OnePerNode => {
                pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
                    json!([{ "topologyKey": "kubernetes.io/hostname", "labelSelector": selector }]);
            }
            Shape::OverZones => {
                pod["topologySpreadConstraints"] = spread("topology.kubernetes.io/zone");
            }
            Shape::OverNodes => pod["topologySpreadConstraints"] = spread("kubernetes.io/hostname"),
        }
        let zones = matches!(self.shape, Shape::OverZones);
        let first = self.sizes.first().copied().unwrap_or_default();
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "web" },
            "spec": {
                "replicas": first, "selector": selector,
                "template": { "metadata": { "labels": { "app": "web" } }, "spec": pod },
            },
        });
        let later = self.sizes.iter().enumerate().skip(1);
        let timeline = later.map(|(number, size)| {
            json!({ "at": format!("{}m", 10 * number), "scale": { "deployment": "web", "replicas": size } })
        });
        let annotations = if zones {
            json!({ "mortise.test/zones": "compared" })
        } else {
            json!({})
        };
        let scenario = json!({
            "apiVersion": "mortise.sh/v1alpha1", "kind": "Scenario",
            "metadata": { "name": self.name, "annotations": annotations },
            "spec": { "duration": format!("{}m", 10 * self.sizes.len()), "timeline": timeline.collect::<Vec<_>>() },
        });
        Script::of(vec![scenario, pool, deployment])
    }
}
