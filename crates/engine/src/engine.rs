//! The engine: index, ledger and deciders in one sans-IO state machine, which both the shell and the simulator drive.
//!
//! ```text
//! input ─► index ─► freeze ─► due deciders: prepare ─► run (anywhere) ─► commit ─► effects, records
//! ```
//!
//! Invariants: the engine is the only writer of index and ledger; ledger changes of a step hold before its effects leave;
//! a claim is created only if its pool's limits hold *now*, whoever asked for it (Law 10).

mod policy_admission;
mod recorder;
mod step_job;

use std::sync::Arc;

use jiff::Timestamp;

use crate::decider::{Decider, InboxMessage};
use crate::decider_id::DeciderId;
use crate::effect::{Effect, EffectError, EffectOutput, Outcome};
use crate::events::events_of;
use crate::freshness::{Freshness, WatchState};
use crate::metric_event::MetricEvent;
use crate::record::Record;
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::labels::WellKnown;
use mortise_apis::names::Uid;
use mortise_apis::node_class::served::ServedNodeClasses;
use mortise_apis::values::after;
use mortise_cloudprovider::{InterruptionNotice, LaunchError};
use mortise_planning::disruption::command::DisruptionCommand;
use mortise_planning::settings::Settings;
use mortise_state::catalog::Catalog;
use mortise_state::feasible_pods::FeasiblePods;
use mortise_state::index::{Changes, Index, ObjectChange};
use mortise_state::ledger::{ExpectedClaim, LedgerOp};
use mortise_state::resource_kinds::{ObjectEvent, ObjectKind};
use mortise_state::snapshot::{PoolUsage, Snapshot, most_of};

use policy_admission::PolicyAdmission;
use recorder::command_text;
pub use recorder::{JournalEvent, RecordedStep, Recorder};
pub use step_job::{CompletedStep, StepJob};

/// What the engine is told.
#[derive(Clone, Debug)]
pub enum EngineInput {
    /// News of objects.
    News(ObjectEvent),
    /// A watch says how it is.
    Watch {
        /// What it watches.
        kind: ObjectKind,
        /// How it is.
        state: WatchState,
    },
    /// Every list has been read once.
    Synced,
    /// What became of an effect.
    Outcome {
        /// Who asked for it.
        decider: DeciderId,
        /// When: the term of its [`EffectRequest`].
        term: Term,
        /// What became of it.
        outcome: Outcome,
    },
    /// A message of a provider.
    Notice {
        /// Provider name.
        provider: Arc<str>,
        /// The message.
        notice: InterruptionNotice,
    },
    /// kube-scheduler has a node for a pod: it asked the extender, and some node was left.
    Feasible {
        /// Its UID.
        pod: Uid,
        /// When it asked.
        at: Timestamp,
    },
    /// This process may act, or may not any more.
    Leading(bool),
}

/// A time during which this process leads, or does not: they are counted from its start. What was asked for in one term is
/// not answered in another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Term(u64);

/// An effect on its way out.
#[derive(Clone, Debug)]
pub struct EffectRequest {
    /// Who asked for it, and gets the outcome.
    pub decider: DeciderId,
    /// When it asked.
    pub term: Term,
    /// What is to be done.
    pub effect: Arc<Effect>,
}

/// What came of committing one or more steps.
#[derive(Debug, Default)]
pub struct CommitOutput {
    /// To be executed.
    pub orders: Vec<EffectRequest>,
    /// To be shown.
    pub records: Vec<Record>,
    /// To be counted.
    pub tallies: Vec<MetricEvent>,
    /// Disruption commands that begin.
    pub commands: Vec<DisruptionCommand>,
}

struct DeciderSlot {
    id: DeciderId,
    /// Never stepped: what the next term begins with.
    blank: Box<dyn Decider>,
    decider: Option<Box<dyn Decider>>,
    changes: Changes,
    inbox: Vec<InboxMessage>,
    wake: Option<Timestamp>,
}

