//! A small virtual cluster: five types in two zones, one NodePool, oscillating workloads.

pub(crate) mod extender;
pub(crate) mod matrix;
pub(crate) mod scenarios;
pub(crate) mod seeds;

use jiff::Timestamp;
use mortise_apis::labels;
use mortise_apis::names::NodeClassKey;
use mortise_apis::requirements::{Operator, Requirement, Requirements};
use mortise_apis::resources::Resources;
use mortise_apis::values::money::MicroUsd;
use mortise_cloudprovider::{CapacityType, InstanceType, Offering};
use mortise_planning::settings::Settings;
use mortise_sim::{Deployment, JobSpec, SimOptions, Simulation, Workloads};
use serde_json::{Value, json};

pub(crate) fn start() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

fn types() -> Vec<InstanceType> {
    let mut all: Vec<InstanceType> = [2_i64, 4, 8, 16, 32]
        .into_iter()
        .map(|cpu| {
            let name = format!("t{cpu}");
            let mut offerings = Vec::new();
            for zone in ["a", "b"] {
                for (capacity_type, percent) in
                    [(CapacityType::Spot, 40), (CapacityType::OnDemand, 100)]
                {
                    offerings.push(Offering {
                        zone: zone.into(),
                        capacity_type,
                        price: Some(MicroUsd(cpu * 48_000 * percent / 100)),
                        available: true,
                        reservation: None,
                        labels: Vec::new(),
                    });
                }
            }
            let mut requirements = Requirements::new();
            requirements.add(Requirement::is(labels::INSTANCE_TYPE, name.as_str()));
            requirements.add(Requirement::is(labels::ARCH, "amd64"));
            requirements.add(Requirement::is(labels::OS, "linux"));
            requirements.add(Requirement::new(
                labels::TOPOLOGY_ZONE,
                Operator::In,
                ["a", "b"],
            ));
            requirements.add(Requirement::new(
                labels::CAPACITY_TYPE,
                Operator::In,
                ["spot", "on-demand"],
            ));
            let mut capacity = Resources::new(cpu * 1000, cpu * (4 << 30));
            capacity.pods = 110;
            capacity.ephemeral_storage = 100 << 30;
            InstanceType {
                name: name.into(),
                requirements,
                capacity,
                overhead: Resources::new(100, 256 << 20),
                offerings,
                devices: std::sync::Arc::default(),
            }
        })
        .collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

pub(crate) fn template(app: &str, cpu: &str, memory: &str) -> Value {
    json!({ "metadata": { "labels": { "app": app } }, "spec": { "terminationGracePeriodSeconds": 5, "containers": [{ "name": "c", "resources": { "requests": { "cpu": cpu, "memory": memory } } }] } })
}

pub(crate) fn options(seed: u64) -> SimOptions {
    let pool = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": { "name": "general", "generation": 1 },
        "spec": {
            "disruption": { "consolidateAfter": "30s", "consolidationPolicy": "WhenEmptyOrUnderutilized", "budgets": [{ "nodes": "30%" }] },
            "limits": { "cpu": "400" },
            "template": { "spec": {
                "expireAfter": "720h",
                "nodeClassRef": { "group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default" },
                "requirements": [{ "key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot", "on-demand"] }],
            } },
        },
    });
    let daemon = json!({
        "metadata": { "name": "agent", "namespace": "kube-system" },
        "spec": { "selector": { "matchLabels": { "app": "agent" } }, "template": { "metadata": { "labels": { "app": "agent" } }, "spec": { "tolerations": [{ "operator": "Exists" }], "containers": [{ "name": "c", "resources": { "requests": { "cpu": "100m", "memory": "128Mi" } } }] } } },
    });
    SimOptions {
        seed,
        start: start(),
        settings: Settings::default(),
        catalog: types(),
        well_known: mortise_aws_class::labels::well_known(),
        node_classes: vec![NodeClassKey::new(
            "karpenter.k8s.aws",
            "EC2NodeClass",
            "default",
        )],
        pools: vec![pool],
        daemon_sets: vec![daemon],
        deployments: vec![
            Deployment {
                name: "web".to_owned(),
                template: template("web", "500m", "1Gi"),
                low: 10,
                high: 80,
                period_s: 1800,
                max_unavailable: Some(3),
            },
            Deployment {
                name: "api".to_owned(),
                template: template("api", "1500m", "3Gi"),
                low: 5,
                high: 20,
                period_s: 2400,
                max_unavailable: None,
            },
        ],
        others: Vec::new(),
        workloads: Workloads::default(),
        jobs: vec![JobSpec {
            name: "batch".to_owned(),
            template: template("batch", "3", "4Gi"),
            every_s: 60,
            runs_s: (60, 400),
        }],
        interruption_every_s: 900,
        shortage_per_mille: 30,
    }
}

/// The same without jobs, and with a cloud without interruptions and shortages.
pub(crate) fn quiet(seed: u64) -> SimOptions {
    let mut options = options(seed);
    options.interruption_every_s = 0;
    options.shortage_per_mille = 0;
    options.jobs.clear();
    options
}

/// The time this number of minutes after the start.
pub(crate) fn minutes(count: i64) -> Timestamp {
    mortise_apis::values::after(start(), count * 60_000)
}

/// Remaining nodes, claims and instances.
pub(crate) fn left(simulation: &Simulation) -> Vec<String> {
    let objects = simulation
        .api_server()
        .iter()
        .map(|(key, _)| format!("{key:?}"))
        .filter(|key| key.starts_with("Node(") || key.starts_with("Claim("));
    let instances = simulation.cloud().instances().map(|(id, _)| id.to_string());
    objects.chain(instances).collect()
}

/// Pods that are pending for more than three minutes.
pub(crate) fn stuck(simulation: &mut Simulation) -> Vec<String> {
    let (snapshot, now) = (simulation.snapshot(), simulation.now());
    let stuck = snapshot
        .pending
        .values()
        .filter(|pod| mortise_apis::values::since(now, pod.created) > 180_000);
    stuck.map(|pod| pod.key.to_string()).collect()
}
