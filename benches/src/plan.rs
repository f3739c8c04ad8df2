//! `plan`: writing a snapshot of a large cluster, reading it, and planning it.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use jiff::Timestamp;
use mortise_apis::karpenter::nodepool::NodePool;
use mortise_apis::labels::{self, WellKnown};
use mortise_apis::names::NodeClassKey;
use mortise_apis::node_class::NodeClassKind;
use mortise_apis::requirements::{Operator, Requirement};
use mortise_apis::resources::Resources;
use mortise_apis::values::SplitMix64;
use mortise_apis::values::money::MicroUsd;
use mortise_cloudprovider::{CapacityType, InstanceType, Offering};
use mortise_planning::scheduling::SchedulerConfig;
use mortise_planning::settings::Settings;
use mortise_sim::plan::plan;
use mortise_sim::recorded_cluster::RecordedCluster;
use mortise_state::resource_kinds::ObjectKind;
use serde::Serialize;
use serde_json::{Value, json};

use crate::output::Output;
use crate::report::{Benchmark, Results, verdict};

const CLASS: NodeClassKind = NodeClassKind {
    group: "g",
    version: "v1",
    kind: "Class",
    plural: "classes",
};
const ZONES: [&str; 3] = ["zone-a", "zone-b", "zone-c"];
const TAKEN_AT: &str = "2026-01-02T00:00:00Z";
const CREATED: &str = "2026-01-01T00:00:00Z";
const POOLS: usize = 10;
const TYPES: i64 = 200;
/// What the project wants to hold (`docs/tasks/plan.md`).
pub(crate) const WANTED_WRITE_S: f64 = 3.0;
pub(crate) const WANTED_MB: f64 = 30.0;
const WANTED_PLAN_S: f64 = 2.0;

/// Options of `plan`.
#[derive(Debug, clap::Args, Serialize)]
pub(crate) struct PlanBenchArgs {
    /// Nodes.
    #[arg(long, default_value_t = 5_000)]
    nodes: usize,
    /// Pods of a node.
    #[arg(long, default_value_t = 20)]
    #[serde(skip)]
    pods: usize,
    /// Pending pods.
    #[arg(long, default_value_t = 500)]
    pending: usize,
    /// What is drawn.
    #[arg(long, default_value_t = 1)]
    #[serde(skip)]
    seed: u64,
    #[command(flatten)]
    #[serde(skip)]
    output: Output,
}

/// Times in seconds.
#[derive(Debug, Serialize)]
pub(crate) struct PlanBenchResults {
    objects: usize,
    file_mb: f64,
    write_s: f64,
    read_s: f64,
    plan_s: f64,
    launches: usize,
    commands: usize,
    removed_nodes: usize,
}

impl PlanBenchArgs {
    /// A cluster without pending pods.
    pub(crate) const fn quiet(nodes: usize, pods: usize, seed: u64) -> Self {
        let output = Output::none();
        Self {
            nodes,
            pods,
            pending: 0,
            seed,
            output,
        }
    }
}

impl Benchmark for PlanBenchArgs {
    const NAME: &'static str = "plan";
    const SOURCES: &'static [&'static str] = &["../crates", "src"];
    type Results = PlanBenchResults;

    fn output(&self) -> &Output {
        &self.output
    }

    fn seed(&self) -> Option<u64> {
        Some(self.seed)
    }

    fn is_complete(&self) -> bool {
        self.nodes == 5_000 && self.pods == 20 && self.pending == 500
    }

    fn measure(&self) -> Result<PlanBenchResults> {
        let cluster = cluster(self)?;
        let begun = Instant::now();
        let mut file = Vec::new();
        cluster.write(&mut file)?;
        let write_s = begun.elapsed().as_secs_f64();
        let begun = Instant::now();
        let read = RecordedCluster::read(file.as_slice(), &[CLASS])?;
        let read_s = begun.elapsed().as_secs_f64();
        drop(cluster);
        let objects = read.objects.len();
        let begun = Instant::now();
        let report = plan(read, mortise_deciders::all(), &|| false);
        Ok(PlanBenchResults {
            objects,
            file_mb: megabytes(file.len()),
            write_s,
            read_s,
            plan_s: begun.elapsed().as_secs_f64(),
            launches: report.launches.len(),
            commands: report.commands.len(),
            removed_nodes: report.commands.iter().map(|each| each.nodes.len()).sum(),
        })
    }
}

