//! `traces`: what the plan for a recorded workload costs above what any plan costs.
//!
//! Pods come from files `openb_pod_list_*.csv` of a public set of cluster traces (`cluster-trace-gpu-v2023`), which are not part
//! of this source: `--inputs` names their folder. CPU and memory are requests; GPUs as requested, a fraction counts as
//! one; `gpu_spec` is required node affinity to the GPU's name; pods of class `BE` tolerate spot nodes. In the form `cpu`
//! GPUs are left out. All pods are pending at once, and there are no nodes.
//!
//! Instance types of the form `gpu` are the shapes of `openb_node_list_all_node.csv`; those of the form `cpu` are three
//! families in nine sizes. Prices depend on the capacity (see [`price`]), spot instances cost 35 % of that.

mod trace;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, bail, ensure};
use jiff::Timestamp;
use mortise_apis::labels::{self, WellKnown};
use mortise_apis::requirements::{Operator, Requirement};
use mortise_apis::resources::Resources;
use mortise_apis::values::money::MicroUsd;
use mortise_apis::{NodePool, k8s};
use mortise_cloudprovider::{CapacityType, InstanceType, Offering};
use mortise_planning::scheduling::{LaunchPlan, PlannedClaim, REPACK, SolveOptions, solve};
use mortise_state::catalog::Catalog;
use mortise_state::index::Index;
use mortise_state::resource_kinds::{EventSource, Object, ObjectEvent};
use serde::Serialize;
use serde_json::{Value, json};

use crate::bound::{self, Buyable, Shape};
use crate::output::Output;
use crate::report::{self, Benchmark, Results};
use crate::test_host::cpu_seconds;
use trace::{Kind, TracePod, kinds, pods, price};

const GPU: &str = "nvidia.com/gpu";
const GPU_NAME: &str = "gpu.example.com/name";
/// The NodePools by name; that of spot nodes has the taint.
const ON_DEMAND: &str = "on-demand";
const SPOT: &str = "spot";
const SPOT_TAINT: &str = "example.com/spot";
const MIB: i64 = 1 << 20;
const SPOT_PERCENT: i64 = 35;

/// Options of `traces`.
#[derive(Debug, clap::Args, Serialize)]
pub(crate) struct TracesArgs {
    /// Folder with openb_node_list_all_node.csv and openb_pod_list_*.csv.
    #[arg(long)]
    #[serde(skip)]
    inputs: PathBuf,
    /// Only inputs whose name contains this.
    #[arg(long)]
    only: Option<String>,
    /// Steps per pod to reduce the cost of the new nodes.
    #[arg(long, default_value_t = REPACK)]
    repack: u32,
    #[command(flatten)]
    #[serde(skip)]
    output: Output,
}

#[derive(Debug, Serialize)]
struct Row {
    input: String,
    form: &'static str,
    pods: usize,
    placed: usize,
    nodes: usize,
    /// Seconds of the solve on a processor.
    seconds: Option<f64>,
    dollars_per_hour: f64,
    /// No plan for the placed pods costs less, even if pods could be cut in pieces.
    bound: f64,
    /// Nodes whose pods do not fit, by an independent sum.
    overfull: usize,
    /// Pods on nodes of a NodePool whose taint they do not tolerate, or with GPUs of another name than they ask for.
    misplaced: usize,
}

/// All figures of a run.
#[derive(Debug, Serialize)]
pub(crate) struct TracesResults {
    /// Name of the public set of traces.
    traces: &'static str,
    rows: Vec<Row>,
}

fn overhead() -> Resources {
    Resources::new(200, 1024 * MIB)
}

fn instance_type(of: &Kind) -> InstanceType {
    let name = format!(
        "{}x{}{}{}",
        of.cpu_milli / 1000,
        of.memory_mib / 1024,
        if of.gpus > 0 { "-" } else { "" },
        if of.gpus > 0 {
            format!("{}{}", of.gpus, of.gpu)
        } else {
            String::new()
        },
    );
    let list =
        |key: &str, values: &[&str]| Requirement::new(key, Operator::In, values.iter().copied());
    let mut requirements = vec![
        list(labels::INSTANCE_TYPE, &[&name]),
        list(labels::ARCH, &["amd64"]),
        list(labels::OS, &["linux"]),
        list(labels::TOPOLOGY_ZONE, &["zone-a"]),
        list(labels::CAPACITY_TYPE, &["on-demand", "spot"]),
    ];
    requirements.push(if of.gpus > 0 {
        list(GPU_NAME, &[&of.gpu])
    } else {
        Requirement::does_not_exist(GPU_NAME)
    });
    let offering = |(capacity_type, percent): (CapacityType, i64)| Offering {
        zone: "zone-a".into(),
        capacity_type,
        price: Some(MicroUsd(price(of) * percent / 100)),
        available: true,
        reservation: None,
        labels: Vec::new(),
    };
    let kinds = [
        (CapacityType::OnDemand, 100),
        (CapacityType::Spot, SPOT_PERCENT),
    ];
    let mut capacity = Resources::new(of.cpu_milli, of.memory_mib * MIB).with("pods", 250);
    if of.gpus > 0 {
        capacity = capacity.with(GPU, of.gpus);
    }
    InstanceType {
        name: name.as_str().into(),
        requirements: requirements.into_iter().collect(),
        capacity,
        overhead: overhead(),
        offerings: kinds.into_iter().map(offering).collect(),
        devices: Arc::default(),
    }
}

