//! `consolidation`: how fast and how well clusters are consolidated.
//!
//! Every case runs in a process of its own, through the engine that the program runs, with disruption as its only decider.
//! Settings are the default ones, except for `--consolidate-groups`, and kube-scheduler asks the extender, except for
//! `--without-extender`. What the decider requests is done at once, and virtual time passes until it finds nothing more.

mod case;
mod cluster;
mod generated;
mod history;
mod recorded;
mod table;

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use mortise_planning::settings::Settings;
use serde::{Deserialize, Serialize};

use crate::case_process;
use crate::inputs;
use crate::output::Output;
use crate::report::{self, Benchmark};
use crate::test_host::peak_mib;
use case::ClusterCase;
use cluster::Cluster;
use generated::NodeMix;
use history::{History, Until};
use recorded::RecordedRound;

/// The cases and what they are. Names of recorded ones are those of their files.
const CASES: [(&str, &str); 13] = [
    ("100", LOOSE),
    ("500", LOOSE),
    ("2000", LOOSE),
    ("loose30any-100", LOOSE_ANY),
    ("loose30any-500", LOOSE_ANY),
    ("loose30any-2000", LOOSE_ANY),
    ("tight95-100", TIGHT),
    ("tight95-500", TIGHT),
    ("tight95-2000", TIGHT),
    ("mixed-500", MIXED),
    ("mixed-2000", MIXED),
    ("gpu-500", GPUS),
    ("gpu-2000", GPUS),
];
const LOOSE: &str = "recorded: 30 % used, types up to 32 CPUs";
const LOOSE_ANY: &str = "recorded: the same, types of any size";
const TIGHT: &str = "recorded: 95 % of the CPUs used, on demand";
const MIXED: &str = "generated: 60 to 80 % used, three families, 2 to 32 CPUs, on demand";
const GPUS: &str = "generated: the same, three in ten nodes have GPUs";

/// Options of `consolidation`.
#[derive(Debug, clap::Args, Serialize)]
pub(crate) struct ConsolidationArgs {
    /// Timed first rounds per case before the run until rest; the median counts.
    #[arg(long, default_value_t = 4)]
    runs: usize,
    /// From which the generated clusters are made.
    #[arg(long, default_value_t = 42)]
    #[serde(skip)]
    seed: u64,
    /// Only cases whose name contains this: 100, 500, 2000, loose30any, tight95, mixed, gpu.
    #[arg(long)]
    only: Option<String>,
    /// Seconds of computing after which a run is cut off.
    #[arg(long, default_value_t = 100)]
    limit: u64,
    /// With the setting of that name: groups of nodes are replaced by several cheaper ones.
    #[arg(long)]
    consolidate_groups: bool,
    /// As if kube-scheduler asked no extender: what is decided must hold also where pods are placed otherwise.
    #[arg(long)]
    without_extender: bool,
    #[command(flatten)]
    #[serde(skip)]
    output: Output,
    /// Run this one case in this process and print its row as JSON.
    #[arg(long, hide = true)]
    #[serde(skip)]
    measure: Option<String>,
}

/// The figures of one case.
#[derive(Debug, Serialize, Deserialize)]
struct Row {
    case: String,
    nodes: usize,
    pods: usize,
    /// Milliseconds until the first command was decided, or until it was clear that there is none: least, median, most.
    first_round_ms: (f64, f64, f64),
    first_round_steps: usize,
    /// Seconds of that round with the pauses between its steps.
    first_round_s: f64,
    /// Milliseconds of a round that finds nothing, at rest. Of a run that was cut off: of the round that was cut off.
    last_round_ms: f64,
    last_round_steps: usize,
    /// Seconds of that round with the pauses between its steps.
    last_round_s: f64,
    /// Milliseconds of all steps until rest, validations included.
    total_ms: f64,
    steps: usize,
    /// Milliseconds of the longest step.
    longest_ms: f64,
    /// Virtual minutes until the last deletion.
    minutes: f64,
    commands: usize,
    /// Nodes of commands that did not survive their validation.
    abandoned: usize,
    removed: usize,
    launched: usize,
    nodes_after: usize,
    moved: usize,
    /// Dollars per hour.
    before: f64,
    after: f64,
    /// No nodes on which all pods run cost less.
    lower_bound: f64,
    /// The first command.
    first: Option<FirstCommand>,
    recorded: Option<RecordedRound>,
    peak_mib: Option<f64>,
    /// Nodes whose pods do not fit, by an independent sum.
    overfull: usize,
    /// Pods whose node was deleted before capacity was set aside for them.
    lost: usize,
    /// It was not at rest when the time was over.
    is_cut_off: bool,
}