#[expect(clippy::cast_precision_loss, reason = "for display")]
pub(crate) fn megabytes(bytes: usize) -> f64 {
    bytes as f64 / 1e6
}

impl Results for PlanBenchResults {
    fn write_table(&self, out: &mut dyn Write) -> Result<()> {
        writeln!(out, "{} objects", self.objects)?;
        for (what, is, wanted, unit) in [
            ("write", self.write_s, WANTED_WRITE_S, "s"),
            ("size", self.file_mb, WANTED_MB, "MB"),
            ("plan", self.plan_s, WANTED_PLAN_S, "s"),
        ] {
            let verdict = verdict(is, wanted);
            writeln!(
                out,
                "{what:>6} {is:>8.2} {unit:<2} target {wanted} {unit}: {verdict}"
            )?;
        }
        writeln!(out, "{:>6} {:>8.2} s", "read", self.read_s)?;
        let Self {
            launches,
            commands,
            removed_nodes,
            ..
        } = self;
        writeln!(
            out,
            "{launches} launches, {commands} commands that remove {removed_nodes} nodes"
        )?;
        Ok(())
    }
}

/// A kind and one of its objects.
pub(crate) type Document = (ObjectKind, Value);

/// The cluster of [`documents`], as a snapshot has it.
pub(crate) fn cluster(args: &PlanBenchArgs) -> Result<RecordedCluster> {
    let taken_at: Timestamp = TAKEN_AT.parse()?;
    let class = NodeClassKey::new(CLASS.group, CLASS.kind, "default");
    let mut cluster = RecordedCluster {
        taken_at,
        recorded_by: env!("CARGO_PKG_VERSION").to_owned(),
        settings: Settings::default(),
        scheduler_config: SchedulerConfig::default(),
        well_known: WellKnown::core(),
        served: vec![CLASS],
        objects: BTreeMap::new(),
        catalogs: BTreeMap::from([(class, (0..TYPES).map(instance_type).collect())]),
        names_are_hashed: false,
    };
    for (kind, object) in documents(args)? {
        cluster.add(kind.deserialize(object)?);
    }
    Ok(cluster)
}

/// Nodes of eight CPUs in ten NodePools, most of them four fifths full, and pods of 400 workloads, of which every tenth has a disruption
/// budget and every fifth spreads over zones.
pub(crate) fn documents(args: &PlanBenchArgs) -> Result<Vec<Document>> {
    let ready = json!([{ "type": "Ready", "status": "True", "reason": "Ready", "lastTransitionTime": CREATED }]);
    let class_kind = ObjectKind::NodeClass {
        group: CLASS.group.into(),
        kind: CLASS.kind.into(),
    };
    let mut all = vec![(
        class_kind,
        json!({ "metadata": { "name": "default", "generation": 1, "uid": "class" }, "status": { "conditions": ready } }),
    )];
    let mut annotations = Vec::new();
    for at in 0..POOLS {
        let mut pool = pool(at, &ready);
        let hash = serde_json::from_value::<NodePool>(pool.clone())?.hash();
        let of_template = json!({
            labels::NODEPOOL_HASH: hash.to_string(), labels::NODEPOOL_HASH_VERSION: labels::NODEPOOL_HASH_VERSION_VALUE,
        });
        pool["metadata"]["annotations"] = of_template.clone();
        annotations.push(of_template);
        all.push((ObjectKind::Pool, pool));
    }
    all.extend(
        (0..400)
            .step_by(10)
            .map(|app| (ObjectKind::Pdb, budget(app))),
    );
    let mut random = SplitMix64::new(args.seed);
    for at in 0..args.nodes {
        let (node, claim) = node(at, &annotations[at % POOLS]);
        all.extend([(ObjectKind::Node, node), (ObjectKind::Claim, claim)]);
        // One node in fifty is nearly empty.
        let milli = if at % 50 == 0 { 20 } else { 330 };
        for nth in 0..args.pods {
            let app = random.below(400);
            let pod = pod(at * args.pods + nth, app, milli, Some(at));
            all.push((ObjectKind::Pod, pod));
        }
    }
    for nth in 0..args.pending {
        let app = random.below(400);
        let pod = pod(10_000_000 + nth, app, 1_500, None);
        all.push((ObjectKind::Pod, pod));
    }
    Ok(all)
}

