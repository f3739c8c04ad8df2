//! `scale`: cases far beyond the recorded inputs: many pools and types, affinity everywhere, and one pod in a large cluster.
//!
//! The clusters are made from a seed by arithmetic, so that everyone measures the same ones.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use jiff::Timestamp;
use mortise_core::apis::{NodeClaim, NodePool, k8s};
use mortise_core::catalog::Catalog;
use mortise_core::cloud::{CapacityType, InstanceType, Offering};
use mortise_core::index::{Index, News, Object, Source};
use mortise_core::labels::{self, WellKnown};
use mortise_core::money::MicroUsd;
use mortise_core::requirements::{Operator, Requirement};
use mortise_core::resources::Resources;
use mortise_core::scheduling::{LaunchPlan, REPACK, SolveOptions, SolveReport, solve};
use mortise_core::snapshot::Snapshot;
use serde::Serialize;
use serde_json::{Value, json};

use crate::machine::{Machine, cpu_seconds, peak_mib};

const ZONES: [&str; 4] = ["zone-a", "zone-b", "zone-c", "zone-d"];
const ARCHS: [&str; 2] = ["amd64", "arm64"];
const GIB: i64 = 1 << 30;

/// Options of `scale`.
#[derive(Debug, clap::Args)]
pub(crate) struct ScaleArgs {
    /// Timed runs per case; the median counts.
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Only cases whose name contains this.
    #[arg(long)]
    only: Option<String>,
    /// Print the results as JSON lines instead of a table.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Row {
    case: String,
    pods: usize,
    placed: usize,
    machines: usize,
    /// Milliseconds: least, median, most.
    ms: (f64, f64, f64),
    peak_mib: Option<f64>,
    target: String,
    met: bool,
}

fn read<T: serde::de::DeserializeOwned>(value: Value) -> Result<T> {
    Ok(serde_json::from_value(value)?)
}

/// Types of four families in eight sizes and more generations than any region has, at prices that follow their size.
fn catalog(count: usize) -> Catalog {
    let list =
        |key: &str, values: &[&str]| Requirement::new(key, Operator::In, values.iter().copied());
    let one = |at: usize| {
        let (family, rest) = (at % 4, at / 4);
        let (size, generation) = (rest % 8, rest / 8);
        let arch = ARCHS[generation % 2];
        let cpu = [1_i64, 2, 4, 8, 16, 32, 48, 96][size];
        let ratio = [2_i64, 4, 8, 16][family];
        let generation_price = 100 - i64::try_from(generation).unwrap_or(0);
        let price = cpu * (20_000 + 5_000 * ratio) * generation_price / 100;
        let name = format!("{}{generation}.{cpu}x", ["c", "m", "r", "x"][family]);
        let offerings = ZONES.iter().flat_map(|zone| {
            [(CapacityType::Spot, 35), (CapacityType::OnDemand, 100)].map(|(kind, percent)| {
                Offering {
                    zone: (*zone).into(),
                    capacity_type: kind,
                    price: Some(MicroUsd(price * percent / 100)),
                    available: true,
                    reservation: None,
                    labels: Vec::new(),
                }
            })
        });
        InstanceType {
            name: name.as_str().into(),
            requirements: [
                list(labels::INSTANCE_TYPE, &[&name]),
                list(labels::ARCH, &[arch]),
                list(labels::OS, &["linux"]),
                list(labels::TOPOLOGY_ZONE, &ZONES),
                list(labels::CAPACITY_TYPE, &["spot", "on-demand"]),
            ]
            .into_iter()
            .collect(),
            capacity: Resources::of(cpu * 1000, cpu * ratio * GIB)
                .with("pods", 58 + 50 * cpu.min(4)),
            overhead: Resources::of(80 + cpu * 2, 512 << 20),
            offerings: offerings.collect(),
        }
    };
    Catalog::build((0..count).map(one).collect())
}

