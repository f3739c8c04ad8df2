//! The contract of deciders: state machines without input or output of their own.
//!
//! `step(memory = self, now, snapshot, changes, inbox) -> effects, ledger changes, records, wake`. A decider never waits;
//! it is stepped again when something it is interested in changed, when an outcome arrived, or when its wake-up time has come.
//! Because the responses to own writes are applied to the index before their outcome is delivered, a step always sees what
//! the decider itself has done.

use std::sync::Arc;

use jiff::Timestamp;

use crate::decider_id::DeciderId;
use crate::effect::{Effect, Outcome};
use crate::freshness::Freshness;
use crate::metric_event::MetricEvent;
use crate::record::{Record, Verdict, Visibility};
use mortise_apis::names::{NodeClassKey, ObjectRef};
use mortise_apis::values::after;
use mortise_cloudprovider::InterruptionNotice;
use mortise_planning::context::PlanningContext;
use mortise_planning::disruption::command::DisruptionCommand;
use mortise_planning::reason::Reason;
use mortise_planning::settings::Settings;
use mortise_state::feasible_pods::FeasiblePods;
use mortise_state::index::Changes;
use mortise_state::ledger::LedgerOp;
use mortise_state::snapshot::Snapshot;
use mortise_state::watch_age::OldWatch;

/// What reaches a decider besides the snapshot.
#[derive(Clone, Debug)]
pub enum InboxMessage {
    /// What became of an effect it asked for.
    Outcome(Outcome),
    /// A message of a provider (only the interruption decider gets these).
    Notice {
        /// Provider name.
        provider: Arc<str>,
        /// The message.
        notice: InterruptionNotice,
    },
    /// A launch found capacity unavailable (only the node class decider gets these).
    CapacityRefused {
        /// Node class of the launch.
        class: NodeClassKey,
        /// When it is asked for again.
        again: Timestamp,
    },
}

/// Everything a step depends on.
#[derive(Debug)]
pub struct StepInput<'a> {
    /// Now.
    pub now: Timestamp,
    /// The cluster.
    pub snapshot: &'a Snapshot,
    /// What changed since the last step.
    pub changes: &'a Changes,
    /// What came in, in order.
    pub inbox: &'a [InboxMessage],
    /// Settings.
    pub settings: &'a Settings,
    /// Pods for which kube-scheduler has a node.
    pub feasible: &'a FeasiblePods,
    /// How old what each watch says is.
    pub freshness: &'a Freshness,
    /// A number for this step, for names and for spreading: same run, same numbers.
    pub seed: u64,
}

impl<'a> StepInput<'a> {
    /// What planners need of the input.
    #[must_use]
    pub const fn context(&self) -> PlanningContext<'a> {
        PlanningContext {
            now: self.now,
            snapshot: self.snapshot,
            settings: self.settings,
            feasible: self.feasible,
            seed: self.seed,
        }
    }

    /// The old watch because of which this decider may do nothing now that cannot be undone; see
    /// [`mortise_engine::freshness::depends`].
    #[must_use]
    pub fn held_by(&self, decider: DeciderId) -> Option<OldWatch> {
        self.freshness.holds(decider, self.now)
    }
}

/// What a step wants.
#[derive(Debug, Default)]
pub struct Step {
    /// To be done, in this order, without waiting for each other.
    pub effects: Vec<Effect>,
    /// Ledger changes; they hold before any effect is executed.
    pub ledger: Vec<LedgerOp>,
    /// What was decided and why.
    pub records: Vec<Record>,
    /// What is only counted.
    pub tallies: Vec<MetricEvent>,
    /// Disruption commands that begin, as decided: for whoever shows plans. Nothing that is executed depends on them.
    pub commands: Vec<DisruptionCommand>,
    /// Step again at this time even if nothing changes.
    pub wake: Option<Timestamp>,
    /// Objects on which events of its records appear.
    announced: usize,
}

impl Step {
    /// Adds an effect.
    pub fn effect(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    /// Wakes at the earlier of `at` and what was asked for already.
    pub fn wake_at(&mut self, at: Timestamp) {
        self.wake = Some(self.wake.map_or(at, |known| known.min(at)));
    }

    /// Wakes after this many milliseconds.
    pub fn wake_in(&mut self, now: Timestamp, ms: i64) {
        self.wake_at(after(now, ms));
    }

    /// Adds a record for the decision log.
    pub fn record(
        &mut self,
        input: &StepInput<'_>,
        decider: DeciderId,
        subject: ObjectRef,
        verdict: Verdict,
        reasons: Vec<Reason>,
    ) {
        let record = new_record(input, decider, subject, verdict, reasons);
        self.records.push(record);
    }

    /// Adds a record that users see as well, by events on these objects; the first is its subject. None: no record.
    pub fn announce(
        &mut self,
        input: &StepInput<'_>,
        decider: DeciderId,
        objects: impl IntoIterator<Item = ObjectRef>,
        verdict: Verdict,
        reasons: Vec<Reason>,
    ) {
        let mut objects = objects.into_iter();
        let Some(subject) = objects.next() else {
            return;
        };
        let related: Vec<ObjectRef> = objects.collect();
        self.announced += 1 + related.len();
        self.records.push(Record {
            visibility: Visibility::Event,
            related,
            ..new_record(input, decider, subject, verdict, reasons)
        });
    }

    /// Effects so far, and objects on which events will appear.
    #[must_use]
    pub fn size(&self) -> usize {
        self.effects.len() + self.announced
    }
}

/// A record for the decision log, of the snapshot that the step works on.
fn new_record(
    input: &StepInput<'_>,
    decider: DeciderId,
    subject: ObjectRef,
    verdict: Verdict,
    reasons: Vec<Reason>,
) -> Record {
    Record {
        at: input.now,
        decider,
        subject,
        verdict,
        reasons,
        visibility: Visibility::DecisionLog,
        related: Vec::new(),
        generation: input.snapshot.generation,
    }
}

/// One decider with its memory.
pub trait Decider: Send {
    /// Who it is.
    fn id(&self) -> DeciderId;

    /// Another one that knows nothing yet. The engine asks an instance that it never steps, at the beginning of every term:
    /// what was decided in an earlier term is found again from objects, or was not worth doing.
    fn fresh(&self) -> Box<dyn Decider>;

    /// Whether it has anything to do with these settings; otherwise it is never stepped. A feature that is off changes nothing.
    fn is_needed(&self, _settings: &Settings) -> bool {
        true
    }

    /// Whether these changes are worth a step. Outcomes, notices and wake-ups always are.
    fn is_interested(&self, changes: &Changes) -> bool;

    /// One step. `stop` turns true when the answer so far should be given (steps must be anytime).
    fn step(&mut self, input: &StepInput<'_>, stop: &dyn Fn() -> bool) -> Step;
}