#[derive(Debug, Serialize, Deserialize)]
struct FirstCommand {
    nodes: usize,
    pods: usize,
    launched: usize,
    /// Dollars per hour.
    saving: f64,
}

/// All figures of a run.
#[derive(Debug, Serialize)]
pub(crate) struct ConsolidationResults {
    rows: Vec<Row>,
}

fn case(name: &str, seed: u64) -> Result<ClusterCase> {
    let folder = inputs::own_folder();
    match name {
        "mixed-500" => generated::cluster(&folder, seed, 500, NodeMix::Families),
        "mixed-2000" => generated::cluster(&folder, seed, 2_000, NodeMix::Families),
        "gpu-500" => generated::cluster(&folder, seed, 500, NodeMix::Gpus),
        "gpu-2000" => generated::cluster(&folder, seed, 2_000, NodeMix::Gpus),
        name => ClusterCase::recorded(&folder, name),
    }
}

/// Figures of a case, measured in this process.
fn measure(args: &ConsolidationArgs, name: &str) -> Result<Row> {
    let case = case(name, args.seed)?;
    let cluster = || {
        let settings = Settings {
            consolidate_groups: args.consolidate_groups,
            ..Settings::default()
        };
        let mut cluster = Cluster::new(&case, settings, args.seed)?;
        if !args.without_extender {
            cluster.ask_extender();
        }
        anyhow::Ok(cluster)
    };
    let limit = Duration::from_secs(args.limit);
    let mut first_ms = Vec::new();
    for _ in 0..args.runs {
        let mut cluster = cluster()?;
        let history = History::run(&mut cluster, Until::FirstRound, limit)?;
        first_ms.push(ms(history.first_round().computed));
    }
    let mut cluster = cluster()?;
    let before = cluster.price();
    let history = History::run(&mut cluster, Until::Rest, limit)?;
    first_ms.push(ms(history.first_round().computed));
    let (after, (nodes_after, overfull)) = (cluster.price(), cluster.nodes());
    first_ms.sort_by(f64::total_cmp);
    let first = history.commands().next().map(|command| FirstCommand {
        nodes: command.nodes,
        pods: command.pods,
        launched: command.launched,
        saving: command.saving,
    });
    let is_recorded = !name.starts_with("mixed") && !name.starts_with("gpu");
    Ok(Row {
        case: name.to_owned(),
        nodes: case.nodes.len(),
        pods: case.pods.len(),
        first_round_ms: (
            first_ms[0],
            first_ms[first_ms.len() / 2],
            first_ms[first_ms.len() - 1],
        ),
        first_round_steps: history.first_round().steps,
        first_round_s: history.first_round().clock.as_secs_f64(),
        last_round_ms: ms(history.last_round().computed),
        last_round_steps: history.last_round().steps,
        last_round_s: history.last_round().clock.as_secs_f64(),
        total_ms: ms(history.computed()),
        steps: history.steps(),
        longest_ms: ms(history.longest()),
        minutes: history.minutes,
        commands: history.commands().len(),
        abandoned: history.abandoned(),
        removed: history.removed,
        launched: history.launched,
        nodes_after,
        moved: cluster.moved,
        before,
        after,
        lower_bound: case.lower_bound(),
        first,
        recorded: is_recorded
            .then(|| recorded::round(&inputs::own_folder(), name))
            .transpose()?,
        peak_mib: peak_mib(),
        overfull,
        lost: history.lost,
        is_cut_off: history.is_cut_off,
    })
}

fn ms(of: Duration) -> f64 {
    of.as_secs_f64() * 1e3
}