fn instance_type(at: i64) -> InstanceType {
    let cpu = [2_i64, 4, 8, 16, 32][usize::try_from(at % 5).unwrap_or(0)];
    let name = format!("t{}.{cpu}x", at / 5);
    let price = cpu * 48_000 + at * 100;
    let offerings = ZONES.iter().flat_map(|zone| {
        let kinds = [(CapacityType::OnDemand, 100), (CapacityType::Spot, 40)];
        kinds.map(|(capacity_type, percent)| Offering {
            zone: (*zone).into(),
            capacity_type,
            price: Some(MicroUsd(price * percent / 100)),
            available: true,
            reservation: None,
            labels: Vec::new(),
        })
    });
    InstanceType {
        requirements: [
            Requirement::is(labels::INSTANCE_TYPE, name.as_str()),
            Requirement::is(labels::ARCH, "amd64"),
            Requirement::is(labels::OS, "linux"),
            Requirement::new(labels::TOPOLOGY_ZONE, Operator::In, ZONES),
            Requirement::new(labels::CAPACITY_TYPE, Operator::In, ["spot", "on-demand"]),
        ]
        .into_iter()
        .collect(),
        capacity: Resources::new(cpu * 1_000, cpu << 32).with("pods", 110),
        overhead: Resources::new(100, 256 << 20),
        offerings: offerings.collect(),
        devices: Arc::default(),
        name: name.into(),
    }
}

fn pool(at: usize, ready: &Value) -> Value {
    json!({
        "metadata": { "name": format!("pool-{at}"), "uid": format!("pool-{at}"), "generation": 1 },
        "spec": {
            "disruption": { "consolidateAfter": "30s", "consolidationPolicy": "WhenEmptyOrUnderutilized", "budgets": [{ "nodes": "5%" }] },
            "template": { "spec": {
                "expireAfter": "Never", "nodeClassRef": { "group": CLASS.group, "kind": CLASS.kind, "name": "default" },
                "requirements": [{ "key": labels::CAPACITY_TYPE, "operator": "In", "values": ["on-demand"] }],
            } },
        },
        "status": { "conditions": ready },
    })
}

fn budget(app: u64) -> Value {
    json!({
        "metadata": { "name": format!("app-{app}"), "namespace": "default", "generation": 1 },
        "spec": { "selector": { "matchLabels": { "app": format!("app-{app}") } }, "maxUnavailable": 2 },
        "status": { "disruptionsAllowed": 2, "observedGeneration": 1 },
    })
}