fn pool(name: &str, capacity_type: &str, weight: i64, taints: &Value) -> Result<NodePool> {
    Ok(serde_json::from_value(json!({
        "metadata": {"name": name, "uid": name},
        "spec": {"weight": weight, "template": {"metadata": {}, "spec": {
            "nodeClassRef": {"group": "g", "kind": "Class", "name": "default"},
            "requirements": [{"key": labels::CAPACITY_TYPE, "operator": "In", "values": [capacity_type]}],
            "taints": taints,
        }}},
        "status": {"conditions": [{"type": "Ready", "status": "True", "reason": "Ready", "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
    }))?)
}

fn pod_object(at: usize, of: &TracePod) -> Result<k8s::Pod> {
    let mut requests =
        json!({"cpu": format!("{}m", of.cpu_milli), "memory": format!("{}Mi", of.memory_mib)});
    if of.gpus > 0 {
        requests[GPU] = json!(of.gpus.to_string());
    }
    let mut spec = json!({"containers": [{"name": "c", "resources": {"requests": requests, "limits": requests}}]});
    if !of.names.is_empty() {
        spec["affinity"] = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": GPU_NAME, "operator": "In", "values": of.names}]}]}}});
    }
    if of.spot {
        spec["tolerations"] = json!([{"key": SPOT_TAINT, "operator": "Exists"}]);
    }
    Ok(serde_json::from_value(json!({
        "metadata": {"name": format!("pod-{at}"), "namespace": "default", "uid": format!("uid-{at:06}"), "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": spec,
        "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]},
    }))?)
}

fn world(pods: &[TracePod], kinds: &[Kind]) -> Result<Index> {
    let known = WellKnown::core().with_keys([GPU_NAME]);
    let mut index = Index::new(known, false, Timestamp::UNIX_EPOCH);
    let catalog = Arc::new(Catalog::build(kinds.iter().map(instance_type).collect()));
    let spot_only = json!([{"key": SPOT_TAINT, "effect": "NoSchedule"}]);
    for pool in [
        pool(ON_DEMAND, "on-demand", 1, &json!([]))?,
        pool(SPOT, "spot", 10, &spot_only)?,
    ] {
        index.set_catalog(&pool.node_class_key(), Arc::clone(&catalog));
        index.apply(ObjectEvent::Applied(
            Object::Pool(Box::new(pool)),
            EventSource::Watch,
        ));
    }
    for (at, pod) in pods.iter().enumerate() {
        let object = Object::Pod(Box::new(pod_object(at, pod)?));
        index.apply(ObjectEvent::Applied(object, EventSource::Watch));
    }
    index.set_synced();
    Ok(index)
}

/// Resources of a pod or an instance type, as the bound counts them.
fn amounts(of: &Resources) -> [f64; 4] {
    #[expect(clippy::cast_precision_loss, reason = "for display")]
    let each = |amount: i64, unit: f64| amount as f64 / unit;
    [
        each(of.cpu, 1e3),
        each(of.memory, 1024.0 * 1024.0 * 1024.0),
        each(of.pods, 1.0),
        each(of.get(GPU), 1.0),
    ]
}

/// The bound for these pods.
fn least(pods: &BTreeMap<TracePod, usize>, kinds: &[Kind]) -> f64 {
    let mut buyable = Vec::new();
    for kind in kinds {
        let of = instance_type(kind);
        let room = amounts(&of.capacity.sub(&of.overhead));
        for spot in [false, true] {
            let percent = if spot { SPOT_PERCENT } else { 100 };
            let takes = |pod: &TracePod| {
                (!spot || pod.spot) && (pod.names.is_empty() || pod.names.contains(&kind.gpu))
            };
            buyable.push(Buyable {
                price: MicroUsd(price(kind) * percent / 100).dollars(),
                room,
                takes: pods.keys().map(takes).collect(),
            });
        }
    }
    let shape = |(pod, count): (&TracePod, &usize)| {
        let requests = Resources::new(pod.cpu_milli, pod.memory_mib * MIB)
            .with("pods", 1)
            .with(GPU, pod.gpus);
        Shape {
            amounts: amounts(&requests),
            count: *count,
        }
    };
    let shapes: Vec<Shape> = pods.iter().map(shape).collect();
    bound::of_shapes(&shapes, &buyable)
}

/// The types that a claim of a plan may become, as the cloud describes them; `None` when one is not there, or there is none.
fn types_of<'a, T>(claim: &PlannedClaim, by_name: &'a BTreeMap<Arc<str>, T>) -> Option<Vec<&'a T>> {
    let types: Option<Vec<&T>> = claim
        .instance_types
        .iter()
        .map(|name| by_name.get(name))
        .collect();
    types.filter(|types| !types.is_empty())
}

/// Nodes of a plan that are too small for their pods.
fn overfull(plan: &LaunchPlan, kinds: &[Kind]) -> usize {
    let by_name: BTreeMap<Arc<str>, InstanceType> = kinds
        .iter()
        .map(instance_type)
        .map(|of| (Arc::clone(&of.name), of))
        .collect();
    let is_overfull = |claim: &&PlannedClaim| {
        let is_too_small = |of: &&InstanceType| {
            let mut left = of.capacity.sub(&of.overhead);
            for pod in &claim.pods {
                left.sub_assign(&pod.class.requests);
            }
            left.iter().any(|(_, amount)| amount < 0)
        };
        types_of(claim, &by_name).is_none_or(|types| types.iter().any(is_too_small))
    };
    plan.claims.iter().filter(is_overfull).count()
}

/// Pods of a plan that are where they may not be.
fn misplaced(plan: &LaunchPlan, pods: &[TracePod], kinds: &[Kind]) -> Result<usize> {
    let gpus: BTreeMap<Arc<str>, &str> = kinds
        .iter()
        .map(|kind| (instance_type(kind).name, kind.gpu.as_str()))
        .collect();
    let mut misplaced = 0;
    for claim in &plan.claims {
        let types = types_of(claim, &gpus);
        for pod in &claim.pods {
            let asked = traced(pods, &pod.key.name)?;
            let has_name = |gpu: &&str| asked.names.iter().any(|name| name == gpu);
            let is_tolerated = match &*claim.pool {
                ON_DEMAND => true,
                SPOT => asked.spot,
                _ => false,
            };
            let is_named = asked.names.is_empty()
                || types
                    .as_ref()
                    .is_some_and(|types| types.iter().copied().all(has_name));
            misplaced += usize::from(!is_tolerated || !is_named);
        }
    }
    Ok(misplaced)
}

/// What the trace says of a pod that was made of it.
fn traced<'a>(pods: &'a [TracePod], name: &str) -> Result<&'a TracePod> {
    let (_, at) = name.split_once('-').context("name of a pod")?;
    pods.get(at.parse::<usize>()?)
        .with_context(|| format!("{name} is in no trace"))
}