fn in_child(args: &ConsolidationArgs, name: &str) -> Result<Row> {
    let mut flags = vec![
        format!("--runs={}", args.runs),
        format!("--seed={}", args.seed),
        format!("--limit={}", args.limit),
    ];
    let settings = [
        (args.consolidate_groups, "--consolidate-groups"),
        (args.without_extender, "--without-extender"),
    ];
    let given = settings.into_iter().filter(|(is_given, _)| *is_given);
    flags.extend(given.map(|(_, flag)| flag.to_owned()));
    case_process::measured("consolidation", name, flags)
}

/// Runs the command, or measures one case for the process that does.
pub(crate) fn run(args: &ConsolidationArgs) -> Result<()> {
    case_process::run(args, args.measure.as_deref(), measure)
}

impl Benchmark for ConsolidationArgs {
    const NAME: &'static str = "consolidation";
    const SOURCES: &'static [&'static str] = report::SOLVER;
    type Results = ConsolidationResults;

    fn output(&self) -> &Output {
        &self.output
    }

    fn seed(&self) -> Option<u64> {
        Some(self.seed)
    }

    fn is_complete(&self) -> bool {
        self.only.is_none() && !self.consolidate_groups && !self.without_extender
    }

    fn measure(&self) -> Result<ConsolidationResults> {
        let is_wanted = |case: &str| self.only.as_deref().is_none_or(|only| case.contains(only));
        let mut rows = Vec::new();
        for (name, inputs) in CASES.into_iter().filter(|(name, _)| is_wanted(name)) {
            report::progress(&format!("{name}: {inputs}"));
            rows.push(in_child(self, name)?);
        }
        if rows.is_empty() {
            bail!(
                "no case is named {:?}; there are {}",
                self.only,
                CASES.map(|(name, _)| name).join(", ")
            );
        }
        Ok(ConsolidationResults { rows })
    }

    fn conclude(&self, results: &ConsolidationResults) -> Result<()> {
        let broken: usize = results.rows.iter().map(|row| row.overfull + row.lost).sum();
        ensure!(broken == 0, "{broken} nodes are overfull, or pods lost");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use mortise_cloudprovider::CapacityType;

    use super::*;
    use crate::consolidation::case::CasePod;

    /// Two equal nodes, each with one pod that fits next to the other.
    #[test]
    fn two_half_empty_nodes_save_the_price_of_one() {
        let mut case = case("100", 1).unwrap();
        let node = case.nodes[0].clone();
        let mut other = node.clone();
        other.name = "other".to_owned();
        case.pods.retain(|pod| pod.node == node.name);
        case.pods.truncate(1);
        let pod = CasePod {
            name: "moves".to_owned(),
            node: other.name.clone(),
            ..case.pods[0].clone()
        };
        case.pods.push(pod);
        case.nodes = vec![node, other];
        // Only this type on demand, so that nothing cheaper can replace it.
        let own = case.nodes[0].instance_type.clone();
        case.types.retain(|each| *each.name == *own);
        for each in &mut case.types {
            let offerings = &mut each.offerings;
            offerings.retain(|offering| offering.capacity_type == CapacityType::OnDemand);
        }
        let mut cluster = Cluster::new(&case, Settings::default(), 1).unwrap();
        let before = cluster.price();
        let history = History::run(&mut cluster, Until::Rest, Duration::from_secs(60)).unwrap();
        assert_eq!(history.commands().len(), 1);
        assert_eq!((history.removed, history.launched, history.lost), (1, 0, 0));
        assert_eq!((cluster.nodes(), cluster.moved), ((1, 0), 1));
        let first = history.commands().next().unwrap();
        assert_eq!((first.nodes, first.pods, first.launched), (1, 1, 0));
        for saved in [before - cluster.price(), first.saving] {
            assert!((saved - before / 2.0).abs() < 1e-9, "{saved} of {before}");
        }
        assert!(case.lower_bound() <= cluster.price());
    }

    #[test]
    fn every_recorded_cluster_has_recorded_results() {
        let folder = inputs::own_folder();
        let tight = recorded::round(&folder, "tight95-100").unwrap();
        assert_eq!((tight.nodes, tight.pods), (0, 0));
        let loose = recorded::round(&folder, "100").unwrap();
        assert_eq!((loose.nodes, loose.pods), (53, 530));
        assert!(tight.ms > loose.ms, "several nodes, then single ones");
    }
}
