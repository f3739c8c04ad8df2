//! `compare`: what the extender changes, on a real control plane with kwok.
//!
//! Two workloads, each run with every extender configuration in turn, so that other work on the test host affects all of them
//! equally:
//!
//! - `throughput`: pods that all fit wait for a scheduler that is then started; how fast are they bound?
//! - `provisioning`: services are created and deleted while short-lived pods arrive all the time; which nodes are launched for
//!   them, what is evicted, and are pods bound to the nodes that were launched for them?

mod binds;
mod chart;
pub(crate) mod drains;
mod pass_through;
mod plot;
mod provisioning;
mod script;
mod seen;
mod table;
mod throughput;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use mortise_tests::harness::{Mortise, SchedulerOptions, Verbs, mortise_binary};
use serde::Serialize;

use self::pass_through::PassThrough;
use crate::output::Output;
use crate::report::{self, Benchmark, progress};

// Default sizes, which are those of the recorded results.
const NODES: [u32; 2] = [200, 1_000];
const PODS: u32 = 3_000;
const RUNS: u32 = 5;
const SERVICES: u32 = 12;
const SECONDS: u32 = 150;
const RATE: u32 = 100;

/// Options of `compare`.
#[derive(Debug, clap::Args, Serialize)]
pub(crate) struct CompareArgs {
    /// Throughput: numbers of nodes; 0 = without this part.
    #[arg(long, value_delimiter = ',', default_values_t = NODES, value_parser = clap::value_parser!(u32).range(0..=5_000))]
    nodes: Vec<u32>,
    /// Ways of asking; the others are left out.
    #[arg(long, value_delimiter = ',', value_enum, default_values_t = Way::ALL)]
    ways: Vec<Way>,
    /// Throughput: pods that wait for the scheduler.
    #[arg(long, default_value_t = PODS, value_parser = clap::value_parser!(u32).range(10..=20_000))]
    pods: u32,
    /// How often each way is played.
    #[arg(long, default_value_t = RUNS, value_parser = clap::value_parser!(u32).range(1..=50))]
    runs: u32,
    /// Provisioning: services, each of some pods that need nodes of their own; 0 = without this part.
    #[arg(long, default_value_t = SERVICES, value_parser = clap::value_parser!(u32).range(0..=500))]
    services: u32,
    /// Provisioning: how long pods come and go.
    #[arg(long, default_value_t = SECONDS, value_parser = clap::value_parser!(u32).range(20..=3_600))]
    seconds: u32,
    /// Provisioning: short-lived pods a second, while a service waits for its nodes.
    #[arg(long, default_value_t = RATE, value_parser = clap::value_parser!(u32).range(0..=500))]
    rate: u32,
    /// Fixes what comes and goes when.
    #[arg(long, default_value_t = 42)]
    #[serde(skip)]
    seed: u64,
    #[command(flatten)]
    #[serde(skip)]
    output: Output,
    /// Directory for the plots (SVG). Default: docs/benchmarks/plots in the source, if the sizes are the default ones.
    #[arg(long, value_name = "DIR")]
    #[serde(skip)]
    plots: Option<PathBuf>,
}

/// How kube-scheduler asks the extender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Way {
    /// Not at all.
    Without,
    /// Not at all, and without opportunistic batching, which kube-scheduler disables with any extender.
    Unbatched,
    /// Everything, as recommended.
    With,
    /// filter and preempt.
    FilterOnly,
    /// prioritize.
    PrioritizeOnly,
    /// preempt, which no pod needs here: the cost of an extender that is configured and not called.
    Unasked,
    /// filter and prioritize of something that answers at once, without TLS: the least that any extender costs.
    PassThrough,
    /// Everything, and kube-scheduler looks for no more nodes than it must, which is 100: fewer names in each question.
    Sampled,
    /// Not at all, and kube-scheduler looks for no more nodes than it must: what that brings by itself.
    SampledWithout,
}

impl Way {
    /// Those of which the rate is measured.
    const ALL: [Self; 9] = [
        Self::Without,
        Self::Unbatched,
        Self::With,
        Self::FilterOnly,
        Self::PrioritizeOnly,
        Self::Unasked,
        Self::PassThrough,
        Self::Sampled,
        Self::SampledWithout,
    ];

    /// Those for which launched nodes are counted.
    const PROVISIONING: [Self; 3] = [Self::Without, Self::With, Self::FilterOnly];

