//! `mortise simulate`: plays a scenario on a simulated cluster, in virtual time.

mod column;
mod page;
mod plot;
mod progress;
mod scores;
mod shrink;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use mortise_demo::scenario_file::{ScenarioFile, source_of};
use mortise_manifests::lint::{LintLevel, LintOptions, lint};
use mortise_manifests::migrate::SourceFile;
use mortise_sim::baseline::SimulatedPolicy;
use mortise_sim::replay::SettingChange;
use mortise_sim::scenario::{
    SCENARIO_API_VERSION, SCENARIO_KIND, ScenarioReport, scenario_schema, trace_jobs,
};
use mortise_sim::{JobArrival, RecordedScenario, Scores};
use serde_json::json;

use crate::args::ProviderName;
use crate::providers::Provider;

use super::lint::{provider_of, read};
use super::plan::open;
use super::score_table::{clock, dollars};
use super::{WRONG, line, warning};
use column::{Column, PlayedColumn, RecordedBase, play_all};

/// How long a recorded cluster is simulated when no Scenario says it.
const QUIET_DURATION: &str = "24h";

/// Play a scenario on a simulated cluster: pools and workloads as manifests, and what happens to them when
#[derive(Args)]
#[command(
    long_about = "Play a scenario on a simulated cluster in virtual time: what would be launched, moved and paid, in seconds instead of days.\n\n\
The files contain one document of kind Scenario (duration, timeline) and the manifests of the cluster: NodePools, Deployments,\n\
StatefulSets, DaemonSets, Jobs, CronJobs, PodGroups, PodDisruptionBudgets. The deciders are those of `mortise serve`; API server, scheduler, kubelets and cloud are simulated.\n\
One seed gives one history, byte for byte.",
    after_long_help = "Exit codes: 0 done, 1 an invariant was violated or a file cannot be read, 2 wrong usage, 8 something in the files is invalid.\n\n\
Examples:\n  mortise simulate examples/scenarios/busy-morning.yaml\n  mortise simulate pools.yaml apps.yaml scenario.yaml --seed 7 -o json\n  \
mortise simulate examples/scenarios/busy-morning.yaml --compare karpenter --report morning.html\n  mortise simulate \
examples/scenarios/churny-day.yaml --compare-apply calmer-pool.yaml\n  mortise simulate examples/scenarios/black-friday.yaml --compare-set batch-idle-duration=5s\n  \
mortise simulate pools.yaml scenario.yaml --trace pods.csv --trace-speed 60\n  mortise simulate --cluster cluster.snapshot --compare-apply calmer-pool.yaml\n  mortise simulate broken.yaml --shrink small.yaml\n  mortise simulate --schema > scenario.schema.json"
)]
pub(super) struct SimulateArgs {
    /// Files, directories (*.yaml, *.yml, *.json, at any depth), or - for standard input
    #[arg(value_name = "PATH", required_unless_present_any = ["schema", "cluster"])]
    paths: Vec<PathBuf>,
    /// Begin with the NodePools, workloads, instance types, prices and settings of this snapshot, and no nodes; objects of PATH take the place of its objects. Without a Scenario, 24 hours in which nothing happens
    #[arg(long, value_name = "SNAPSHOT", conflicts_with = "shrink")]
    cluster: Option<PathBuf>,
    /// Output format
    #[arg(short, long, value_enum, default_value = "table")]
    output: SimulationFormat,
    /// Pods that come and go as in this table of comma-separated values, with the columns cpu_milli, memory_mib, creation_time and deletion_time (seconds), and optionally name, num_gpu and qos
    #[arg(long, value_name = "FILE", conflicts_with = "shrink")]
    trace: Option<PathBuf>,
    /// How many seconds of the trace take one second
    #[arg(long, value_name = "FACTOR", default_value_t = 1, requires = "trace", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    trace_speed: u32,
    /// Seed for random choices; default: that of the scenario
    #[arg(long)]
    seed: Option<u64>,
    /// Play as many seeds, from that one on, on all cores, and print the scores: means, and of times and of one workload the worst
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    seeds: u64,
    /// Who runs the cluster
    #[arg(long, value_enum, default_value = "mortise")]
    policy: PolicyName,
    /// Another setting: the name of a flag of serve, or of a feature gate
    #[arg(long = "set", value_name = "NAME=VALUE")]
    settings: Vec<SettingChange>,
    /// Let another policy run the same cluster too, and print the scores side by side
    #[arg(long, value_enum, value_name = "POLICY", help_heading = "Compare")]
    compare: Vec<PolicyName>,
    /// Play the same cluster again with another setting, and print the scores side by side
    #[arg(long, value_name = "NAME=VALUE", help_heading = "Compare")]
    compare_set: Vec<SettingChange>,
    /// Play it again with other manifests: each takes the place of that with its kind and name, or is added
    #[arg(long, value_name = "PATH", help_heading = "Compare")]
    compare_apply: Vec<PathBuf>,
    /// Write a page with plots and scores, one HTML file that needs nothing else
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// If an invariant is violated, look for the smallest scenario that still violates one, and write it to this file
    #[arg(long, value_name = "FILE")]
    shrink: Option<PathBuf>,
    /// Print the JSON schema of the Scenario document, and nothing else
    #[arg(long)]
    schema: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum SimulationFormat {
    /// One line per sample and event, and the totals
    Table,
    /// One JSON object
    Json,
}

/// Who provisions for pods and disrupts nodes; everything else is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PolicyName {
    /// mortise; kube-scheduler calls its extender
    Mortise,
    /// mortise with its extender and `--pod-deletion-costs`
    MortiseDeletionCosts,
    /// mortise, where kube-scheduler calls no extender
    MortiseAlone,
    /// mortise's deciders, with provisioning and consolidation in Karpenter's way
    Karpenter,
}

