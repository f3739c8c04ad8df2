//! What the simulated cluster consists of: two pools, workloads that swing, jobs that come and go.

use anyhow::Context as _;
use mortise_core::cloud::NodeClassKind;
use mortise_core::names::NodeClassKey;
use mortise_core::settings::Settings;
use mortise_sim::{Deployment, Jobs, Options};
use serde_json::{Value, json};

const GROUP: &str = "karpenter.k8s.aws";
const CLASS: &str = "EC2NodeClass";
/// A pod of this workload asks for what no pool offers: there is always something to ask "why?" about.
pub(super) const MISFIT: &str = "arm-only";

pub(super) fn node_class_kind() -> NodeClassKind {
    NodeClassKind {
        group: GROUP,
        version: "v1",
        kind: CLASS,
        plural: "ec2nodeclasses",
    }
}

pub(super) fn options(seed: u64, region: &str, settings: Settings) -> anyhow::Result<Options> {
    let catalog = mortise_aws::catalog::embedded_catalog()?;
    let known = catalog.zones(region);
    let zones: Vec<&str> = known.into_iter().take(3).collect();
    let catalog = catalog.instance_types(region, &zones).context("--region")?;
    Ok(Options {
        seed,
        // Any fixed time does; a start that moved would give another history every day.
        start: "2026-01-05T08:00:00Z".parse()?,
        settings,
        catalog,
        node_class: NodeClassKey::new(GROUP, CLASS, "default"),
        pools: pools(),
        daemon_sets: daemon_sets(),
        deployments: deployments(),
        jobs: jobs(),
        interruption_every_s: 15 * 60,
        shortage_per_mille: 30,
    })
}

fn requirement(key: &str, operator: &str, values: &[&str]) -> Value {
    json!({ "key": key, "operator": operator, "values": values })
}

fn pool(
    name: &str,
    weight: i32,
    requirements: &[Value],
    taints: &Value,
    disruption: &Value,
) -> Value {
    json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool",
        "metadata": { "name": name, "generation": 1 },
        "spec": {
            "weight": weight,
            "limits": { "cpu": "1000", "memory": "4000Gi" },
            "disruption": disruption,
            "template": { "spec": {
                "expireAfter": "720h",
                "nodeClassRef": { "group": GROUP, "kind": CLASS, "name": "default" },
                "requirements": requirements, "taints": taints,
            } },
        },
    })
}