fn measure(args: &TracesArgs, path: &Path, form: &'static str) -> Result<Row> {
    let pods = pods(path, form)?;
    let kinds = kinds(&args.inputs, form)?;
    let snapshot = world(&pods, &kinds)?.freeze(Timestamp::UNIX_EPOCH);
    let options = SolveOptions {
        pending: true,
        repack: args.repack,
        ..SolveOptions::default()
    };
    let start = cpu_seconds();
    let (plan, _) = solve(Timestamp::UNIX_EPOCH, &snapshot, &options, &|| false);
    let seconds = cpu_seconds().zip(start).map(|(end, start)| end - start);
    let mut placed: BTreeMap<TracePod, usize> = BTreeMap::new();
    for pod in plan.claims.iter().flat_map(|claim| &claim.pods) {
        let of = traced(&pods, &pod.key.name)?.clone();
        *placed.entry(of).or_default() += 1;
    }
    let input = path.file_stem().map_or_else(String::new, |stem| {
        let stem = stem.to_string_lossy();
        stem.trim_start_matches("openb_pod_list_").to_owned()
    });
    Ok(Row {
        input,
        form,
        pods: pods.len(),
        placed: placed.values().sum(),
        nodes: plan.claims.len(),
        seconds,
        dollars_per_hour: plan.price().map_or(f64::NAN, |price| price.dollars()),
        bound: least(&placed, &kinds),
        overfull: overfull(&plan, &kinds),
        misplaced: misplaced(&plan, &pods, &kinds)?,
    })
}