impl From<PolicyName> for SimulatedPolicy {
    fn from(name: PolicyName) -> Self {
        match name {
            PolicyName::Mortise => Self::Mortise,
            PolicyName::MortiseDeletionCosts => Self::MortiseDeletionCosts,
            PolicyName::MortiseAlone => Self::MortiseAlone,
            PolicyName::Karpenter => Self::Karpenter,
        }
    }
}

/// Reads, plays and reports.
pub(super) fn run(args: &SimulateArgs) -> anyhow::Result<ExitCode> {
    if args.schema {
        line(&serde_json::to_string_pretty(&scenario_schema())?);
        return Ok(ExitCode::SUCCESS);
    }
    let mut input = Input {
        recorded: None,
        base: Vec::new(),
        sources: read(&args.paths)?,
        changed: read(&args.compare_apply)?,
    };
    if let Some(path) = &args.cluster {
        input.add_cluster(path)?;
    }
    let jobs = match &args.trace {
        None => Ok(Vec::new()),
        Some(path) => traced(path, args.trace_speed)?,
    };
    let columns = jobs.and_then(|jobs| columns(args, &input, &jobs));
    let columns = match columns {
        Ok(columns) => columns,
        Err(error) => {
            warning(&format!("mortise: {error:#}"));
            return Ok(ExitCode::from(WRONG));
        }
    };
    let invalid = invalid(&columns, &input.layers());
    if !invalid.is_empty() {
        invalid
            .iter()
            .for_each(|text| warning(&format!("mortise: {text}")));
        return Ok(ExitCode::from(WRONG));
    }
    let played = match play_all(&columns, args.seeds, input.provider()) {
        Ok(played) => played,
        Err(error) => {
            warning(&format!("mortise: {error:#}"));
            return Ok(ExitCode::from(WRONG));
        }
    };
    if let (Some(path), [column, ..], [of, ..]) = (&args.shrink, &columns[..], &played[..]) {
        shrink::write_smallest(path, column, of, input.provider())?;
    }
    show(args, &played)
}

/// The pods of a trace, or what is wrong with it.
///
/// # Errors
/// The file cannot be read.
fn traced(path: &Path, speed: u32) -> anyhow::Result<anyhow::Result<Vec<JobArrival>>> {
    let place = path.display();
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {place}"))?;
    let jobs = trace_jobs(&text, speed);
    Ok(jobs.map_err(|error| match error.line() {
        Some(line) => anyhow::anyhow!("{place}:{line}: {error}"),
        None => anyhow::anyhow!("{place}: {error}"),
    }))
}

/// The files of a call.
struct Input {
    recorded: Option<Arc<RecordedBase>>,
    /// The manifests of a recorded cluster; empty without one.
    base: Vec<SourceFile>,
    sources: Vec<SourceFile>,
    changed: Vec<SourceFile>,
}

impl Input {
    /// Begins with a recorded cluster, and says what of it is not simulated.
    fn add_cluster(&mut self, path: &Path) -> anyhow::Result<()> {
        let cluster = open(path)?;
        let RecordedScenario {
            mut documents,
            cloud,
            left_out,
        } = RecordedScenario::of(&cluster)?;
        let place = path.display().to_string();
        for what in left_out {
            warning(&format!("mortise: {place}: not simulated: {what}"));
        }
        documents.push(json!({
            "apiVersion": SCENARIO_API_VERSION,
            "kind": SCENARIO_KIND,
            "spec": { "duration": QUIET_DURATION },
        }));
        self.base.push(source_of(&place, &documents));
        self.recorded = Some(Arc::new(RecordedBase {
            settings: cluster.settings,
            cloud,
        }));
        Ok(())
    }

    fn layers(&self) -> [&[SourceFile]; 3] {
        [&self.base, &self.sources, &self.changed]
    }

    fn provider(&self) -> ProviderName {
        provider_of(&[&self.base[..], &self.sources].concat())
    }
}