/// A pool that takes spot where it is cheaper, and one for what must not be interrupted.
fn pools() -> Vec<Value> {
    // Small and middle sizes only: a demo of three huge nodes would show little.
    let common = [
        requirement("kubernetes.io/arch", "In", &["amd64"]),
        requirement(
            "karpenter.k8s.aws/instance-category",
            "In",
            &["c", "m", "r"],
        ),
        requirement("karpenter.k8s.aws/instance-generation", "Gt", &["4"]),
        requirement("karpenter.k8s.aws/instance-cpu", "In", &["2", "4", "8"]),
    ];
    let with = |capacity: &[&str]| {
        let mut all = common.to_vec();
        all.push(requirement("karpenter.sh/capacity-type", "In", capacity));
        all
    };
    let general = json!({ "consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "1m", "budgets": [{ "nodes": "20%" }] });
    let steady = json!({ "consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "3m", "budgets": [{ "nodes": "1" }] });
    let taint = json!([{ "key": "steady", "effect": "NoSchedule" }]);
    vec![
        pool(
            "general",
            10,
            &with(&["spot", "on-demand"]),
            &json!([]),
            &general,
        ),
        pool("steady", 1, &with(&["on-demand"]), &taint, &steady),
    ]
}

fn container(cpu: &str, memory: &str) -> Value {
    json!([{ "name": "main", "resources": { "requests": { "cpu": cpu, "memory": memory } } }])
}

fn daemon_sets() -> Vec<Value> {
    let agent = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": { "name": "node-agent", "namespace": "kube-system" },
        "spec": { "template": {
            "metadata": { "labels": { "app": "node-agent" } },
            "spec": { "containers": container("100m", "128Mi"), "tolerations": [{ "operator": "Exists" }] },
        } },
    });
    vec![agent]
}

fn template(app: &str, cpu: &str, memory: &str, more: &Value) -> Value {
    let mut spec = json!({ "containers": container(cpu, memory) });
    if let (Value::Object(spec), Value::Object(more)) = (&mut spec, more) {
        spec.extend(more.clone());
    }
    json!({ "metadata": { "labels": { "app": app } }, "spec": spec })
}

fn deployments() -> Vec<Deployment> {
    let deployment = |name: &str,
                      template: Value,
                      low: u32,
                      high: u32,
                      period_s: i64,
                      max_unavailable: Option<u32>| Deployment {
        name: name.to_owned(),
        template,
        low,
        high,
        period_s,
        max_unavailable,
    };
    let spread = json!({ "topologySpreadConstraints": [{
        "maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": { "matchLabels": { "app": "api" } },
    }] });
    let steady = json!({ "tolerations": [{ "key": "steady", "operator": "Exists" }], "nodeSelector": { "karpenter.sh/nodepool": "steady" } });
    let arm = json!({ "nodeSelector": { "kubernetes.io/arch": "arm64" } });
    vec![
        deployment(
            "web",
            template("web", "500m", "1Gi", &json!({})),
            30,
            140,
            40 * 60,
            Some(10),
        ),
        deployment(
            "api",
            template("api", "900m", "1500Mi", &spread),
            12,
            36,
            25 * 60,
            Some(3),
        ),
        deployment(
            "cache",
            template("cache", "250m", "3Gi", &json!({})),
            8,
            20,
            60 * 60,
            Some(2),
        ),
        deployment(
            "ledger",
            template("ledger", "1500m", "4Gi", &steady),
            6,
            9,
            90 * 60,
            Some(1),
        ),
        deployment(
            MISFIT,
            template(MISFIT, "250m", "256Mi", &arm),
            1,
            1,
            0,
            None,
        ),
    ]
}

fn jobs() -> Vec<Jobs> {
    vec![
        Jobs {
            name: "report".to_owned(),
            template: template("report", "1", "2Gi", &json!({})),
            every_s: 45,
            runs_s: (60, 240),
        },
        Jobs {
            name: "train".to_owned(),
            template: template("train", "3", "6Gi", &json!({})),
            every_s: 240,
            runs_s: (300, 900),
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_are_what_admission_lets_pass() {
        use mortise_webhooks::admission::{Facts, Request, Rules, validate};
        let options = options(1, "us-east-1", Settings::default()).unwrap();
        assert!(
            options.catalog.len() > 500,
            "{} types",
            options.catalog.len()
        );
        let mut simulation =
            mortise_sim::Simulation::new(options.clone(), mortise_core::deciders::all());
        simulation.run_until(mortise_core::deciders::after(options.start, 5_000));
        let snapshot = simulation.snapshot();
        let rules = Rules {
            deny_impossible: true,
            node_class_kinds: vec![node_class_kind()],
        };
        for pool in &options.pools {
            let request: Request = serde_json::from_value(json!({
                "uid": "1", "kind": { "group": "karpenter.sh", "version": "v1", "kind": "NodePool" }, "operation": "CREATE", "object": pool,
            }))
            .unwrap();
            let facts = Facts {
                snapshot: &snapshot,
                rules: &rules,
                now: options.start,
                stop: &|| true,
            };
            let answer = validate(&facts, &request);
            assert_eq!(
                (answer.denied, answer.warnings),
                (Vec::<String>::new(), Vec::<String>::new()),
                "{pool}"
            );
        }
    }

    #[test]
    fn a_region_that_is_not_known_is_named() {
        let error = format!(
            "{:#}",
            options(1, "us-east-9", Settings::default()).unwrap_err()
        );
        assert!(
            error.contains("--region")
                && error.contains("us-east-9")
                && error.contains("us-east-1"),
            "{error}"
        );
    }
}