/// Files with pods in a folder.
fn pod_lists(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .with_context(|| format!("reading {}", folder.display()))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            let name = path
                .file_name()
                .map(|name| name.to_string_lossy().into_owned());
            name.is_some_and(|name| name.starts_with("openb_pod_list_") && name.ends_with(".csv"))
        })
        .collect();
    files.sort();
    Ok(files)
}

impl Benchmark for TracesArgs {
    const NAME: &'static str = "traces";
    const SOURCES: &'static [&'static str] = report::SOLVER;
    type Results = TracesResults;

    fn output(&self) -> &Output {
        &self.output
    }

    fn seed(&self) -> Option<u64> {
        None
    }

    fn is_complete(&self) -> bool {
        self.only.is_none()
    }

    fn measure(&self) -> Result<TracesResults> {
        let mut rows = Vec::new();
        for path in pod_lists(&self.inputs)? {
            for form in ["cpu", "gpu"] {
                let name = format!("{}-{form}", path.display());
                if let Some(only) = &self.only
                    && !name.contains(only.as_str())
                {
                    continue;
                }
                report::progress(&name);
                rows.push(measure(self, &path, form)?);
            }
        }
        if rows.is_empty() {
            bail!("no openb_pod_list_*.csv in {} suits", self.inputs.display());
        }
        Ok(TracesResults {
            traces: "cluster-trace-gpu-v2023",
            rows,
        })
    }

    fn conclude(&self, results: &TracesResults) -> Result<()> {
        let overfull: usize = results.rows.iter().map(|row| row.overfull).sum();
        let misplaced: usize = results.rows.iter().map(|row| row.misplaced).sum();
        ensure!(
            overfull + misplaced == 0,
            "{overfull} nodes are too small for their pods, and {misplaced} pods are on nodes that they may not use"
        );
        Ok(())
    }
}

impl Results for TracesResults {
    fn write_table(&self, out: &mut dyn Write) -> Result<()> {
        writeln!(
            out,
            "{}: all pods of a trace pending at once; gap is what the plan costs above the bound",
            self.traces
        )?;
        writeln!(
            out,
            "{:<14}{:<5}{:>7}{:>8}{:>9}{:>9}{:>12}{:>12}{:>8}",
            "input", "form", "pods", "placed", "nodes", "cpu s", "$/h", "bound", "gap"
        )?;
        for row in &self.rows {
            writeln!(
                out,
                "{:<14}{:<5}{:>7}{:>8}{:>9}{:>9.2}{:>12.3}{:>12.3}{:>7.2}%{}",
                row.input,
                row.form,
                row.pods,
                row.placed,
                row.nodes,
                row.seconds.unwrap_or(f64::NAN),
                row.dollars_per_hour,
                row.bound,
                (row.dollars_per_hour / row.bound - 1.0) * 100.0,
                match (row.overfull, row.misplaced) {
                    (0, 0) => "",
                    (0, _) => "  MISPLACED",
                    _ => "  OVERFULL",
                }
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(gpu: &str) -> Kind {
        Kind {
            cpu_milli: 8_000,
            memory_mib: 32 * 1024,
            gpus: 4,
            gpu: gpu.to_owned(),
        }
    }

    #[test]
    fn pods_where_they_may_not_be_are_counted() {
        let asks = |names: &[&str], spot: bool| TracePod {
            cpu_milli: 1_000,
            memory_mib: 1024,
            gpus: 1,
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            spot,
        };
        let pods = [asks(&["T4"], true), asks(&["G2"], false), asks(&[], true)];
        let kinds = [kind("T4"), kind("G2")];
        let snapshot = world(&pods, &kinds).unwrap().freeze(Timestamp::UNIX_EPOCH);
        let options = SolveOptions {
            pending: true,
            ..SolveOptions::default()
        };
        let (plan, _) = solve(Timestamp::UNIX_EPOCH, &snapshot, &options, &|| false);
        let placed: usize = plan.claims.iter().map(|claim| claim.pods.len()).sum();
        assert_eq!(placed, pods.len());
        let count = |pods: &[TracePod]| misplaced(&plan, pods, &kinds).unwrap();
        assert_eq!(count(&pods), 0);
        let other_name = [asks(&["G2"], true), pods[1].clone(), pods[2].clone()];
        assert_eq!(count(&other_name), 1, "its node has T4s");
        let none_tolerates = pods.clone().map(|pod| TracePod { spot: false, ..pod });
        let on_spot = plan.claims.iter().filter(|claim| &*claim.pool == SPOT);
        let on_spot: usize = on_spot.map(|claim| claim.pods.len()).sum();
        assert!(on_spot > 0, "the pool of higher weight");
        assert_eq!(count(&none_tolerates), on_spot);
        assert_eq!(overfull(&plan, &kinds), 0);
    }
}
