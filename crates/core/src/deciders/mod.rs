//! Deciders: state machines without input or output of their own (design 6).
//!
//! `step(memory = self, now, snapshot, changes, inbox) -> effects, ledger changes, records, wake`. A decider never waits;
//! it is stepped again when something it is interested in changed, when an outcome came, or when its time has come.
//! Because the answers to own writes are applied to the index before their outcome is delivered, a step always sees what
//! the decider itself has done.

mod conditions;
mod disruption;
mod event_throttle;
mod expiration;
mod garbage_collection;
mod interruption;
mod lifecycle;
mod node_claim_request;
mod node_class;
mod node_overlay;
mod node_pool;
mod provisioning;
mod repair;
mod request_tracker;
mod static_capacity;
mod termination;
#[cfg(test)]
mod testing;
mod timer_queue;
mod write_tracker;
mod writes;

use std::sync::Arc;

use jiff::Timestamp;

pub use conditions::ClaimConditionsDecider;
pub use disruption::DisruptionDecider;
pub use expiration::ExpirationDecider;
pub use garbage_collection::GarbageCollectionDecider;
pub use interruption::InterruptionDecider;
pub use lifecycle::LifecycleDecider;
pub use node_class::NodeClassDecider;
pub use node_overlay::NodeOverlayDecider;
pub use node_pool::NodePoolDecider;
pub use provisioning::ProvisioningDecider;
pub use repair::RepairDecider;
pub use request_tracker::RequestTracker;
pub use static_capacity::StaticCapacityDecider;
pub use termination::TerminationDecider;

use crate::cloud::InterruptionNotice;
use crate::decider_id::DeciderId;
use crate::effect::{Effect, Event, Outcome};
use crate::feasible::FeasiblePods;
use crate::freshness::{Freshness, OldWatch};
use crate::index::Changes;
use crate::ledger::LedgerOp;
use crate::metric_event::MetricEvent;
use crate::names::ObjectRef;
use crate::planning_context::PlanningContext;
use crate::reason::Reason;
use crate::record::{Record, Verdict};
use crate::settings::Settings;
use crate::snapshot::Snapshot;
use crate::values::after;

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

    /// The old watch because of which this decider may do nothing now that cannot be taken back; see
    /// [`crate::freshness::depends`].
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
    /// Ledger changes; they hold before any effect is carried out.
    pub ledger: Vec<LedgerOp>,
    /// What was decided and why.
    pub records: Vec<Record>,
    /// What is only counted.
    pub tallies: Vec<MetricEvent>,
    /// Step again at this time even if nothing changes.
    pub wake: Option<Timestamp>,
}

impl Step {
    /// Adds an effect.
    pub fn effect(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    /// Adds an event.
    pub fn event(&mut self, event: Event) {
        self.effects.push(Effect::Event(event));
    }

    /// Wakes at the earlier of `at` and what was asked for already.
    pub fn wake_at(&mut self, at: Timestamp) {
        self.wake = Some(self.wake.map_or(at, |known| known.min(at)));
    }

    /// Wakes after this many milliseconds.
    pub fn wake_in(&mut self, now: Timestamp, ms: i64) {
        self.wake_at(after(now, ms));
    }

    /// Adds a record.
    pub fn record(
        &mut self,
        input: &StepInput<'_>,
        decider: DeciderId,
        subject: ObjectRef,
        verdict: Verdict,
        reasons: Vec<Reason>,
    ) {
        self.records.push(Record {
            at: input.now,
            decider,
            subject,
            verdict,
            reasons,
            generation: input.snapshot.generation,
        });
    }
}

/// One decider with its memory.
pub trait Decider: Send {
    /// Who it is.
    fn id(&self) -> DeciderId;

    /// Another one that knows nothing yet. The engine asks an instance that it never steps, at the beginning of every term:
    /// what was decided in an earlier term is found again from objects, or was not worth doing.
    fn fresh(&self) -> Box<dyn Decider>;

    /// Whether these changes are worth a step. Outcomes, notices and wake-ups always are.
    fn is_interested(&self, changes: &Changes) -> bool;

    /// One step. `stop` turns true when the answer so far should be given (steps must be anytime).
    fn step(&mut self, input: &StepInput<'_>, stop: &dyn Fn() -> bool) -> Step;
}

/// Every decider, in the order in which they are stepped: what tells about the world first, what spends last.
#[must_use]
pub fn all() -> Vec<Box<dyn Decider>> {
    vec![
        Box::new(NodeClassDecider::default()),
        Box::new(NodePoolDecider::default()),
        Box::new(NodeOverlayDecider::default()),
        Box::new(InterruptionDecider::default()),
        Box::new(LifecycleDecider::default()),
        Box::new(TerminationDecider::default()),
        Box::new(ClaimConditionsDecider::default()),
        Box::new(ExpirationDecider::default()),
        Box::new(GarbageCollectionDecider::default()),
        Box::new(RepairDecider::default()),
        Box::new(StaticCapacityDecider::default()),
        Box::new(ProvisioningDecider::default()),
        Box::new(DisruptionDecider::default()),
    ]
}