/// What is played: first what was asked for, then what it is compared with.
fn columns(args: &SimulateArgs, input: &Input, jobs: &[JobArrival]) -> anyhow::Result<Vec<Column>> {
    let changed = &input.changed;
    let read = |replacements: &[SourceFile]| {
        let mut file = ScenarioFile::read(&[&input.base, &input.sources, replacements])?;
        file.objects.add_arrivals(jobs.to_vec())?;
        file.spec.seed = args.seed.unwrap_or(file.spec.seed);
        anyhow::Ok(file)
    };
    let mut columns = Vec::new();
    for policy in std::iter::once(args.policy).chain(args.compare.iter().copied()) {
        columns.push(Column {
            policy: policy.into(),
            settings: args.settings.clone(),
            changes: Vec::new(),
            file: read(&[])?,
            recorded: input.recorded.clone(),
        });
    }
    if !args.compare_set.is_empty() || !changed.is_empty() {
        let settings = args.compare_set.iter().map(ToString::to_string);
        let files = changed.iter().map(|source| source.name.clone());
        columns.push(Column {
            policy: args.policy.into(),
            settings: [&args.settings[..], &args.compare_set[..]].concat(),
            changes: settings.chain(files).collect(),
            file: read(changed)?,
            recorded: input.recorded.clone(),
        });
    }
    Ok(columns)
}

/// What admission would reject, with file and line.
fn invalid(columns: &[Column], sources: &[&[SourceFile]]) -> Vec<String> {
    let all = sources.concat();
    let Some(first) = columns.first() else {
        return Vec::new();
    };
    let crds = Provider::of(provider_of(&all)).crds();
    let rejected = lint(
        &all,
        &LintOptions {
            well_known: crds.served().well_known(),
            crds,
            catalog: None,
            from: first.file.spec.start,
            nodes: None,
        },
    );
    let errors = rejected.findings.iter();
    errors
        .filter(|finding| finding.level == LintLevel::Error)
        .map(|finding| format!("{}:{}: {}", finding.file, finding.line, finding.message()))
        .collect()
}

fn show(args: &SimulateArgs, played: &[PlayedColumn]) -> anyhow::Result<ExitCode> {
    if let Some(path) = &args.report {
        let place = || format!("cannot write {}", path.display());
        std::fs::write(path, page::html(played)).with_context(place)?;
    }
    let only = match played {
        [only] if args.seeds == 1 => only.first(),
        _ => None,
    };
    match (args.output, only) {
        (SimulationFormat::Json, Some(only)) => line(&serde_json::to_string_pretty(only)?),
        (SimulationFormat::Json, None) => line(&serde_json::to_string_pretty(played)?),
        (SimulationFormat::Table, Some(only)) => table(only).iter().for_each(|text| line(text)),
        (SimulationFormat::Table, None) => {
            let lines = scores::side_by_side(played);
            lines.iter().for_each(|text| line(text));
        }
    }
    // What Karpenter's way violates is part of the comparison.
    let of_mortise = played
        .iter()
        .filter(|column| column.policy != SimulatedPolicy::Karpenter);
    for column in of_mortise {
        for report in &column.reports {
            let violations = &report.totals.violations;
            if let Some(first) = violations.first() {
                bail!(
                    "seed {}: {} invariants were violated, which is a bug of mortise; the first: {first}",
                    report.seed,
                    violations.len()
                );
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The samples and the totals as lines.
fn table(report: &ScenarioReport) -> Vec<String> {
    let mut lines = vec![format!(
        "{:>9} {:>6} {:>8} {:>8} {:>10} {:>9} {:>11} {:>8}",
        "TIME", "NODES", "RUNNING", "PENDING", "$/H", "LAUNCHED", "TERMINATED", "EVICTED"
    )];
    for sample in &report.samples {
        if let Some(text) = &sample.happened {
            lines.push(format!("{:>9} -- {text}", clock(sample.seconds)));
            continue;
        }
        lines.push(format!(
            "{:>9} {:>6} {:>8} {:>8} {:>10} {:>9} {:>11} {:>8}",
            clock(sample.seconds),
            sample.nodes,
            sample.pods_running,
            sample.pods_pending,
            dollars(sample.price_micro_usd),
            sample.launched,
            sample.terminated,
            sample.evicted,
        ));
    }
    let totals = &report.totals;
    lines.push(String::new());
    lines.push(format!(
        "spent ${}, at most ${} an hour; {} pods placed, each within {}; {} interruptions, {} shortages, {} evictions",
        dollars(totals.spent_micro_usd),
        dollars(totals.peak_price_micro_usd),
        totals.pods_placed,
        clock(totals.longest_pending_s),
        totals.interruptions,
        totals.shortages,
        totals.evictions,
    ));
    let Scores {
        gangs, gang_wait_s, ..
    } = &report.scores;
    if *gangs > 0 {
        lines.push(format!(
            "{gangs} gangs ran whole, half of them within {} and each within {} of their last pod",
            clock(gang_wait_s.p50),
            clock(gang_wait_s.most),
        ));
    }
    lines.push(format!("seed {}, history {}", report.seed, report.history));
    lines
}