    const fn label(self) -> &'static str {
        match self {
            Self::Without => "without",
            Self::Unbatched => "unbatched",
            Self::With => "with",
            Self::FilterOnly => "filter only",
            Self::PrioritizeOnly => "prioritize only",
            Self::Unasked => "unasked",
            Self::PassThrough => "pass-through",
            Self::Sampled => "with, sampled",
            Self::SampledWithout => "without, sampled",
        }
    }

    /// The scheduler's configuration. `pass_through`: the extender of that configuration; the others ignore it.
    fn options(
        self,
        mortise: &Mortise,
        pass_through: Option<&PassThrough>,
    ) -> Result<SchedulerOptions> {
        let is_sampled = matches!(self, Self::Sampled | Self::SampledWithout);
        let options = SchedulerOptions {
            percentage_of_nodes_to_score: is_sampled.then_some(1),
            ..SchedulerOptions::default()
        };
        let mut extender = mortise.extender()?;
        if self == Self::PassThrough {
            let there = pass_through.context("there is no pass-through extender to ask")?;
            there.url().clone_into(&mut extender.url);
        }
        extender.verbs = match self {
            Self::Without | Self::SampledWithout => return Ok(options),
            Self::Unbatched => {
                return Ok(SchedulerOptions {
                    feature_gates: vec![("OpportunisticBatching", false)],
                    ..options
                });
            }
            Self::With | Self::PassThrough | Self::Sampled => Verbs::ALL,
            Self::FilterOnly => Verbs {
                prioritize: false,
                ..Verbs::ALL
            },
            Self::PrioritizeOnly => Verbs {
                filter: false,
                prioritize: true,
                preempt: false,
            },
            Self::Unasked => Verbs {
                filter: false,
                prioritize: false,
                preempt: true,
            },
        };
        Ok(SchedulerOptions {
            extenders: vec![extender],
            ..options
        })
    }

    /// These ways, beginning with another one in each round.
    fn turns(ways: &[Self], round: u32) -> Vec<Self> {
        let (gone, rest) = ways.split_at(round as usize % ways.len().max(1));
        [rest, gone].concat()
    }
}

/// All figures of a run, and what was run with which settings.
#[derive(Debug, Serialize)]
pub(crate) struct CompareResults {
    kubernetes: String,
    settings: &'static str,
    throughput: Vec<throughput::Row>,
    provisioning: Vec<provisioning::Row>,
}

const SETTINGS: &str = "kube-scheduler with default plugins and back-off of 1 to 2 s; mortise runs in every way, with default flags but for \
     --bind-grace-period 2s and --disruption-cooldown 30s in provisioning; extender of weight 5 with nodeCacheCapable, mutual TLS";

impl Benchmark for CompareArgs {
    const NAME: &'static str = "compare";
    const SOURCES: &'static [&'static str] = report::PROGRAM;
    type Results = CompareResults;

    fn output(&self) -> &Output {
        &self.output
    }

    fn seed(&self) -> Option<u64> {
        Some(self.seed)
    }

    fn is_complete(&self) -> bool {
        self.nodes == NODES
            && self.ways == Way::ALL
            && (self.pods, self.runs, self.services) == (PODS, RUNS, SERVICES)
            && (self.seconds, self.rate) == (SECONDS, RATE)
    }

    fn measure(&self) -> Result<CompareResults> {
        report::block_on(measure(self))
    }

    /// Draws the plots.
    fn conclude(&self, results: &CompareResults) -> Result<()> {
        let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/benchmarks/plots");
        let given = self.plots.clone();
        match given.or_else(|| self.is_complete().then_some(own)) {
            Some(dir) => plot::write(&dir, results),
            None => Ok(()),
        }
    }
}

async fn measure(args: &CompareArgs) -> Result<CompareResults> {
    progress("building mortise, if it is not up to date");
    mortise_binary().await?;
    let pass_through = PassThrough::start().await?;
    let mut results = CompareResults {
        kubernetes: String::new(),
        settings: SETTINGS,
        throughput: Vec::new(),
        provisioning: Vec::new(),
    };
    for nodes in args.nodes.iter().filter(|nodes| **nodes > 0) {
        let measured = throughput::measure(&pass_through, *nodes, args);
        let (version, rows) = Box::pin(measured).await?;
        results.kubernetes = version;
        results.throughput.extend(rows);
    }
    if args.services > 0 {
        let script = script::Script::new(args.services, args.seconds, args.rate, args.seed);
        for round in 0..args.runs {
            for way in Way::turns(&Way::PROVISIONING, round) {
                if !args.ways.contains(&way) {
                    continue;
                }
                progress(&format!(
                    "provisioning {}, round {}",
                    way.label(),
                    round + 1
                ));
                let (version, row) = Box::pin(provisioning::play(way, round, &script)).await?;
                results.kubernetes = version;
                results.provisioning.push(row);
            }
        }
    }
    Ok(results)
}

/// The middle one of these; of an even number the mean of both. `NaN` of none.
fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut all: Vec<f64> = values.collect();
    all.sort_unstable_by(f64::total_cmp);
    let middle = all.len() / 2;
    match (
        all.get(middle),
        middle.checked_sub(1).and_then(|at| all.get(at)),
    ) {
        (Some(upper), Some(lower)) if all.len().is_multiple_of(2) => f64::midpoint(*lower, *upper),
        (Some(only), _) => *only,
        (None, _) => f64::NAN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0].into_iter()), 2.5);
        assert!(median(std::iter::empty()).is_nan());
    }

    #[test]
    fn every_way_is_first_once_in_as_many_rounds() {
        let first: Vec<Way> = (0..9)
            .filter_map(|round| Way::turns(&Way::ALL, round).first().copied())
            .collect();
        assert_eq!(first, Way::ALL);
    }
}