impl DeciderSlot {
    fn new(blank: Box<dyn Decider>, now: Timestamp) -> Self {
        Self {
            id: blank.id(),
            decider: Some(blank.fresh()),
            blank,
            changes: Changes::everything(),
            inbox: Vec::new(),
            wake: Some(now),
        }
    }

    /// Begins a term with a decider that knows nothing. One that is out for a step is replaced when it comes back.
    fn begin(&mut self, now: Timestamp) {
        if self.decider.is_some() {
            self.decider = Some(self.blank.fresh());
        }
        self.changes = Changes::everything();
        // Messages of clouds are facts, whoever leads.
        self.inbox
            .retain(|each| matches!(each, InboxMessage::Notice { .. }));
        self.wake = Some(now);
    }
}

/// Index, ledger and deciders.
pub struct Engine {
    index: Index,
    slots: Vec<DeciderSlot>,
    settings: Arc<Settings>,
    feasible: Arc<FeasiblePods>,
    freshness: Arc<Freshness>,
    leading: bool,
    term: Term,
    steps: u64,
    seed: u64,
    last: Option<Arc<Snapshot>>,
    recorder: Option<Box<dyn Recorder>>,
}

impl Engine {
    /// An engine with those of these deciders that the settings need, stepped in this order. `seed` fixes every choice that is left to chance.
    #[must_use]
    pub fn new(
        deciders: Vec<Box<dyn Decider>>,
        settings: Settings,
        well_known: WellKnown,
        seed: u64,
        now: Timestamp,
    ) -> Self {
        let slots = deciders
            .into_iter()
            .filter(|decider| decider.is_needed(&settings))
            .map(|decider| DeciderSlot::new(decider, now))
            .collect();
        Self {
            index: Index::new(well_known, true, now)
                .in_namespace(&settings.namespace)
                .learning_boot_taints(settings.learn_boot_taints)
                .respecting_cluster_autoscaler(settings.respect_cluster_autoscaler_annotations)
                .handing_over(settings.hand_over)
                .serving_requests(settings.provisioning_requests),
            slots,
            settings: Arc::new(settings),
            feasible: Arc::default(),
            freshness: Arc::default(),
            leading: false,
            term: Term::default(),
            steps: 0,
            seed,
            last: None,
            recorder: None,
        }
    }

    /// Says which kinds of node classes this process serves; call it before the first input. Without it: every kind.
    #[must_use]
    pub fn serving(mut self, served: ServedNodeClasses) -> Self {
        self.index = self.index.serving(served);
        self
    }

    /// Counts steps from here: an engine that follows another from the middle of its history makes the same choices where they are left
    /// to chance.
    pub const fn continue_steps(&mut self, steps: u64) {
        self.steps = steps;
    }

    /// Reports every input, step and decision to a recorder; call it before the first input. The engine waits for the recorder.
    #[must_use]
    pub fn recorded_by(mut self, recorder: Box<dyn Recorder>) -> Self {
        self.recorder = Some(recorder);
        self
    }

    fn record(&mut self, at: Timestamp, event: impl FnOnce() -> JournalEvent) {
        if let Some(recorder) = &mut self.recorder {
            recorder.record(at, event());
        }
    }

    /// Takes an input in. Returns which objects an event changed.
    pub fn apply(&mut self, input: EngineInput, now: Timestamp) -> Vec<ObjectChange> {
        self.record(now, || JournalEvent::Input(input.clone()));
        match input {
            EngineInput::News(news) => {
                self.index.set_time(now);
                Arc::make_mut(&mut self.freshness).heard(&news, now);
                return self.index.apply(news);
            }
            EngineInput::Watch { kind, state } => {
                Arc::make_mut(&mut self.freshness).told(&kind, state, now);
            }
            EngineInput::Synced => self.index.set_synced(),
            EngineInput::Outcome {
                decider,
                term,
                outcome,
            } => self.outcome(decider, term, outcome, now),
            EngineInput::Notice { provider, notice } => self.deliver(
                DeciderId::Interruption,
                InboxMessage::Notice { provider, notice },
            ),
            // Nothing is stepped because of it: it only keeps what is stepped from launching.
            EngineInput::Feasible { pod, at } => Arc::make_mut(&mut self.feasible).see(pod, at),
            EngineInput::Leading(leading) => self.lead(leading, now),
        }
        Vec::new()
    }