fn pool(at: usize) -> Value {
    json!({
        "metadata": {"name": format!("pool-{at:02}"), "uid": format!("pool-{at}")},
        "spec": {
            "weight": 1 + at % 5,
            "limits": {"cpu": "1000000"},
            "template": {
                "metadata": {"labels": {"team": format!("team-{}", at % 10)}},
                "spec": {
                    "nodeClassRef": {"group": "g", "kind": "Class", "name": "default"},
                    "requirements": [{"key": labels::ARCH, "operator": "In", "values": [ARCHS[at % 2]]}],
                    "taints": if at % 4 == 3 { json!([{"key": "dedicated", "value": format!("d{at}"), "effect": "NoSchedule"}]) } else { json!([]) },
                },
            },
        },
        "status": {"conditions": [{"type": "Ready", "status": "True", "reason": "Ready", "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
    })
}

/// Which constraints deployments have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mix {
    /// Resources, and selectors of pools now and then.
    Plain,
    /// One in three deployments spreads or has affinity.
    Diverse,
    /// Every deployment has affinity, anti-affinity or spread.
    Affinity,
}

/// A pod of a deployment; pods of one deployment are alike.
fn pod(deployment: usize, replica: usize, mix: Mix) -> Value {
    let app = format!("app-{deployment}");
    let cpu = [100, 250, 500, 750, 1000, 2000, 4000][deployment * 5 % 7];
    let memory = [128, 256, 512, 1024, 2048, 4096, 8192, 16384][deployment * 3 % 8];
    let selector = json!({"matchLabels": {"app": app}});
    let mut spec = json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": format!("{cpu}m"), "memory": format!("{memory}Mi")}}}]});
    if deployment.is_multiple_of(6) {
        spec["nodeSelector"] = json!({"team": format!("team-{}", deployment / 6 % 10)});
    }
    let kind = match mix {
        Mix::Plain => 9,
        Mix::Diverse => deployment % 12,
        Mix::Affinity => deployment % 4,
    };
    let spread = |key: &str| json!([{"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}]);
    let term = |key: &str| json!({"requiredDuringSchedulingIgnoredDuringExecution": [{"labelSelector": selector, "topologyKey": key}]});
    match kind {
        0 => spec["topologySpreadConstraints"] = spread(labels::TOPOLOGY_ZONE),
        1 => spec["affinity"]["podAffinity"] = term(labels::TOPOLOGY_ZONE),
        2 => spec["affinity"]["podAntiAffinity"] = term(labels::HOSTNAME),
        3 => spec["topologySpreadConstraints"] = spread(labels::HOSTNAME),
        _ => {}
    }
    json!({
        "metadata": {"name": format!("{app}-{replica}"), "namespace": "default", "uid": format!("uid-{app}-{replica}"), "labels": {"app": app},
            "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": spec,
        "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]},
    })
}

fn index(pools: usize, types: usize) -> Result<Index> {
    let mut index = Index::new(WellKnown::core(), false, Timestamp::UNIX_EPOCH);
    let catalog = Arc::new(catalog(types));
    for at in 0..pools {
        let pool: NodePool = read(pool(at))?;
        index.set_catalog(&pool.node_class_key(), Arc::clone(&catalog));
        index.apply(News::Applied(Object::Pool(Box::new(pool)), Source::Watch));
    }
    Ok(index)
}

fn add_pods(index: &mut Index, count: usize, replicas: usize, mix: Mix) -> Result<()> {
    for at in 0..count {
        let pod: k8s::Pod = read(pod(at / replicas, at % replicas, mix))?;
        index.apply(News::Applied(Object::Pod(Box::new(pod)), Source::Watch));
    }
    Ok(())
}

/// Machines that are nearly full, each with as many pods.
fn add_machines(index: &mut Index, machines: usize, pods_each: usize) -> Result<()> {
    for at in 0..machines {
        let name = format!("node-{at:05}");
        let all_labels = json!({
            labels::NODEPOOL: format!("pool-{:02}", at % 20), labels::TOPOLOGY_ZONE: ZONES[at % 4], labels::HOSTNAME: name,
            labels::ARCH: ARCHS[at % 2], labels::OS: "linux", labels::CAPACITY_TYPE: "spot",
            labels::INSTANCE_TYPE: "m0.8x", labels::REGISTERED: "true", labels::INITIALIZED: "true",
            "team": format!("team-{}", at % 10),
        });
        let amounts = json!({"cpu": "8", "memory": "32Gi", "pods": "110"});
        let id = format!("cloud:///{name}");
        let node = json!({"metadata": {"name": name, "uid": name, "labels": all_labels}, "spec": {"providerID": id}, "status": {"capacity": amounts, "allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]}});
        let claim = json!({
            "metadata": {"name": format!("claim-{at:05}"), "uid": format!("claim-{at}"), "labels": all_labels},
            "spec": {"nodeClassRef": {"group": "g", "kind": "Class", "name": "default"}, "requirements": []},
            "status": {"providerID": id, "nodeName": name, "capacity": amounts, "allocatable": amounts},
        });
        index.apply(News::Applied(
            Object::Node(Box::new(read(node)?)),
            Source::Watch,
        ));
        index.apply(News::Applied(
            Object::Claim(Box::new(read::<NodeClaim>(claim)?)),
            Source::Watch,
        ));
        for each in 0..pods_each {
            let mut pod = pod(
                (at * pods_each + each) / 200,
                at * pods_each + each,
                Mix::Diverse,
            );
            pod["spec"]["nodeName"] = json!(name);
            pod["spec"]["containers"][0]["resources"]["requests"] =
                json!({"cpu": "380m", "memory": "1500Mi"});
            pod["status"] = json!({"phase": "Running"});
            pod["metadata"]["name"] = json!(format!("bound-{at}-{each}"));
            pod["metadata"]["uid"] = json!(format!("bound-{at}-{each}"));
            index.apply(News::Applied(
                Object::Pod(Box::new(read(pod)?)),
                Source::Watch,
            ));
        }
    }
    Ok(())
}

fn answer(snapshot: &Snapshot) -> (LaunchPlan, SolveReport) {
    let options = SolveOptions {
        pending: true,
        repack: REPACK,
        ..SolveOptions::default()
    };
    solve(Timestamp::UNIX_EPOCH, snapshot, &options, &|| false)
}

/// Time on the processor where it can be read, else by the wall: other work on the machine does not change the former.
struct Clock {
    wall: Instant,
    processor: Option<f64>,
}

impl Clock {
    fn start() -> Self {
        Self {
            processor: cpu_seconds(),
            wall: Instant::now(),
        }
    }

    fn ms(&self) -> f64 {
        let wall = self.wall.elapsed().as_secs_f64();
        let processor = cpu_seconds()
            .zip(self.processor)
            .map(|(end, start)| end - start);
        // The kernel counts in ticks: short times are read from the wall.
        processor.filter(|seconds| *seconds >= 0.02).unwrap_or(wall) * 1e3
    }
}

fn timed(
    runs: usize,
    mut once: impl FnMut() -> (f64, LaunchPlan),
) -> ((f64, f64, f64), LaunchPlan) {
    let mut all = Vec::new();
    let mut last = LaunchPlan::default();
    for _ in 0..runs.max(1) {
        let (ms, plan) = once();
        all.push(ms);
        last = plan;
    }
    all.sort_by(f64::total_cmp);
    ((all[0], all[all.len() / 2], all[all.len() - 1]), last)
}

fn row(case: &str, pods: usize, plan: &LaunchPlan, ms: (f64, f64, f64), most_ms: f64) -> Row {
    let on_new: usize = plan.claims.iter().map(|claim| claim.pods.len()).sum();
    Row {
        case: case.to_owned(),
        pods,
        placed: on_new + plan.placements.len(),
        machines: plan.claims.len(),
        ms,
        peak_mib: peak_mib(),
        target: if most_ms.is_finite() {
            format!("<= {most_ms:.0} ms")
        } else {
            "no target".to_owned()
        },
        met: ms.1 <= most_ms,
    }
}

fn solved(args: &ScaleArgs, index: &mut Index) -> ((f64, f64, f64), LaunchPlan) {
    index.set_synced();
    let snapshot = index.freeze(Timestamp::UNIX_EPOCH);
    timed(args.runs, || {
        let clock = Clock::start();
        let (plan, _) = answer(&snapshot);
        (clock.ms(), plan)
    })
}

/// Runs the cases.
pub(crate) fn run(args: &ScaleArgs) -> Result<()> {
    let mut out = std::io::stdout().lock();
    let machine = Machine::here(&["../crates/core/src", "src"]);
    if !args.json {
        writeln!(
            out,
            "{machine:?}; times in ms: least, median, most of {} runs",
            args.runs
        )?;
    }
    let wanted = |case: &str| args.only.as_deref().is_none_or(|only| case.contains(only));
    let mut show = |row: Row| -> Result<()> {
        if args.json {
            return Ok(writeln!(out, "{}", serde_json::to_string(&row)?)?);
        }
        let (least, median, most) = row.ms;
        writeln!(
            out,
            "{:<34}{:>7} pods{:>7} placed{:>6} machines{least:>10.2}{median:>10.2}{most:>10.2}{:>8.1} MiB  {} {}",
            row.case,
            row.pods,
            row.placed,
            row.machines,
            row.peak_mib.unwrap_or(f64::NAN),
            row.target,
            if row.met { "met" } else { "MISSED" }
        )?;
        Ok(())
    };
    if wanted("pools") {
        let mut world = index(20, 800)?;
        add_pods(&mut world, 30_000, 100, Mix::Diverse)?;
        let (ms, plan) = solved(args, &mut world);
        show(row(
            "30000 pending, 20 pools, 800 types",
            30_000,
            &plan,
            ms,
            2_000.0,
        ))?;
    }
    if wanted("affinity") {
        let mut plain_ms = 0.0;
        for (mix, name) in [
            (Mix::Plain, "plain mix"),
            (Mix::Affinity, "affinity-heavy mix, 3 x plain"),
        ] {
            let mut world = index(20, 400)?;
            add_pods(&mut world, 10_000, 50, mix)?;
            let (ms, plan) = solved(args, &mut world);
            let most = if mix == Mix::Plain {
                f64::INFINITY
            } else {
                plain_ms * 3.0
            };
            plain_ms = ms.1;
            show(row(name, 10_000, &plan, ms, most))?;
        }
        let mut world = index(20, 400)?;
        add_pods(&mut world, 2_170, 30, Mix::Affinity)?;
        let (ms, plan) = solved(args, &mut world);
        show(row(
            "2170 pods, 20 pools, affinity",
            2_170,
            &plan,
            ms,
            1_000.0,
        ))?;
    }
    if wanted("one") {
        let mut world = index(20, 800)?;
        add_machines(&mut world, 5_000, 20)?;
        world.set_synced();
        drop(answer(&world.freeze(Timestamp::UNIX_EPOCH)));
        // Many times in a row, because one is too short for the kernel's clock.
        let times = 40_u32;
        let mut count = 0;
        let mut missing = None;
        for (name, solves) in [
            ("1 pod of 100000, 5000 nodes: freeze", false),
            ("1 pod of 100000, 5000 nodes: all", true),
        ] {
            let (ms, plan) = timed(args.runs, || {
                let mut plan = LaunchPlan::default();
                let clock = Clock::start();
                for _ in 0..times {
                    count += 1;
                    let new = match read::<k8s::Pod>(pod(7, 100_000 + count, Mix::Plain)) {
                        Ok(new) => Object::Pod(Box::new(new)),
                        Err(error) => {
                            missing = Some(error);
                            break;
                        }
                    };
                    let key = new.key();
                    world.apply(News::Applied(new, Source::Watch));
                    let snapshot = world.freeze(Timestamp::UNIX_EPOCH);
                    if solves {
                        plan = answer(&snapshot).0;
                    }
                    drop(snapshot);
                    world.apply(News::Deleted(key));
                }
                (clock.ms() / f64::from(times), plan)
            });
            show(row(name, 1, &plan, ms, 5.0))?;
        }
        if let Some(error) = missing {
            return Err(error);
        }
    }
    Ok(())
}
