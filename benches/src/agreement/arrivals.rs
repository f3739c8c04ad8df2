//! `agreement --arrivals`: pods arrive over time; how many of them stay pending?

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, stream};
use mortise_tests::agreement::Advice;
use mortise_tests::agreement::arrivals::{Field, Kind, Known, Played, Timetable};
use serde::Serialize;

use super::{AgreementArgs, SOURCES};
use crate::output::Output;
use crate::report::{self, Benchmark, Results, progress};

/// Options of `agreement --arrivals`.
#[derive(Debug, clap::Args, Serialize)]
pub(super) struct ArrivalArgs {
    /// Plan nothing beforehand: pods arrive over time, mortise itself runs, and pods are counted that do not run 60 s after
    /// the last node was ready and the last other pod ran.
    #[arg(long, conflicts_with = "show")]
    pub(super) arrivals: bool,
    /// Instead of drawn scenarios, one on which pods were once seen to wait. Repeatable.
    #[arg(long, value_enum, requires = "arrivals", conflicts_with = "scenarios")]
    known: Vec<Known>,
    /// How many rounds of each known scenario; they differ by what is left to chance in it.
    #[arg(long, default_value_t = 1, requires = "known", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    repeat: u64,
    /// Scenarios at a time, each in a namespace and on nodes of its own.
    #[arg(long, default_value_t = 8, requires = "arrivals", value_parser = clap::value_parser!(u16).range(1..=64))]
    lanes: u16,
    /// Busy loops in parallel, a processor each.
    #[arg(long, default_value_t = 0, requires = "arrivals", value_parser = clap::value_parser!(u16).range(0..=64))]
    busy: u16,
}

/// A scenario that came to no end, for instance because the API server did not answer.
#[derive(Debug, Serialize)]
struct Broken {
    /// The command that plays it again.
    replay: String,
    error: String,
}

/// The scenarios with one kind of advice.
#[derive(Debug, Serialize)]
struct Round {
    advice: &'static str,
    pods: usize,
    waiting: usize,
    played: Vec<Played>,
    broken: Vec<Broken>,
    seconds: u64,
}

/// `agreement` in the form in which pods arrive over time.
#[derive(Serialize)]
pub(super) struct Arrivals<'a>(pub(super) &'a AgreementArgs);

/// All results.
#[derive(Debug, Serialize)]
pub(crate) struct ArrivalResults {
    rounds: Vec<Round>,
}

impl Benchmark for Arrivals<'_> {
    const NAME: &'static str = "agreement-arrivals";
    const SOURCES: &'static [&'static str] = SOURCES;
    type Results = ArrivalResults;

    fn output(&self) -> &Output {
        &self.0.output
    }

    fn seed(&self) -> Option<u64> {
        Some(self.0.seed)
    }

    fn is_complete(&self) -> bool {
        false
    }

    fn measure(&self) -> Result<ArrivalResults> {
        let ArrivalArgs { lanes, busy, .. } = self.0.arrivals;
        let timetables = timetables(self.0);
        let both = [Advice::None, Advice::Promises];
        let advice = if self.0.advice.is_empty() {
            &both[..]
        } else {
            &self.0.advice
        };
        let load = BusyLoops::start(busy)?;
        let rounds = report::block_on(async {
            let mut rounds = Vec::new();
            for advice in advice {
                rounds.push(Box::pin(round(*advice, &timetables, usize::from(lanes))).await?);
            }
            Ok(rounds)
        })?;
        drop(load);
        Ok(ArrivalResults { rounds })
    }

    fn conclude(&self, results: &ArrivalResults) -> Result<()> {
        let waiting: usize = results.rounds.iter().map(|round| round.waiting).sum();
        let broken: usize = results.rounds.iter().map(|round| round.broken.len()).sum();
        ensure!(
            waiting + broken == 0,
            "{waiting} pods wait, {broken} scenarios came to no end"
        );
        Ok(())
    }
}