    /// A term ends and another begins. No decision survives, and no nomination that no object shows: another replica
    /// may have led meanwhile, and what a decision rested on may be so no more.
    fn lead(&mut self, leading: bool, now: Timestamp) {
        if leading == self.leading {
            return;
        }
        self.leading = leading;
        self.term = Term(self.term.0 + 1);
        self.index.reload_ledger();
        for slot in &mut self.slots {
            slot.begin(now);
        }
    }

    fn outcome(&mut self, decider: DeciderId, term: Term, outcome: Outcome, now: Timestamp) {
        let is_current = term == self.term;
        match (&*outcome.effect, &outcome.result) {
            (Effect::Resolve(request), Ok(EffectOutput::Resolved(resolved))) => {
                let catalog = Catalog::build(resolved.instance_types.clone());
                self.index
                    .set_catalog(&request.class.key, Arc::new(catalog));
            }
            (
                Effect::Launch(request),
                Err(EffectError::Launch(LaunchError::InsufficientCapacity {
                    unavailable,
                    again_ms,
                    ..
                })),
            ) => {
                let class = request.claim.node_class_key();
                self.index.mark_unavailable(&class, unavailable);
                if let Some(wait) = again_ms {
                    let again = after(now, *wait);
                    let refused = InboxMessage::CapacityRefused { class, again };
                    self.deliver(DeciderId::NodeClass, refused);
                }
            }
            // Nominations of an earlier term are gone. If the claim exists after all, the claim itself says what holds.
            (Effect::CreateClaim(claim), Err(_))
                if is_current
                    && !self
                        .index
                        .claim(&claim.name())
                        .is_some_and(|there| there.is_same_intent(claim)) =>
            {
                if self.index.claim(&claim.name()).is_none() {
                    self.index.change_ledger(LedgerOp::Settle(claim.name()));
                }
                let place = mortise_state::ledger::NominationTarget::Claim(claim.name());
                let held: Vec<_> = self
                    .freeze(now)
                    .ledger
                    .nominations_to(&place)
                    .map(|each| each.uid.clone())
                    .collect();
                for uid in held {
                    self.index.change_ledger(LedgerOp::Withdraw(uid));
                }
            }
            _ => {}
        }
        if is_current {
            self.deliver(decider, InboxMessage::Outcome(outcome));
        }
    }

    fn deliver(&mut self, to: DeciderId, delivery: InboxMessage) {
        if let Some(slot) = self.slots.iter_mut().find(|slot| slot.id == to) {
            slot.inbox.push(delivery);
        }
    }

    /// The cluster as of now. Cheap when nothing changed.
    pub fn snapshot(&mut self, now: Timestamp) -> Arc<Snapshot> {
        let before = self.last.as_ref().map(|last| last.generation);
        let snapshot = self.freeze(now);
        if before != Some(snapshot.generation) {
            let generation = snapshot.generation;
            self.record(now, || JournalEvent::Frozen(generation));
        }
        snapshot
    }

    /// What was frozen last, for deciders or for others; `None` before the first time. It changes nothing.
    #[must_use]
    pub const fn last_snapshot(&self) -> Option<&Arc<Snapshot>> {
        self.last.as_ref()
    }

    /// The same within a call that is recorded itself.
    fn freeze(&mut self, now: Timestamp) -> Arc<Snapshot> {
        self.index.expire(now);
        if let Some(last) = &self.last {
            if last.outlived_at().is_some_and(|at| at <= now) {
                self.index.outlive();
            }
            if !self.index.is_stale() {
                return Arc::clone(last);
            }
        }
        let snapshot = Arc::new(self.index.freeze(now));
        let changes = self.index.take_changes();
        for slot in &mut self.slots {
            slot.changes.merge(&changes);
        }
        self.last = Some(Arc::clone(&snapshot));
        snapshot
    }

