//! One step of a decider, on its way to the thread that runs it and back.

use std::cell::Cell;
use std::sync::Arc;

use jiff::Timestamp;
use mortise_planning::settings::Settings;
use mortise_state::feasible_pods::FeasiblePods;
use mortise_state::index::Changes;
use mortise_state::snapshot::Snapshot;

use super::Term;
use crate::decider::{Decider, InboxMessage, Step, StepInput};
use crate::decider_id::DeciderId;
use crate::freshness::Freshness;

/// One step, ready to be run on any thread.
pub struct StepJob {
    pub(super) id: DeciderId,
    pub(super) term: Term,
    pub(super) decider: Box<dyn Decider>,
    pub(super) snapshot: Snapshot,
    pub(super) changes: Changes,
    pub(super) inbox: Vec<InboxMessage>,
    pub(super) settings: Arc<Settings>,
    pub(super) feasible: Arc<FeasiblePods>,
    pub(super) freshness: Arc<Freshness>,
    pub(super) seed: u64,
    pub(super) now: Timestamp,
}

/// A step that has been run, to be committed.
pub struct CompletedStep {
    pub(super) id: DeciderId,
    pub(super) term: Term,
    pub(super) decider: Box<dyn Decider>,
    pub(super) step: Step,
    /// How often the step asked whether to stop before the signal came; `None`: it did not.
    pub(super) stopped_after: Option<u64>,
}

impl StepJob {
    /// Who steps.
    #[must_use]
    pub const fn id(&self) -> DeciderId {
        self.id
    }

    /// Runs the step. `stop` turns true when the answer so far should be given. Once it has, it is not asked again, so that how often
    /// it was asked before says exactly where the step stopped: a replay stops there, whatever the clock says.
    pub fn run(self, stop: &dyn Fn() -> bool) -> CompletedStep {
        let Self {
            id,
            term,
            mut decider,
            snapshot,
            changes,
            inbox,
            settings,
            feasible,
            freshness,
            seed,
            now,
        } = self;
        let input = StepInput {
            now,
            snapshot: &snapshot,
            changes: &changes,
            inbox: &inbox,
            settings: &settings,
            feasible: &feasible,
            freshness: &freshness,
            seed,
        };
        let (asked, stopped_after) = (Cell::new(0_u64), Cell::new(None));
        let step = decider.step(&input, &|| {
            if stopped_after.get().is_none() {
                if stop() {
                    stopped_after.set(Some(asked.get()));
                } else {
                    asked.set(asked.get() + 1);
                }
            }
            stopped_after.get().is_some()
        });
        CompletedStep {
            id,
            term,
            decider,
            step,
            stopped_after: stopped_after.get(),
        }
    }
}
