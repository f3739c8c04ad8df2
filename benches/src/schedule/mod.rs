//! `schedule`: how fast, how many nodes, at what price.

mod baseline;
mod table;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use jiff::Timestamp;
use mortise_planning::scheduling::{LaunchPlan, REPACK, SolveOptions, SolveReport, solve};
use serde::{Deserialize, Serialize};

use crate::case_process;
use crate::output::Output;
use crate::report::{self, Benchmark};
use crate::test_host::{cpu_seconds, peak_mib};
use crate::{bound, inputs, verify};
use baseline::Baseline;

/// The inputs, in the order in which they are run.
const SIZES: [&str; 12] = [
    "1",
    "50",
    "100",
    "500",
    "1000",
    "1500",
    "2000",
    "5000",
    "10000",
    "20000",
    "preference-4000-respect",
    "preference-4000-ignore",
];

/// The seed from which the pods were generated.
const SEED: u64 = 42;

/// Options of `schedule`.
#[derive(Debug, clap::Args, Serialize)]
pub(crate) struct ScheduleArgs {
    /// Folder with pods-N.json, catalog.json and nodepool.json (each plain or with .gz). Default: the recorded ones.
    #[arg(long)]
    inputs: Option<PathBuf>,
    /// Only this input (a number of pods, or preference-4000-respect, preference-4000-ignore). May be repeated.
    #[arg(long = "only", value_name = "INPUT")]
    only: Vec<String>,
    /// Timed runs per input; the median counts.
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Steps per pod to reduce the cost of the new nodes; 0 leaves them as Karpenter would fill them.
    #[arg(long, default_value_t = REPACK)]
    repack: u32,
    #[command(flatten)]
    #[serde(skip)]
    output: Output,
    /// Run this one input in this process and print its row as JSON.
    #[arg(long, hide = true)]
    #[serde(skip)]
    measure: Option<String>,
}

/// The figures of one input.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Row {
    input: String,
    pods: usize,
    placed: usize,
    /// Pods of kinds that found no place, by kind.
    unplaced: BTreeMap<String, usize>,
    /// Reasons of pods without a place, each once.
    reasons: Vec<String>,
    /// Seconds of one solve: least, median, most.
    seconds: (f64, f64, f64),
    /// By wall time.
    pods_per_second: f64,
    /// Seconds on a processor of one solve, median: what `seconds` would be on an idle test host.
    cpu_seconds: Option<f64>,
    /// By processor time.
    pods_per_cpu_second: Option<f64>,
    nodes: usize,
    dollars_per_hour: f64,
    /// No plan can cost less.
    lower_bound: f64,
    /// Peak memory of the process, inputs included.
    peak_mib: Option<f64>,
    /// Rules that the plan breaks, as the independent verifier sees it.
    violations: usize,
    first_violations: Vec<String>,
}

/// All figures of a run.
#[derive(Debug, Serialize)]
pub(crate) struct ScheduleResults {
    rows: Vec<Row>,
    baselines: Vec<Baseline>,
}

impl ScheduleResults {
    fn violations(&self) -> usize {
        self.rows.iter().map(|row| row.violations).sum()
    }
}

/// Runs the command, or measures one input for the process that does.
pub(crate) fn run(args: &ScheduleArgs) -> Result<()> {
    case_process::run(args, args.measure.as_deref(), measure)
}

impl Benchmark for ScheduleArgs {
    const NAME: &'static str = "schedule";
    const SOURCES: &'static [&'static str] = report::SOLVER;
    type Results = ScheduleResults;

    fn output(&self) -> &Output {
        &self.output
    }

    fn seed(&self) -> Option<u64> {
        Some(SEED)
    }

    fn is_complete(&self) -> bool {
        self.only.is_empty()
    }

    fn measure(&self) -> Result<ScheduleResults> {
        let chosen = SIZES
            .iter()
            .filter(|size| self.only.is_empty() || self.only.iter().any(|only| only == *size));
        let mut rows = Vec::new();
        for input in chosen {
            report::progress(&format!("input {input}"));
            rows.push(in_child(self, input)?);
        }
        if rows.is_empty() {
            bail!(
                "no input is named {:?}; there are {}",
                self.only,
                SIZES.join(", ")
            );
        }
        let baselines = baseline::all()?;
        Ok(ScheduleResults { rows, baselines })
    }

    fn conclude(&self, results: &ScheduleResults) -> Result<()> {
        let violations = results.violations();
        ensure!(violations == 0, "{violations} rules broken");
        Ok(())
    }
}

