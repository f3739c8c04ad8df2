//! `scale`: cases far beyond the recorded inputs: many pools and types, affinity everywhere, one pod in a large cluster, memory.
//!
//! Every case runs in a process of its own, through the engine that the program runs, with provisioning as its only decider.

mod costs;
mod one;
mod policies;
mod world;

use std::io::Write;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use mortise_planning::scheduling::{LaunchPlan, REPACK, SolveOptions, solve};
use mortise_state::snapshot::{GangKind, Snapshot};
use serde::{Deserialize, Serialize};

use crate::case_process;
use crate::output::Output;
use crate::report::{self, Benchmark, Results};
use crate::test_host::{cpu_seconds, peak_mib, resident_mib};
use world::{Mix, World};

/// Options of `scale`.
#[derive(Debug, clap::Args, Serialize)]
pub(crate) struct ScaleArgs {
    /// Timed runs per case; the median counts.
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// From which the clusters are made.
    #[arg(long, default_value_t = 42)]
    #[serde(skip)]
    seed: u64,
    /// Only cases whose name contains this: pending, plain, affinity, field, gang, one, policies, costs, memory.
    #[arg(long)]
    only: Option<String>,
    #[command(flatten)]
    #[serde(skip)]
    output: Output,
    /// Run this one case in this process and print its rows as JSON.
    #[arg(long, hide = true)]
    #[serde(skip)]
    measure: Option<String>,
}

/// A case and what makes it.
const CASES: [(&str, &str); 9] = [
    ("pending", "30,000 pending pods, 20 pools, 800 types"),
    (
        "plain",
        "10,000 pending pods without constraints, 20 pools, 400 types",
    ),
    (
        "affinity",
        "10,000 pending pods that all have affinity or spread, 20 pools, 400 types",
    ),
    (
        "field",
        "2,170 pending pods that all have affinity or spread, 1,060 nodes, 20 pools, 800 types",
    ),
    (
        "gang",
        "a gang of 1,000 pods, and 20 gangs of 50 of which one pod fits nowhere, 5,000 nodes with 100,000 pods, 20 pools, 800 types",
    ),
    (
        "one",
        "one pod added to 5,000 nodes with 100,000 pods, 20 pools, 800 types",
    ),
    (
        "policies",
        "2,000 pending pods, 2,000 nodes with 20,000 pods, 20 pools with a policy each, 400 types",
    ),
    (
        "costs",
        "cost allocation by namespace and by a label, for an hour; a third of the nodes is on-demand",
    ),
    (
        "memory",
        "5,000 nodes, 100,000 pods, 20,000 of them pending, 60 pools, 800 types",
    ),
];

/// The figures of one case, or of one kind of pod in it.
#[derive(Debug, Serialize, Deserialize)]
struct Row {
    case: String,
    what: String,
    pods: usize,
    placed: usize,
    nodes: usize,
    /// Milliseconds: least, median, and the most of all runs (of `one`: p99).
    ms: (f64, f64, f64),
    /// Peak memory of the process, with what made the cluster.
    peak_mib: Option<f64>,
    /// Memory of the process with cluster and plan.
    resident_mib: Option<f64>,
    /// What is wanted; empty where nothing is.
    wanted: String,
    met: bool,
}

/// All figures of a run.
#[derive(Debug, Serialize)]
pub(crate) struct ScaleResults {
    rows: Vec<Row>,
}

/// Processor time where it can be read, otherwise wall time: other work on the test host does not change the former.
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

fn plan(world: &World, snapshot: &Snapshot) -> LaunchPlan {
    let options = SolveOptions {
        pending: true,
        repack: REPACK,
        gangs: GangKind::POD_GROUPS.into(),
        ..SolveOptions::default()
    };
    solve(world.now, snapshot, &options, &|| false).0
}

fn solved(args: &ScaleArgs, case: &str, pods: usize, mut world: World) -> Row {
    world.start();
    let snapshot = world.engine.snapshot(world.now);
    let mut times = Vec::new();
    let mut last = LaunchPlan::default();
    for _ in 0..args.runs.max(1) {
        let clock = Clock::start();
        last = plan(&world, &snapshot);
        times.push(clock.ms());
    }
    Row {
        case: case.to_owned(),
        what: String::new(),
        pods,
        placed: last.placed(),
        nodes: last.claims.len(),
        ms: spread_of(times),
        peak_mib: peak_mib(),
        resident_mib: resident_mib(),
        wanted: String::new(),
        met: true,
    }
}

/// The least, the median and the most of some times.
fn spread_of(mut times: Vec<f64>) -> (f64, f64, f64) {
    times.sort_by(f64::total_cmp);
    (times[0], times[times.len() / 2], times[times.len() - 1])
}

impl Row {
    /// Target for the median, in milliseconds.
    fn within(mut self, ms: f64) -> Self {
        self.wanted = format!("<= {ms:.0} ms");
        self.met = self.ms.1 <= ms;
        self
    }
}