    /// When some decider wants to be stepped although nothing changes; `None` while this process does not lead.
    #[must_use]
    pub fn next_wake(&self) -> Option<Timestamp> {
        if !self.can_decide() {
            return None;
        }
        self.slots
            .iter()
            .filter(|slot| slot.decider.is_some())
            .filter_map(|slot| slot.wake)
            .chain(self.index.next_expiry())
            .chain(self.last.as_ref().and_then(|last| last.outlived_at()))
            .min()
    }

    /// The present term.
    #[must_use]
    pub const fn term(&self) -> Term {
        self.term
    }

    /// This process leads and has seen every list.
    #[must_use]
    pub const fn can_decide(&self) -> bool {
        self.leading && self.index.is_synced()
    }

    /// The objects as last heard of, ahead of any snapshot.
    #[must_use]
    pub const fn index(&self) -> &Index {
        &self.index
    }

    /// What was last heard of each watch.
    #[must_use]
    pub const fn freshness(&self) -> &Arc<Freshness> {
        &self.freshness
    }

    /// Settings in force.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The first decider, in order, that should be stepped now and is not running, except those in `running`.
    pub fn due(&mut self, now: Timestamp) -> Option<DeciderId> {
        if !self.can_decide() {
            return None;
        }
        self.snapshot(now);
        let slot = self.slots.iter().find(|slot| {
            let Some(decider) = &slot.decider else {
                return false;
            };
            !slot.inbox.is_empty()
                || slot.wake.is_some_and(|wake| wake <= now)
                || (!slot.changes.is_empty()
                    && (slot.changes.everything || decider.is_interested(&slot.changes)))
        })?;
        Some(slot.id)
    }

    /// Takes a decider out for one step. `None` if it is out already or unknown.
    pub fn prepare(&mut self, id: DeciderId, now: Timestamp) -> Option<StepJob> {
        self.record(now, || JournalEvent::Prepared(id));
        let snapshot = (*self.freeze(now)).clone();
        let slot = self.slots.iter_mut().find(|slot| slot.id == id)?;
        let decider = slot.decider.take()?;
        self.steps += 1;
        let seed = self.seed
            ^ self.steps.wrapping_mul(0x9E37_79B9_7F4A_7C15)
            ^ of_time(now).wrapping_mul(0xD6E8_FEB8_6659_FD93);
        let (changes, inbox) = (
            std::mem::take(&mut slot.changes),
            std::mem::take(&mut slot.inbox),
        );
        slot.wake = None;
        Some(StepJob {
            id,
            term: self.term,
            decider,
            snapshot,
            changes,
            inbox,
            settings: Arc::clone(&self.settings),
            feasible: Arc::clone(&self.feasible),
            freshness: Arc::clone(&self.freshness),
            seed,
            now,
        })
    }

    /// Puts a decider back and lets its step take effect. Of a step that began in an earlier term nothing is left.
    pub fn commit(&mut self, finished: CompletedStep, now: Timestamp) -> CommitOutput {
        let (id, stopped_after, wake) = (finished.id, finished.stopped_after, finished.step.wake);
        let turn = self.take_effect(finished, now);
        self.record(now, || {
            JournalEvent::Committed(RecordedStep {
                decider: id,
                stopped_after,
                wake,
                requests: turn.orders.clone(),
                records: turn.records.clone(),
                counted: turn.tallies.clone(),
                commands: turn.commands.iter().map(command_text).collect(),
            })
        });
        turn
    }