fn timetables(args: &AgreementArgs) -> Vec<Timetable> {
    let ArrivalArgs { known, repeat, .. } = &args.arrivals;
    if known.is_empty() {
        let numbers = args.first..args.first + args.scenarios;
        return numbers
            .map(|number| Timetable::draw(args.seed, number))
            .collect();
    }
    let rounds = args.first..args.first + repeat;
    let all = known
        .iter()
        .flat_map(|known| rounds.clone().map(|round| (*known, round)));
    all.map(|(known, round)| Timetable::known(known, args.seed, round))
        .collect()
}

async fn round(advice: Advice, timetables: &[Timetable], lanes: usize) -> Result<Round> {
    let begun = std::time::Instant::now();
    let field = Box::pin(Field::start(advice)).await?;
    let plays = stream::iter(timetables.iter().enumerate()).map(|(at, timetable)| {
        let field = &field;
        async move {
            let played = Box::pin(field.play(timetable)).await;
            let told = match &played {
                Ok(played) => played.to_string(),
                Err(error) => format!("{}: came to no end: {error:#}\n", timetable.name),
            };
            progress(&format!("{}: {told}", advice.label()));
            let broken = |error: anyhow::Error| Broken {
                replay: timetable.replay(advice),
                error: format!("{error:#}"),
            };
            (at, played.map_err(broken))
        }
    });
    let mut all: Vec<_> = plays.buffer_unordered(lanes).collect().await;
    field.end().await;
    all.sort_by_key(|(at, _)| *at);
    let (mut played, mut broken) = (Vec::new(), Vec::new());
    for (_, each) in all {
        match each {
            Ok(each) => played.push(each),
            Err(each) => broken.push(each),
        }
    }
    Ok(Round {
        advice: advice.label(),
        pods: played.iter().map(Played::count).sum(),
        waiting: played.iter().map(|each| each.waiting.len()).sum(),
        played,
        broken,
        seconds: begun.elapsed().as_secs(),
    })
}

impl Results for ArrivalResults {
    fn write_table(&self, out: &mut dyn Write) -> Result<()> {
        for round in &self.rounds {
            let Round {
                advice,
                pods,
                waiting,
                played,
                broken,
                seconds,
            } = round;
            writeln!(out)?;
            writeln!(out, "{advice}")?;
            writeln!(out, "{:<34}{:>8}{:>9}", "pods with", "pods", "waiting")?;
            for kind in Kind::ALL {
                let all = played.iter().flat_map(|each| &each.pods);
                let all: usize = all
                    .filter(|(of, _)| *of == kind)
                    .map(|(_, count)| count)
                    .sum();
                let late = played.iter().flat_map(|each| &each.waiting);
                let late = late.filter(|each| each.kind == kind).count();
                if all > 0 {
                    writeln!(out, "{:<34}{all:>8}{late:>9}", kind.label())?;
                }
            }
            writeln!(out, "{:<34}{pods:>8}{waiting:>9}", "all")?;
            let nodes: usize = played.iter().map(|each| each.nodes).sum();
            let settled = played.iter().filter_map(|each| each.settled_ms).max();
            let late: usize = played.iter().map(|each| each.late).sum();
            writeln!(
                out,
                "{} scenarios, {nodes} nodes; {late} pods ran late or wait; all others ran {} ms at most after the last arrival and the longest boot; {seconds} s",
                played.len(),
                settled.map_or_else(|| "-".to_owned(), |ms| ms.to_string()),
            )?;
            for Broken { replay, error } in broken {
                writeln!(out, "came to no end: {error}")?;
                writeln!(out, "    {replay}")?;
            }
            for each in played.iter().filter(|each| !each.waiting.is_empty()) {
                write!(out, "{each}")?;
            }
        }
        Ok(())
    }
}

/// Threads that do nothing as fast as they can, until this is dropped.
struct BusyLoops {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl BusyLoops {
    fn start(count: u16) -> Result<Self> {
        let over = Arc::new(AtomicBool::new(false));
        let mut threads = Vec::new();
        for _ in 0..count {
            let over = Arc::clone(&over);
            let spin = move || {
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            };
            let named = std::thread::Builder::new().name("busy".to_owned());
            threads.push(named.spawn(spin).context("cannot start a busy loop")?);
        }
        Ok(Self { over, threads })
    }
}

impl Drop for BusyLoops {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A loop without anything in it does not panic.
            thread.join().ok();
        }
    }
}
