//! What the decider does to a cluster, step by step in virtual time, until it has nothing more to do.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use jiff::{SignedDuration, Timestamp};
use mortise_apis::names::{NodeName, ObjectRef};
use mortise_engine::record::{Record, Verdict};
use mortise_planning::reason::Reason;

use crate::test_host::cpu_seconds;

use super::cluster::{Cluster, ExecutedEffect};

/// A search that is not over goes on after this, so a longer pause ends a round.
const RESUME: SignedDuration = SignedDuration::from_millis(100);

/// The cluster is at rest when nothing was deleted for this long: longer than the cooldown after a move and than the longest
/// pause between two rounds.
const AT_REST: SignedDuration = SignedDuration::from_mins(15);

/// A command of the first round is executed by then: after its hold and the grace of its fence.
const FIRST_EXECUTED: SignedDuration = SignedDuration::from_secs(30);

/// From here on processor time is exact enough.
const COUNTED: Duration = Duration::from_millis(20);

/// How long a cluster is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Until {
    /// Until the first round is over.
    FirstRound,
    /// Until nothing is left to do.
    Rest,
}

/// Reads the times of a step.
struct StepClock {
    wall: Instant,
    processor: Option<f64>,
}

impl StepClock {
    fn start() -> Self {
        Self {
            processor: cpu_seconds(),
            wall: Instant::now(),
        }
    }

    fn elapsed(&self) -> StepTime {
        let processor = cpu_seconds().zip(self.processor);
        let processor = processor.map(|(end, start)| (end - start).max(0.0));
        StepTime {
            wall: self.wall.elapsed(),
            processor: processor.map(Duration::from_secs_f64),
        }
    }
}

/// What steps took.
#[derive(Clone, Copy, Debug, Default)]
struct StepTime {
    wall: Duration,
    /// `None` where it cannot be read.
    processor: Option<Duration>,
}

impl StepTime {
    fn sum(steps: &[TimedStep]) -> Self {
        Self {
            wall: steps.iter().map(|step| step.took.wall).sum(),
            processor: steps.iter().map(|step| step.took.processor).sum(),
        }
    }

    /// Processor time, which other work on the test host does not change; the kernel counts it in ticks, so short times are
    /// read from the wall.
    fn best(self) -> Duration {
        let processor = self.processor.filter(|time| *time >= COUNTED);
        processor.unwrap_or(self.wall)
    }
}

/// One step of the decider.
#[derive(Clone, Copy, Debug)]
struct TimedStep {
    at: Timestamp,
    took: StepTime,
}

/// A search from its begin to its answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Round {
    /// Time of its steps.
    pub(super) computed: Duration,
    /// The same with the pauses between them.
    pub(super) clock: Duration,
    pub(super) steps: usize,
}

/// A command that was executed.
#[derive(Clone, Debug, Default)]
pub(super) struct ExecutedCommand {
    /// Nodes that it deleted.
    pub(super) nodes: usize,
    /// Pods that ran on them.
    pub(super) pods: usize,
    /// Nodes that it launched.
    pub(super) launched: usize,
    /// Dollars per hour that it saves.
    pub(super) saving: f64,
}

/// Everything that was done to a cluster.
#[derive(Debug, Default)]
pub(super) struct History {
    steps: Vec<TimedStep>,
    /// By the time of their decision.
    commands: BTreeMap<Timestamp, ExecutedCommand>,
    by_node: BTreeMap<NodeName, Timestamp>,
    abandoned: BTreeSet<NodeName>,
    /// Nodes that were removed.
    pub(super) removed: usize,
    /// Nodes that were launched.
    pub(super) launched: usize,
    /// Pods for which nothing was set aside when their node was deleted.
    pub(super) lost: usize,
    /// Virtual minutes until the last deletion.
    pub(super) minutes: f64,
    /// It was not at rest when the time was over.
    pub(super) is_cut_off: bool,
}

