//! The simulation thread, and the clock that it advances.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use mortise_apis::values::{after, since};
use mortise_controller::{Clock, ServiceState, Shutdown};
use mortise_engine::record::Record;
use mortise_sim::scenario::ScenarioRun;
use mortise_sim::{Simulation, Stats};
use tokio::sync::oneshot;

/// Real time between two published snapshots: the UI draws four per second.
const FRAME: Duration = Duration::from_millis(100);
/// Maximum virtual time per step if the simulation is slower than requested, so that snapshots are still published.
const MOST_PER_FRAME_MS: i64 = 5_000;
/// Maximum virtual time before the first snapshot is published, which waits for the first nodes.
const PRELUDE_MS: i64 = 5 * 60_000;

/// Virtual time per real time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Virtual seconds per real second.
    Times(u32),
    /// As fast as possible.
    Max,
}

impl std::str::FromStr for Pace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "max" {
            return Ok(Self::Max);
        }
        match text.parse() {
            Ok(times @ 1..=100_000) => Ok(Self::Times(times)),
            _ => Err("write a whole number from 1 to 100000, or \"max\"".to_owned()),
        }
    }
}

impl fmt::Display for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Times(times) => write!(f, "{times}"),
            Self::Max => f.write_str("max"),
        }
    }
}

/// The clock of the simulation.
#[derive(Debug)]
pub(crate) struct VirtualClock(AtomicI64);

impl VirtualClock {
    pub(crate) fn new(start: Timestamp) -> Self {
        Self(AtomicI64::new(start.as_millisecond()))
    }

    fn set(&self, now: Timestamp) {
        self.0.store(now.as_millisecond(), Ordering::Relaxed);
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millisecond(self.0.load(Ordering::Relaxed)).unwrap_or(Timestamp::MAX)
    }
}

/// What is played.
pub(crate) enum Played {
    /// Workloads that grow and shrink, without an end.
    Workloads(Box<Simulation>),
    /// A scenario, with how many of its samples were seen.
    Scenario(Box<ScenarioRun>, usize),
}

impl Played {
    fn simulation(&mut self) -> &mut Simulation {
        match self {
            Self::Workloads(simulation) => simulation,
            Self::Scenario(run, _) => run.simulation(),
        }
    }

    /// Plays until a time. The decisions, and what happened in the timeline.
    fn run_until(&mut self, until: Timestamp) -> anyhow::Result<(Vec<Record>, Vec<String>)> {
        match self {
            Self::Workloads(simulation) => {
                simulation.run_until(until);
                Ok((simulation.take_records(), Vec::new()))
            }
            Self::Scenario(run, seen) => {
                let mut records = Vec::new();
                run.run_until(until, &mut |more| records.extend(more))?;
                let new = run.samples().iter().skip(*seen);
                let happened = new.filter_map(|sample| {
                    let (h, m) = (sample.seconds / 3600, sample.seconds / 60 % 60);
                    Some(format!("{h}:{m:02} -- {}", sample.happened.as_ref()?))
                });
                let happened = happened.collect();
                *seen = run.samples().len();
                Ok((records, happened))
            }
        }
    }

    /// When it ends by itself.
    fn end(&self) -> Option<Timestamp> {
        match self {
            Self::Workloads(_) => None,
            Self::Scenario(run, _) => Some(run.end()),
        }
    }
}

/// Runs the simulation and publishes its snapshots.
pub(crate) struct Player {
    pub(crate) played: Played,
    /// Gets what happens in the timeline of a scenario.
    pub(crate) say: Box<dyn Fn(&str) + Send>,
    pub(crate) shared: Arc<ServiceState>,
    pub(crate) clock: Arc<VirtualClock>,
    pub(crate) pace: Pace,
    /// Virtual milliseconds after which it ends.
    pub(crate) most: Option<i64>,
    pub(crate) stop: Shutdown,
}

impl Player {
    /// Runs until it is stopped or its time is over. `ready` gets a message when the first snapshot is published.
    ///
    /// # Errors
    /// The timeline of a scenario refers to something that is not there any more.
    pub(crate) fn run(mut self, ready: oneshot::Sender<()>) -> anyhow::Result<Stats> {
        let start = self.now();
        let most = self.most.map(|ms| after(start, ms));
        let end = most.into_iter().chain(self.played.end()).min();
        let prelude = after(start, PRELUDE_MS).min(end.unwrap_or(Timestamp::MAX));
        while self.now() < prelude
            && !self.stop.is_triggered()
            && !self
                .shared
                .snapshot()
                .nodes
                .values()
                .any(|node| node.initialized)
        {
            let next = after(self.now(), MOST_PER_FRAME_MS).min(prelude);
            self.play(next)?;
        }
        // The receiver was dropped: the process is already exiting.
        if ready.send(()).is_err() {
            return Ok(self.played.simulation().stats());
        }

        let (mut real, mut virtual_from) = (Instant::now(), self.now());
        while !self.stop.is_triggered() && end.is_none_or(|end| self.now() < end) {
            let now = self.now();
            let slice = after(now, MOST_PER_FRAME_MS);
            let target = match self.pace {
                Pace::Max => slice,
                Pace::Times(times) => {
                    let passed = i64::try_from(real.elapsed().as_millis()).unwrap_or(i64::MAX);
                    let due = after(virtual_from, passed.saturating_mul(i64::from(times)));
                    if since(due, slice) > 0 && since(due, now) > 10 * MOST_PER_FRAME_MS {
                        // The simulation cannot keep up: slow down instead of skipping time.
                        (real, virtual_from) = (Instant::now(), now);
                    }
                    due.min(slice)
                }
            };
            let begin = Instant::now();
            self.play(target.min(end.unwrap_or(Timestamp::MAX)))?;
            if matches!(self.pace, Pace::Times(_)) && target < slice {
                std::thread::sleep(FRAME.saturating_sub(begin.elapsed()));
            }
        }
        Ok(self.played.simulation().stats())
    }

    fn now(&mut self) -> Timestamp {
        self.played.simulation().now()
    }

    fn play(&mut self, until: Timestamp) -> anyhow::Result<()> {
        let (records, happened) = self.played.run_until(until)?;
        happened.iter().for_each(|text| (self.say)(text));
        let simulation = self.played.simulation();
        self.clock.set(simulation.now());
        self.shared.publish(simulation.snapshot());
        self.shared.record(records);
        self.shared.confirm(std::time::Duration::ZERO);
        self.shared.health.record_turn();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paces_are_whole_numbers_or_max() {
        assert_eq!("30".parse(), Ok(Pace::Times(30)));
        assert_eq!("max".parse(), Ok(Pace::Max));
        for wrong in ["0", "-1", "1.5", "fast", "", "1000000"] {
            assert!(wrong.parse::<Pace>().is_err(), "{wrong}");
        }
    }
}
