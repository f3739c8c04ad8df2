//! `mortise simulate`: plays a scenario on a simulated cluster, in virtual time.

mod scores;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use mortise_demo::extender_of;
use mortise_manifests::file::{Manifest, manifests};
use mortise_manifests::lint::{LintLevel, LintOptions, lint};
use mortise_manifests::migrate::SourceFile;
use mortise_planning::settings::Settings;
use mortise_sim::ManifestError;
use mortise_sim::baseline::SimulatedPolicy;
use mortise_sim::scenario::{
    ClusterObjects, SCENARIO_KIND, ScenarioReport, ScenarioSpec, SimulatedService, play,
    scenario_schema,
};
use serde_json::json;

use crate::args::ProviderName;
use crate::providers::Provider;

use super::lint::{provider_of, read};
use super::{WRONG, line, warning};

/// Play a scenario on a simulated cluster: pools and workloads as manifests, and what happens to them when
#[derive(Args)]
#[command(
    long_about = "Play a scenario on a simulated cluster in virtual time: what would be launched, moved and paid, in seconds instead of days.\n\n\
The files contain one document of kind Scenario (duration, timeline) and the manifests of the cluster: NodePools, Deployments,\n\
StatefulSets, DaemonSets, Jobs, CronJobs, PodDisruptionBudgets. The deciders are those of `mortise serve`; API server, scheduler, kubelets and cloud are simulated.\n\
One seed gives one history, byte for byte.",
    after_long_help = "Exit codes: 0 done, 1 an invariant was violated or a file cannot be read, 2 wrong usage, 8 something in the files is invalid.\n\n\
Examples:\n  mortise simulate examples/scenarios/busy-morning.yaml\n  mortise simulate pools.yaml apps.yaml scenario.yaml --seed 7 -o json\n  \
mortise simulate examples/scenarios/busy-morning.yaml --compare karpenter\n  mortise simulate --schema > scenario.schema.json"
)]
pub(super) struct SimulateArgs {
    /// Files, directories (*.yaml, *.yml, *.json, at any depth), or - for standard input
    #[arg(value_name = "PATH", required_unless_present = "schema")]
    paths: Vec<PathBuf>,
    /// Output format
    #[arg(short, long, value_enum, default_value = "table")]
    output: SimulationFormat,
    /// Seed for random choices; default: that of the scenario
    #[arg(long)]
    seed: Option<u64>,
    /// Who runs the cluster
    #[arg(long, value_enum, default_value = "mortise")]
    policy: PolicyName,
    /// Let another policy run the same cluster too, and print the scores of both
    #[arg(long, value_enum, value_name = "POLICY")]
    compare: Option<PolicyName>,
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
    /// mortise, where kube-scheduler calls no extender
    MortiseAlone,
    /// mortise's deciders, with provisioning and consolidation in Karpenter's way
    Karpenter,
}

impl From<PolicyName> for SimulatedPolicy {
    fn from(name: PolicyName) -> Self {
        match name {
            PolicyName::Mortise => Self::Mortise,
            PolicyName::MortiseAlone => Self::MortiseAlone,
            PolicyName::Karpenter => Self::Karpenter,
        }
    }
}

/// Where a manifest is written.
struct Written {
    file: String,
    manifest: Manifest,
}

impl Written {
    /// The error, with the file and the line that it is about.
    fn error(&self, error: &ManifestError) -> anyhow::Error {
        let line = self.manifest.line_of(&error.field);
        anyhow::anyhow!("{}:{line}: {error}", self.file)
    }
}

/// Reads, plays and reports.
pub(super) fn run(args: &SimulateArgs) -> anyhow::Result<ExitCode> {
    if args.schema {
        line(&serde_json::to_string_pretty(&scenario_schema())?);
        return Ok(ExitCode::SUCCESS);
    }
    let sources = read(&args.paths)?;
    match prepare(&sources, args.seed) {
        Ok((spec, objects, scenario)) => simulate(args, &spec, objects, &scenario, &sources),
        Err(error) => {
            warning(&format!("mortise: {error:#}"));
            Ok(ExitCode::from(WRONG))
        }
    }
}