fn node(at: usize, annotations: &Value) -> (Value, Value) {
    let name = format!("ip-10-{}-{}-{}.internal", at >> 16, at >> 8 & 255, at & 255);
    let id = format!("cloud:///{name}");
    let of = json!({
        labels::NODEPOOL: format!("pool-{}", at % POOLS), labels::TOPOLOGY_ZONE: ZONES[at % 3], labels::HOSTNAME: name, labels::ARCH: "amd64",
        labels::OS: "linux", labels::CAPACITY_TYPE: "on-demand", labels::INSTANCE_TYPE: "t0.8x", labels::REGISTERED: "true",
        labels::INITIALIZED: "true", "g/class": "default",
    });
    let (capacity, allocatable) = (
        json!({ "cpu": "8", "memory": "32Gi", "pods": "110" }),
        json!({ "cpu": "7900m", "memory": "32512Mi", "pods": "110" }),
    );
    let conditions = [
        "Launched",
        "Registered",
        "Initialized",
        "Consolidatable",
        "ConsistentStateFound",
        "Ready",
    ];
    let conditions: Vec<Value> = conditions
        .iter()
        .map(|each| json!({ "type": each, "status": "True", "reason": each, "lastTransitionTime": CREATED }))
        .collect();
    let node = json!({
        "metadata": { "name": name, "uid": format!("node-{at}"), "labels": of, "creationTimestamp": CREATED }, "spec": { "providerID": id },
        "status": { "capacity": capacity, "allocatable": allocatable, "conditions": [{ "type": "Ready", "status": "True" }] },
    });
    let claim = json!({
        "metadata": {
            "name": format!("pool-{}-{at:05}", at % POOLS), "uid": format!("claim-{at}"), "labels": of, "annotations": annotations, "creationTimestamp": CREATED,
            "finalizers": ["karpenter.sh/termination"],
        },
        "spec": { "expireAfter": "Never", "nodeClassRef": { "group": CLASS.group, "kind": CLASS.kind, "name": "default" }, "requirements": [] },
        "status": { "providerID": id, "nodeName": name, "capacity": capacity, "allocatable": allocatable, "conditions": conditions },
    });
    (node, claim)
}

/// As random as those of a cluster, which do not compress.
fn uid(number: usize) -> String {
    let mut random = SplitMix64::new(number as u64);
    let (high, low) = (random.next_u64(), random.next_u64());
    let part = |word: u64, from: u32, bits: u32| word >> from & ((1 << bits) - 1);
    format!(
        "{:08x}-{:04x}-4{:03x}-8{:03x}-{:012x}",
        part(high, 32, 32),
        part(high, 16, 16),
        part(high, 0, 12),
        part(low, 48, 12),
        part(low, 0, 48),
    )
}

fn pod(number: usize, app: u64, milli: u32, node: Option<usize>) -> Value {
    let name = format!("app-{app}");
    let mut spec = json!({ "containers": [{ "name": "main", "resources": { "requests": { "cpu": format!("{milli}m"), "memory": format!("{}Mi", milli * 3) } } }] });
    let (mut phase, mut scheduled) = (
        "Pending",
        json!({ "type": "PodScheduled", "status": "False", "reason": "Unschedulable" }),
    );
    if let Some(at) = node {
        spec["nodeName"] = json!(format!(
            "ip-10-{}-{}-{}.internal",
            at >> 16,
            at >> 8 & 255,
            at & 255
        ));
        (phase, scheduled) = (
            "Running",
            json!({ "type": "PodScheduled", "status": "True" }),
        );
    }
    if app % 5 == 1 {
        spec["topologySpreadConstraints"] = json!([{
            "maxSkew": 5, "topologyKey": labels::TOPOLOGY_ZONE, "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": { "matchLabels": { "app": name } },
        }]);
    }
    json!({
        "metadata": {
            "name": format!("{name}-7d4b9c6f5-{number:07}"), "namespace": "default", "uid": uid(number),
            "labels": { "app": name, "pod-template-hash": "7d4b9c6f5" }, "creationTimestamp": CREATED,
            "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("{name}-7d4b9c6f5"), "uid": format!("rs-{app}"), "controller": true }],
        },
        "spec": spec,
        "status": { "phase": phase, "conditions": [scheduled, { "type": "Ready", "status": "True" }] },
    })
}
