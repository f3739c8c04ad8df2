//! `agreement`: what share of the pods that the solver has placed does the real kube-scheduler bind to these nodes?

mod arrivals;

use std::io::Write;

use anyhow::{Context as _, Result};
use mortise_tests::agreement::{Advice, Arena, Feature, Landing, Outcome, Scenario};
use serde::Serialize;

use crate::output::Output;
use crate::report::{self, Benchmark, Results, progress};
use arrivals::{ArrivalArgs, Arrivals};

/// Options of `agreement`.
#[derive(Debug, clap::Args, Serialize)]
pub(crate) struct AgreementArgs {
    /// How many scenarios.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    scenarios: u64,
    /// Number of the first one: `--first 17 --scenarios 1` plays scenario 17 only.
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// What scenarios are drawn from.
    #[arg(long, default_value_t = 1)]
    #[serde(skip)]
    seed: u64,
    /// Extender of kube-scheduler. Repeatable; the default is all three, one after the other, and with --arrivals `none` and
    /// `promises`.
    #[arg(long, value_enum)]
    advice: Vec<Advice>,
    /// Print the objects of the scenarios, one a line, instead of playing them.
    #[arg(long, conflicts_with_all = ["advice", "json"])]
    #[serde(skip)]
    show: bool,
    #[command(flatten)]
    #[serde(flatten)]
    arrivals: ArrivalArgs,
    #[command(flatten)]
    #[serde(skip)]
    output: Output,
}

/// The scenarios with one kind of advice.
#[derive(Debug, Serialize)]
struct Round {
    advice: &'static str,
    pods: usize,
    landed: usize,
    outcomes: Vec<Outcome>,
}

/// All results.
#[derive(Debug, Serialize)]
pub(crate) struct AgreementResults {
    rounds: Vec<Round>,
}

/// Everything that goes into the answer.
const SOURCES: &[&str] = &[
    "../Cargo.lock",
    "../crates",
    "../src",
    "../webhooks",
    "../tests/src",
    "src",
];

/// Runs the command in one of its three forms.
pub(crate) fn run(args: &AgreementArgs) -> Result<()> {
    if args.arrivals.arrivals {
        report::run(&Arrivals(args))
    } else if args.show {
        show(args)
    } else {
        report::run(args)
    }
}

impl Benchmark for AgreementArgs {
    const NAME: &'static str = "agreement";
    const SOURCES: &'static [&'static str] = SOURCES;
    type Results = AgreementResults;

    fn output(&self) -> &Output {
        &self.output
    }

    fn seed(&self) -> Option<u64> {
        Some(self.seed)
    }

    fn is_complete(&self) -> bool {
        false
    }

    fn measure(&self) -> Result<AgreementResults> {
        let all = [Advice::None, Advice::Plan, Advice::Promises];
        let advice = if self.advice.is_empty() {
            &all[..]
        } else {
            &self.advice
        };
        report::block_on(async {
            let mut rounds = Vec::new();
            for advice in advice {
                rounds.push(Box::pin(round(self, *advice)).await?);
            }
            Ok(AgreementResults { rounds })
        })
    }
}

fn show(args: &AgreementArgs) -> Result<()> {
    let out = &mut std::io::stdout();
    for number in args.first..args.first + args.scenarios {
        let scenario = Scenario::draw(args.seed, number);
        for of in &scenario.types {
            let ways = of.offerings.iter().filter(|each| each.available);
            let ways: Vec<String> = ways
                .map(|each| format!("{} {}", each.zone, each.capacity_type))
                .collect();
            writeln!(out, "type {} sold as {}", of.name, ways.join(", "))?;
        }
        let pods = scenario.pods.iter().map(|pod| &pod.object);
        for object in scenario.pools.iter().chain(&scenario.before).chain(pods) {
            writeln!(out, "{object}")?;
        }
    }
    Ok(())
}