impl History {
    /// Steps the decider until then, or until it has computed for `limit`.
    pub(super) fn run(cluster: &mut Cluster, until: Until, limit: Duration) -> Result<Self> {
        let mut history = Self::default();
        let start = cluster.now;
        let mut last_deletion = start;
        loop {
            while let Some(id) = cluster.engine.due(cluster.now) {
                let Some(job) = cluster.engine.prepare(id, cluster.now) else {
                    break;
                };
                let clock = StepClock::start();
                let completed = job.run(&|| false);
                let took = clock.elapsed();
                history.steps.push(TimedStep {
                    at: cluster.now,
                    took,
                });
                let output = cluster.engine.commit(completed, cluster.now);
                output.records.iter().for_each(|each| history.note(each));
                for request in &output.orders {
                    match cluster.execute(request)? {
                        ExecutedEffect::Written => {}
                        ExecutedEffect::Launched => history.launched += 1,
                        ExecutedEffect::Removed { node, pods, lost } => {
                            history.removed += 1;
                            history.lost += lost;
                            last_deletion = cluster.now;
                            let decided = history.by_node.get(&node);
                            let command = decided.and_then(|at| history.commands.get_mut(at));
                            if let Some(command) = command {
                                command.pods += pods;
                            }
                        }
                    }
                }
            }
            history.is_cut_off = history.computed() > limit;
            let before = cluster.now;
            if history.is_cut_off || cluster.sleep().is_none() {
                break;
            }
            // Only between two rounds, so that the last is a whole one.
            let is_between = cluster.now.duration_since(before) > RESUME;
            let is_at_rest = cluster.now.duration_since(last_deletion) > AT_REST;
            // A command of the first round is known once it is executed.
            let is_first_over = !history.commands.is_empty()
                || (is_between && cluster.now.duration_since(start) > FIRST_EXECUTED);
            let is_over = match until {
                Until::FirstRound => is_first_over,
                Until::Rest => is_between && is_at_rest,
            };
            if is_over {
                break;
            }
        }
        ensure!(!history.steps.is_empty(), "the decider was never stepped");
        history.minutes = last_deletion.duration_since(start).as_secs_f64() / 60.0;
        Ok(history)
    }

    fn note(&mut self, record: &Record) {
        let ObjectRef::Node(node) = &record.subject else {
            return;
        };
        match record.verdict {
            Verdict::Abandoned => {
                self.abandoned.insert(node.clone());
            }
            Verdict::Disrupted => self.note_command(node, &record.reasons),
            _ => {}
        }
    }

    fn note_command(&mut self, node: &NodeName, reasons: &[Reason]) {
        let decided = reasons.iter().find_map(|reason| match reason {
            Reason::Command {
                decided,
                replacements,
                ..
            } => Some((*decided, *replacements)),
            _ => None,
        });
        let Some((decided, replacements)) = decided else {
            return;
        };
        self.by_node.insert(node.clone(), decided);
        let command = self.commands.entry(decided).or_default();
        command.nodes += 1;
        command.launched = replacements;
        let saving = reasons.iter().find_map(|reason| match reason {
            Reason::Price {
                old: Some(old),
                new: Some(new),
            } => Some(old.dollars() - new.dollars()),
            _ => None,
        });
        command.saving = saving.unwrap_or(0.0);
    }

    /// Commands that were executed, in the order of their decision.
    pub(super) fn commands(&self) -> impl ExactSizeIterator<Item = &ExecutedCommand> {
        self.commands.values()
    }

    /// Nodes of commands that were abandoned.
    pub(super) fn abandoned(&self) -> usize {
        self.abandoned.len()
    }

    /// Number of steps.
    pub(super) const fn steps(&self) -> usize {
        self.steps.len()
    }

    /// Time of all steps.
    pub(super) fn computed(&self) -> Duration {
        StepTime::sum(&self.steps).best()
    }

    /// Time of the longest step.
    pub(super) fn longest(&self) -> Duration {
        let all = self.steps.iter().map(|step| step.took.best());
        all.max().unwrap_or_default()
    }

    /// The first round: until a command was decided, or until it was clear that none is to be.
    pub(super) fn first_round(&self) -> Round {
        let first = self.commands.keys().next();
        let mut round = Vec::new();
        for step in &self.steps {
            let is_later = first.is_some_and(|first| step.at > *first);
            if is_later || round.last().is_some_and(|last| is_apart(last, step)) {
                break;
            }
            round.push(*step);
        }
        Round::new(&round)
    }

    /// The last round, which found nothing: what a cluster costs that is at rest.
    pub(super) fn last_round(&self) -> Round {
        let mut round: Vec<TimedStep> = Vec::new();
        for step in self.steps.iter().rev() {
            if round.last().is_some_and(|next| is_apart(step, next)) {
                break;
            }
            round.push(*step);
        }
        Round::new(&round)
    }
}

fn is_apart(before: &TimedStep, after: &TimedStep) -> bool {
    after.at.duration_since(before.at) > RESUME
}

impl Round {
    fn new(steps: &[TimedStep]) -> Self {
        let computed = StepTime::sum(steps).best();
        let at = || steps.iter().map(|step| step.at);
        let pauses = at()
            .max()
            .zip(at().min())
            .map(|(end, start)| end.duration_since(start));
        let pauses = pauses.and_then(|pauses| Duration::try_from(pauses).ok());
        Self {
            computed,
            clock: computed + pauses.unwrap_or_default(),
            steps: steps.len(),
        }
    }
}