/// The scenario and the cluster of the files.
fn prepare(
    sources: &[SourceFile],
    seed: Option<u64>,
) -> anyhow::Result<(ScenarioSpec, ClusterObjects, Written)> {
    let mut objects = ClusterObjects::default();
    let mut scenario: Option<(ScenarioSpec, Written)> = None;
    for source in sources {
        for manifest in manifests(&source.text) {
            let file = source.name.clone();
            let manifest = manifest
                .map_err(|fault| anyhow::anyhow!("{file}:{}: {}", fault.line, fault.problem))?;
            let value = manifest.value();
            let written = Written { file, manifest };
            if value["kind"] != SCENARIO_KIND {
                objects.add(&value).map_err(|error| written.error(&error))?;
                continue;
            }
            let spec =
                ScenarioSpec::from_document(&value).map_err(|error| written.error(&error))?;
            if let Some((_, first)) = &scenario {
                let (at, other) = (first.manifest.line(), written.manifest.line());
                bail!(
                    "two scenarios: {}:{at} and {}:{other}; give one",
                    first.file,
                    written.file
                );
            }
            scenario = Some((spec, written));
        }
    }
    let (mut spec, written) = scenario
        .with_context(|| format!("there is no document of kind {SCENARIO_KIND} in the files"))?;
    spec.seed = seed.unwrap_or(spec.seed);
    Ok((spec, objects.complete()?, written))
}

fn simulate(
    args: &SimulateArgs,
    spec: &ScenarioSpec,
    objects: ClusterObjects,
    scenario: &Written,
    sources: &[SourceFile],
) -> anyhow::Result<ExitCode> {
    let name = provider_of(sources);
    let provider = Provider::of(name);
    let crds = provider.crds();
    let well_known = crds.served().well_known();
    let rejected = lint(
        sources,
        &LintOptions {
            well_known: well_known.clone(),
            crds,
            catalog: None,
            from: spec.start,
            nodes: None,
        },
    );
    let errors: Vec<String> = rejected
        .findings
        .iter()
        .filter(|finding| finding.level == LintLevel::Error)
        .map(|finding| format!("{}:{}: {}", finding.file, finding.line, finding.message()))
        .collect();
    if !errors.is_empty() {
        errors
            .iter()
            .for_each(|text| warning(&format!("mortise: {text}")));
        return Ok(ExitCode::from(WRONG));
    }
    let types = match name {
        ProviderName::Aws => {
            let catalog = mortise_aws_catalog::embedded_catalog()?;
            match catalog.simulated_instance_types(&spec.region) {
                Ok(types) => types,
                Err(error) => {
                    let field = scenario.manifest.line_of("spec.region");
                    warning(&format!(
                        "mortise: {}:{field}: spec.region: {error}",
                        scenario.file
                    ));
                    return Ok(ExitCode::from(WRONG));
                }
            }
        }
        ProviderName::Kwok => mortise_kwok::instance_types(),
    };
    let policies = [Some(args.policy), args.compare];
    let mut played = Vec::new();
    for policy in policies.into_iter().flatten() {
        let cloud = (types.clone(), well_known.clone());
        let policy = SimulatedPolicy::from(policy);
        let service = SimulatedService {
            settings: policy.settings(Settings::default()),
            deciders: &|| policy.deciders(mortise_deciders::all()),
            extender: extender_of(policy),
        };
        match play(spec, objects.clone(), cloud, service) {
            Ok(report) => played.push((policy, report)),
            Err(error) => {
                warning(&format!("mortise: {:#}", scenario.error(&error)));
                return Ok(ExitCode::from(WRONG));
            }
        }
    }
    show(args, &played)
}

fn show(
    args: &SimulateArgs,
    played: &[(SimulatedPolicy, ScenarioReport)],
) -> anyhow::Result<ExitCode> {
    match (args.output, played) {
        (SimulationFormat::Json, [(_, report)]) => line(&serde_json::to_string_pretty(report)?),
        (SimulationFormat::Json, all) => {
            let by_policy: Vec<_> = all
                .iter()
                .map(|(policy, report)| json!({ "policy": policy, "report": report }))
                .collect();
            line(&serde_json::to_string_pretty(&by_policy)?);
        }
        (SimulationFormat::Table, [(_, report)]) => {
            table(report).iter().for_each(|text| line(text));
        }
        (SimulationFormat::Table, all) => {
            let columns: Vec<_> = all
                .iter()
                .map(|(policy, report)| (policy.name(), &report.scores))
                .collect();
            let lines = scores::side_by_side(&columns);
            lines.iter().for_each(|text| line(text));
        }
    }
    // What Karpenter's way violates is part of the comparison.
    let of_mortise = played
        .iter()
        .filter(|(policy, _)| *policy != SimulatedPolicy::Karpenter);
    for (_, report) in of_mortise {
        let violations = &report.totals.violations;
        if let Some(first) = violations.first() {
            bail!(
                "{} invariants were violated, which is a bug of mortise; the first: {first}",
                violations.len()
            );
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
    lines.push(format!("seed {}, history {}", report.seed, report.history));
    lines
}

/// Hours, minutes and seconds.
fn clock(seconds: i64) -> String {
    format!(
        "{}:{:02}:{:02}",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60
    )
}

/// To the cent.
fn dollars(micro_usd: i64) -> String {
    let cents = (micro_usd + 5_000) / 10_000;
    format!("{}.{:02}", cents / 100, cents % 100)
}