/// Rows of a case, measured in this process.
fn measure(args: &ScaleArgs, case: &str) -> Result<Vec<Row>> {
    let pending = |types: usize, pods: usize, replicas: usize, mix: Mix| -> Result<Row> {
        let mut world = World::new(args.seed, 20, types)?;
        world.add_pods(pods, replicas, mix)?;
        Ok(solved(args, case, pods, world))
    };
    Ok(match case {
        "pending" => vec![pending(800, 30_000, 100, Mix::Diverse)?.within(2_000.0)],
        "plain" => vec![pending(400, 10_000, 50, Mix::Plain)?],
        "affinity" => vec![pending(400, 10_000, 50, Mix::Affinity)?],
        "field" => {
            let mut world = World::new(args.seed, 20, 800)?;
            world.add_nodes(1_060, 20, 20)?;
            world.add_pods(2_170, 30, Mix::Affinity)?;
            vec![solved(args, case, 2_170, world).within(1_000.0)]
        }
        "gang" => {
            let gangs = |what: &str, gangs: usize, pods: usize, is_whole: bool| -> Result<Row> {
                let mut world = World::new(args.seed, 20, 800)?;
                world.add_nodes(5_000, 20, 20)?;
                world.add_gangs(gangs, pods, is_whole)?;
                let mut row = solved(args, case, gangs * pods, world).within(1_000.0);
                what.clone_into(&mut row.what);
                row.met &= row.placed == if is_whole { gangs * pods } else { 0 };
                Ok(row)
            };
            vec![
                gangs("one gang", 1, 1_000, true)?,
                gangs("gangs without room", 20, 50, false)?,
            ]
        }
        "one" => one::rows(args.seed, args.runs)?,
        "policies" => policies::rows(args.seed, args.runs)?,
        "costs" => costs::rows(args.seed, args.runs)?,
        "memory" => vec![memory(args)?],
        other => bail!(
            "no case is named {other:?}; there are {}",
            CASES.map(|(name, _)| name).join(", ")
        ),
    })
}

/// The cluster, and what deciding for all its pending pods leaves behind.
fn memory(args: &ScaleArgs) -> Result<Row> {
    const WANTED_MIB: f64 = 256.0;
    let mut world = World::new(args.seed, 60, 800)?;
    world.add_nodes(5_000, 60, 16)?;
    world.add_pods(20_000, 100, Mix::Diverse)?;
    world.start();
    // The first step reads what is there, the second, when the batch is over, decides.
    let clock = Clock::start();
    drop(world.engine.turn(world.now, 8, &|| false));
    let later = world
        .now
        .checked_add(jiff::SignedDuration::from_secs(10))
        .context("time")?;
    let turn = world.engine.turn(later, 1, &|| false);
    let ms = clock.ms();
    let snapshot = world.engine.snapshot(later);
    let peak = peak_mib();
    Ok(Row {
        case: "memory".to_owned(),
        what: "read, decide".to_owned(),
        pods: 20_000,
        placed: snapshot.ledger.nominations().count(),
        nodes: snapshot
            .ledger
            .expected_claims()
            .len()
            .min(turn.orders.len()),
        ms: (ms, ms, ms),
        peak_mib: peak,
        resident_mib: resident_mib(),
        wanted: format!("<= {WANTED_MIB:.0} MiB at the peak"),
        met: peak.is_some_and(|peak| peak <= WANTED_MIB),
    })
}

fn in_child(args: &ScaleArgs, case: &str) -> Result<Vec<Row>> {
    let flags = [
        format!("--runs={}", args.runs),
        format!("--seed={}", args.seed),
    ];
    case_process::measured("scale", case, flags)
}

/// Runs the command, or measures one case for the process that does.
pub(crate) fn run(args: &ScaleArgs) -> Result<()> {
    case_process::run(args, args.measure.as_deref(), measure)
}

impl Benchmark for ScaleArgs {
    const NAME: &'static str = "scale";
    const SOURCES: &'static [&'static str] = report::SOLVER;
    type Results = ScaleResults;

    fn output(&self) -> &Output {
        &self.output
    }

    fn seed(&self) -> Option<u64> {
        Some(self.seed)
    }

    fn is_complete(&self) -> bool {
        self.only.is_none()
    }

    fn measure(&self) -> Result<ScaleResults> {
        let is_wanted = |case: &str| self.only.as_deref().is_none_or(|only| case.contains(only));
        let mut rows: Vec<Row> = Vec::new();
        for (case, inputs) in CASES.into_iter().filter(|(case, _)| is_wanted(case)) {
            report::progress(&format!("{case}: {inputs}"));
            let mut measured = in_child(self, case)?;
            let plain = rows
                .iter()
                .find(|row| row.case == "plain")
                .map(|row| row.ms.1);
            if let ("affinity", Some(plain)) = (case, plain) {
                measured = measured
                    .into_iter()
                    .map(|row| row.within(plain * 3.0))
                    .collect();
            }
            rows.extend(measured);
        }
        if rows.is_empty() {
            bail!(
                "no case is named {:?}; there are {}",
                self.only,
                CASES.map(|(name, _)| name).join(", ")
            );
        }
        Ok(ScaleResults { rows })
    }
}

impl Results for ScaleResults {
    fn write_table(&self, out: &mut dyn Write) -> Result<()> {
        writeln!(
            out,
            "times in ms: least, median, most of all runs (one pod: p99), by processor time from 20 ms on"
        )?;
        for (case, inputs) in CASES {
            let mut rows = self.rows.iter().filter(|row| row.case == case).peekable();
            if rows.peek().is_some() {
                writeln!(out, "{case}: {inputs}")?;
            }
            for row in rows {
                write_row(out, row)?;
            }
        }
        Ok(())
    }
}

fn write_row(out: &mut dyn Write, row: &Row) -> Result<()> {
    let (least, median, most) = row.ms;
    writeln!(
        out,
        "  {:<34}{:>7} pods{:>7} placed{:>6} nodes{least:>10.2}{median:>10.2}{most:>10.2} ms{:>8.1} MiB  {} {}",
        row.what,
        row.pods,
        row.placed,
        row.nodes,
        row.peak_mib.unwrap_or(f64::NAN),
        row.wanted,
        if row.wanted.is_empty() {
            ""
        } else if row.met {
            "met"
        } else {
            "MISSED"
        }
    )?;
    Ok(())
}