    fn take_effect(&mut self, finished: CompletedStep, now: Timestamp) -> CommitOutput {
        let CompletedStep {
            id,
            term,
            decider,
            step,
            ..
        } = finished;
        let is_current = term == self.term;
        if let Some(slot) = self.slots.iter_mut().find(|slot| slot.id == id) {
            if is_current {
                slot.decider = Some(decider);
                slot.wake = step.wake;
            } else {
                slot.decider = Some(slot.blank.fresh());
            }
        }
        if !is_current {
            return CommitOutput::default();
        }
        let mut turn = CommitOutput {
            orders: Vec::with_capacity(step.effects.len()),
            records: step.records,
            tallies: step.tallies,
            commands: step.commands,
        };
        let creates = step
            .effects
            .iter()
            .any(|effect| matches!(effect, Effect::CreateClaim(_)));
        // Usage is taken before this step's own expectations are entered: each claim is then counted as it is admitted.
        let before = creates.then(|| self.freeze(now));
        let mut usage = before.as_deref().map(PoolUsage::all).unwrap_or_default();
        let mut policies = PolicyAdmission::default();
        for op in step.ledger {
            // Plans are made on a thread of their own. A pod that has gone meanwhile would hold its room until the end of
            // the nomination: its deletion, which withdraws nominations, was before this one.
            if let LedgerOp::Nominate(nomination) = &op {
                let pod = self.index.pod(&nomination.pod);
                if pod.is_none_or(|pod| pod.uid != nomination.uid) {
                    continue;
                }
            }
            self.index.change_ledger(op);
        }
        for effect in step.effects {
            if let (Effect::CreateClaim(claim), Some(before)) = (&effect, &before) {
                let pool = claim.pool().unwrap_or_else(|| "".into());
                let usage = usage.entry(pool.clone()).or_default();
                let most = most_of(claim, before);
                let admitted = self.admit(claim, usage, &most);
                if let Err(refused) = admitted.and_then(|()| policies.admit(claim, before)) {
                    let outcome = Outcome {
                        effect: Arc::new(effect),
                        result: Err(EffectError::Limit(refused)),
                    };
                    self.outcome(id, term, outcome, now);
                    continue;
                }
                usage.count(&most);
                self.index.change_ledger(LedgerOp::Expect(ExpectedClaim {
                    claim: claim.name(),
                    pool,
                    capacity: Some(most),
                    object: Some(Arc::clone(claim)),
                    from: now,
                }));
            }
            turn.orders.push(EffectRequest {
                decider: id,
                term,
                effect: Arc::new(effect),
            });
        }
        let events = turn.records.iter().flat_map(events_of);
        turn.orders.extend(events.map(|event| EffectRequest {
            decider: id,
            term,
            effect: Arc::new(Effect::Event(event)),
        }));
        turn
    }

    fn admit(
        &self,
        claim: &NodeClaim,
        usage: &PoolUsage,
        most: &mortise_apis::resources::Resources,
    ) -> Result<(), String> {
        let Some(pool) = claim
            .pool()
            .and_then(|pool| self.index.pool(&pool).cloned())
        else {
            return Err("the NodePool was deleted".to_owned());
        };
        usage
            .admits(&pool.limits(), most)
            .map_err(|refused| refused.to_string())
    }

    /// Steps everything that is due, in order, until nothing is; for the simulator and tests. `limit` bounds the number of
    /// steps, so that two deciders that wake each other indefinitely are seen as the error they are.
    pub fn turn(&mut self, now: Timestamp, limit: usize, stop: &dyn Fn() -> bool) -> CommitOutput {
        let mut all = CommitOutput::default();
        for _ in 0..limit {
            let Some(id) = self.due(now) else { break };
            let Some(job) = self.prepare(id, now) else {
                break;
            };
            let turn = self.commit(job.run(stop), now);
            all.orders.extend(turn.orders);
            all.records.extend(turn.records);
            all.tallies.extend(turn.tallies);
            all.commands.extend(turn.commands);
        }
        all
    }
}

/// A number of a moment: with it, names do not repeat after a restart, whatever the seed.
fn of_time(now: Timestamp) -> u64 {
    let seconds = now.as_second().cast_unsigned();
    let rest = u64::from(now.subsec_nanosecond().unsigned_abs());
    seconds.wrapping_mul(1_000_000_007).wrapping_add(rest)
}