async fn round(args: &AgreementArgs, advice: Advice) -> Result<Round> {
    let mut arena = Box::pin(Arena::start(advice)).await?;
    let mut outcomes = Vec::new();
    for number in args.first..args.first + args.scenarios {
        let scenario = Scenario::draw(args.seed, number);
        let outcome = Box::pin(arena.play(&scenario))
            .await
            .with_context(|| format!("scenario {number} of seed {}", args.seed))?;
        let missing = outcome.missing().count();
        if missing > 0 {
            progress(&format!(
                "{}: scenario {number}: {missing} of {} pods did not land",
                advice.label(),
                outcome.landings.len()
            ));
        }
        outcomes.push(outcome);
    }
    arena.end().await;
    let pods = outcomes.iter().map(|each| each.landings.len()).sum();
    let missing: usize = outcomes.iter().map(|each| each.missing().count()).sum();
    Ok(Round {
        advice: advice.label(),
        pods,
        landed: pods - missing,
        outcomes,
    })
}

/// Scenarios, pods and landed pods of a feature.
#[derive(Default)]
struct Row {
    scenarios: usize,
    pods: usize,
    landed: usize,
}

impl Results for AgreementResults {
    fn write_table(&self, out: &mut dyn Write) -> Result<()> {
        for round in &self.rounds {
            let Round {
                advice,
                pods,
                landed,
                outcomes,
            } = round;
            writeln!(out)?;
            writeln!(out, "{advice}")?;
            writeln!(
                out,
                "{:<32}{:>10}{:>8}{:>8}{:>9}",
                "pods that use", "scenarios", "pods", "landed", "share"
            )?;
            for feature in Feature::ALL {
                line(out, feature.label(), &row(outcomes, feature))?;
            }
            let all = Row {
                scenarios: outcomes.len(),
                pods: *pods,
                landed: *landed,
            };
            line(out, "all", &all)?;
            let sum = |of: fn(&Outcome) -> usize| outcomes.iter().map(of).sum::<usize>();
            let millis: u64 = outcomes.iter().map(|each| each.millis).sum();
            writeln!(
                out,
                "{} nodes were there, {} were planned; {} pods had no place in the plan, {} of them landed when all others had; {} ms a scenario",
                sum(|each| each.old_nodes),
                sum(|each| each.new_nodes),
                sum(|each| each.refused),
                sum(|each| each.strays.len()),
                millis / u64::try_from(outcomes.len().max(1)).unwrap_or(1)
            )?;
            missing(out, outcomes)?;
        }
        Ok(())
    }
}

fn row(outcomes: &[Outcome], feature: Feature) -> Row {
    let mut row = Row::default();
    for outcome in outcomes {
        let of = |each: &&Landing| each.features.contains(&feature);
        let pods = outcome.landings.iter().filter(of).count();
        row.scenarios += usize::from(pods > 0);
        row.pods += pods;
        row.landed += pods - outcome.missing().filter(of).count();
    }
    row
}

fn line(out: &mut dyn Write, name: &str, row: &Row) -> Result<()> {
    let Row {
        scenarios,
        pods,
        landed,
    } = row;
    #[expect(clippy::cast_precision_loss, reason = "a share for people")]
    let share = 100.0 * *landed as f64 / (*pods).max(1) as f64;
    writeln!(
        out,
        "{name:<32}{scenarios:>10}{pods:>8}{landed:>8}{share:>8.2}%"
    )?;
    Ok(())
}

/// Every pod that did not land with the scheduler's message, and every one that landed without a plan.
fn missing(out: &mut dyn Write, outcomes: &[Outcome]) -> Result<()> {
    for outcome in outcomes {
        for each in outcome.missing() {
            let message = each.message.as_deref().unwrap_or("no word");
            writeln!(
                out,
                "  {} was planned on {}: {message}",
                each.pod, each.planned
            )?;
        }
        for stray in &outcome.strays {
            writeln!(
                out,
                "  {} had no place and landed on {}: {}",
                stray.pod, stray.landed, stray.why
            )?;
        }
    }
    Ok(())
}