fn in_child(args: &ScheduleArgs, input: &str) -> Result<Row> {
    let mut flags: Vec<OsString> = vec![
        format!("--runs={}", args.runs).into(),
        format!("--repack={}", args.repack).into(),
    ];
    if let Some(folder) = &args.inputs {
        flags.push("--inputs".into());
        flags.push(folder.into());
    }
    case_process::measured("schedule", input, flags)
}

fn measure(args: &ScheduleArgs, input: &str) -> Result<Row> {
    let folder = args.inputs.clone().unwrap_or_else(inputs::own_folder);
    let snapshot = inputs::snapshot(&folder, input)?;
    let options = SolveOptions {
        pending: true,
        respect_preferences: !input.ends_with("-ignore"),
        repack: args.repack,
        ..SolveOptions::default()
    };
    let mut seconds = Vec::new();
    let mut cpu = Vec::new();
    let mut last: Option<(LaunchPlan, SolveReport)> = None;
    for _ in 0..args.runs.max(1) {
        let (start, cpu_start) = (Instant::now(), cpu_seconds());
        let answer = solve(Timestamp::UNIX_EPOCH, &snapshot, &options, &|| false);
        seconds.push(start.elapsed().as_secs_f64());
        cpu.extend(cpu_seconds().zip(cpu_start).map(|(end, start)| end - start));
        last = Some(answer);
    }
    let peak_mib = peak_mib();
    let (plan, report) = last.context("no run")?;
    seconds.sort_by(f64::total_cmp);
    cpu.sort_by(f64::total_cmp);
    // The kernel counts in ticks: less than a millisecond says nothing.
    let cpu_seconds = cpu
        .get(cpu.len() / 2)
        .copied()
        .filter(|seconds| *seconds >= 1e-3);
    let median = seconds[seconds.len() / 2];
    let raw = inputs::pods(&folder, input)?;
    let kind_of: BTreeMap<&str, &str> = raw
        .iter()
        .map(|pod| (pod.uid.as_str(), pod.kind.as_str()))
        .collect();
    let mut unplaced: BTreeMap<String, usize> = BTreeMap::new();
    let without = report.unplaced.iter().flat_map(|each| &each.pods);
    for (_, uid) in without {
        *unplaced
            .entry(
                kind_of
                    .get(uid.as_str())
                    .copied()
                    .unwrap_or("unknown")
                    .to_owned(),
            )
            .or_default() += 1;
    }
    let mut reasons: Vec<String> = report
        .unplaced
        .iter()
        .map(|each| each.message.clone())
        .collect();
    reasons.sort();
    reasons.dedup();
    let types = inputs::types(&folder)?;
    let violations = verify::violations(&raw, &types, &plan);
    #[expect(clippy::cast_precision_loss, reason = "for display")]
    let (pods_per_second, pods_per_cpu_second) = (
        raw.len() as f64 / median,
        cpu_seconds.map(|seconds| raw.len() as f64 / seconds),
    );
    Ok(Row {
        input: input.to_owned(),
        pods: raw.len(),
        placed: plan.placed(),
        unplaced,
        reasons,
        seconds: (seconds[0], median, seconds[seconds.len() - 1]),
        pods_per_second,
        cpu_seconds,
        pods_per_cpu_second,
        nodes: plan.claims.len(),
        lower_bound: bound::lower_bound(&raw, &types),
        dollars_per_hour: plan.price().map_or(f64::NAN, |price| price.dollars()),
        peak_mib,
        violations: violations.len(),
        first_violations: violations.into_iter().take(5).collect(),
    })
}
