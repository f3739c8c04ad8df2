//! The single writer: applies inputs, publishes snapshots, steps deciders, sends effects.
//!
//! The loop runs on its own thread, because applying a list of 100,000 pods or stepping a light decider must not block a thread
//! of the web server. The two deciders with long steps have a thread each; such a step reads the snapshot that it started with
//! and is committed on the newest one.
//!
//! Invariant: the loop waits only for its next input and its next wake-up.

mod old_watches;
mod step_threads;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use mortise_engine::decider_id::DeciderId;
use mortise_engine::engine::{CommitOutput, Engine, EngineInput};
use mortise_engine::events::events_of;
use mortise_engine::record::Verdict;
use mortise_engine::transitions::transitions_of;
use mortise_planning::reason::Reason;
use mortise_state::index::{Diff, ObjectChange};
use mortise_state::snapshot::Pod;
use mortise_webhooks::extender::ExtenderState;
use tokio::sync::mpsc;

use crate::clock::until;
use crate::config::TelemetryDetail;
use crate::driver_message::{DriverMessage, ExecutorMessage};
use crate::error::{StepPanicked, panic_text};
use crate::service_state::ServiceState;
use crate::watch::WatchHealth;
use old_watches::OldWatches;
use step_threads::{StepThreads, is_heavy, step_span};

/// Capacity of the input queue. A list of 100,000 pods is read faster than it is applied; 4,096 small messages keep this thread
/// busy while the watches wait for capacity.
pub(crate) const INPUTS: usize = 4096;
/// Maximum inputs per snapshot: publishing costs what changed, so it is not worth doing per object.
const MAX_BATCH: usize = 2048;
/// Minimum time per turn under a stream of small changes: every turn publishes a snapshot and checks every decider, so inputs
/// within this time are applied together. Not noticeable, and a tenth of the work under load.
const MIN_TURN: Duration = Duration::from_millis(10);
/// The loop turns at least this often, so that health and freshness are current.
const MAX_WAIT: Duration = Duration::from_secs(1);

/// The driver and all its state.
pub(crate) struct Driver {
    pub(crate) engine: Engine,
    pub(crate) shared: Arc<ServiceState>,
    pub(crate) liveness: Arc<WatchHealth>,
    /// Signals and counters of the extender.
    pub(crate) extender: Arc<ExtenderState>,
    pub(crate) inputs: mpsc::Receiver<DriverMessage>,
    /// Receives completed heavy steps.
    pub(crate) completed: mpsc::Sender<DriverMessage>,
    pub(crate) effects: mpsc::UnboundedSender<ExecutorMessage>,
    pub(crate) stopping: Arc<AtomicBool>,
}

impl Driver {
    /// Runs until `stopping` is set or every sender of inputs is dropped.
    pub(crate) async fn run(mut self) -> Result<(), StepPanicked> {
        let mut threads = StepThreads::default();
        let mut batch = Vec::with_capacity(256);
        let mut published = None;
        let mut old_watches = OldWatches::default();
        loop {
            let turn_start = tokio::time::Instant::now();
            self.apply_feasibility_signals();
            self.step_due_deciders(&mut threads)?;
            self.publish_snapshot(&mut published);
            old_watches.update(self.engine.freshness(), self.shared.now());
            let wait = self.time_to_next_turn();
            let received =
                tokio::time::timeout(wait, self.inputs.recv_many(&mut batch, MAX_BATCH)).await;
            if matches!(received, Ok(0)) || self.stopping.load(Ordering::Relaxed) {
                return Ok(());
            }
            if received.is_ok() && turn_start.elapsed() < MIN_TURN {
                tokio::time::sleep_until(turn_start + MIN_TURN).await;
                while batch.len() < MAX_BATCH
                    && let Ok(message) = self.inputs.try_recv()
                {
                    batch.push(message);
                }
            }
            self.shared.metrics.engine.inputs_queued(self.inputs.len());
            for message in batch.drain(..) {
                self.handle_message(message)?;
            }
        }
    }

    /// Passes on for which pods kube-scheduler found a node. Only a leader launches nodes, so only a leader needs it.
    fn apply_feasibility_signals(&mut self) {
        let signals = self.extender.feasibility_signals.drain();
        if self.shared.health.is_leading() {
            for (pod, at) in signals {
                self.engine.apply(EngineInput::Feasible { pod, at }, at);
            }
        }
    }

    fn time_to_next_turn(&self) -> Duration {
        let now = self.shared.now();
        self.engine
            .next_wake()
            .map_or(MAX_WAIT, |wake| until(now, wake))
            .min(MAX_WAIT)
    }

    fn handle_message(&mut self, message: DriverMessage) -> Result<(), StepPanicked> {
        let now = self.shared.now();
        match message {
            DriverMessage::Input(input) => {
                self.apply_input(input, now);
            }
            DriverMessage::Finished { id, finished, took } => {
                self.shared.metrics.engine.stepped(id, took);
                let turn = self.engine.commit(*finished, now);
                self.send_effects(id, turn, took);
            }
            DriverMessage::Panicked { id, message } => {
                return Err(StepPanicked {
                    decider: id,
                    message,
                });
            }
        }
        Ok(())
    }

    /// Applies an input, and counts deletions and transitions, which only this place sees. Only the leader counts, so that the
    /// sum over all replicas is correct.
    fn apply_input(&mut self, input: EngineInput, now: jiff::Timestamp) {
        if let EngineInput::Leading(leading) = &input {
            self.shared.health.set_leading(*leading);
            if self
                .effects
                .send(ExecutorMessage::Leading(*leading))
                .is_err()
            {
                tracing::debug!("effect executor exited before the engine loop");
            }
        }
        let is_leading = self.shared.health.is_leading();
        let changes = self.engine.apply(input, now);
        if is_leading {
            for change in changes {
                self.report_change(change, now);
            }
        }
    }

    /// Counts the change of an object in metrics, and sends its events.
    fn report_change(&self, change: ObjectChange, now: jiff::Timestamp) {
        let (metrics, index) = (&self.shared.metrics, self.engine.index());
        match &change {
            ObjectChange::Claim(Diff { before, after }) => {
                self.announce(&change);
                let (before, after) = (before.as_deref(), after.as_deref());
                if let Some(traces) = self.shared.traces() {
                    traces.claim_changed(before, after, now);
                }
                match (before, after) {
                    (before, Some(claim)) => metrics.conditions.claim_changed(before, claim),
                    (Some(before), None) => metrics.claim_gone(before, now),
                    (None, None) => {}
                }
            }
            ObjectChange::Pool(Diff { before, after }) => {
                self.announce(&change);
                let (before, after) = (before.as_deref(), after.as_deref());
                match (before, after) {
                    (before, Some(pool)) => metrics.conditions.pool_changed(before, pool),
                    (Some(before), None) => metrics.pool_gone(before, now),
                    (None, None) => {}
                }
            }
            ObjectChange::Buffer(Diff { before, after }) => {
                let (before, after) = (before.as_deref(), after.as_deref());
                let mut states = [before, after].into_iter().flatten();
                if states.any(|buffer| buffer.is_foreign()) {
                    return;
                }
                self.announce(&change);
                match (before, after) {
                    (before, Some(buffer)) => metrics.conditions.buffer_changed(before, buffer),
                    (Some(before), None) => metrics.buffer_gone(before, now),
                    (None, None) => {}
                }
            }
            ObjectChange::Node(Diff { before, after }) => {
                let (before, after) = (before.as_deref(), after.as_deref());
                let is_managed = [before, after].into_iter().flatten().all(|node| {
                    let has_pool = node.label(mortise_apis::labels::NODEPOOL).is_some();
                    has_pool && !index.is_of_foreign_pool(node)
                });
                if is_managed {
                    self.announce(&change);
                    match (before, after) {
                        (before, Some(node)) => metrics.conditions.node_changed(before, node),
                        (Some(before), None) => metrics.node_gone(before, now),
                        (None, None) => {}
                    }
                }
            }
            ObjectChange::Pod(Diff { before, after }) => {
                let Some(before) = before else { return };
                let after = after.as_deref();
                if is_bind(before, after) {
                    self.extender.schedulers.record_bind(now);
                }
                metrics.pods.changed(before, after, now);
            }
            ObjectChange::Other(_) => {}
        }
    }

    /// Sends the events of what changed on an object.
    fn announce(&self, change: &ObjectChange) {
        let is_full = self.shared.metrics.detail() == TelemetryDetail::Full;
        let records = transitions_of(change, is_full, self.shared.now());
        for event in records.iter().flat_map(events_of) {
            if self.effects.send(ExecutorMessage::Tell(event)).is_err() {
                tracing::debug!("effect executor exited before the engine loop");
            }
        }
    }

    fn step_due_deciders(&mut self, threads: &mut StepThreads) -> Result<(), StepPanicked> {
        // One round gives every decider two turns; what is due after that waits for the inputs received meanwhile.
        for _ in 0..20 {
            if self.stopping.load(Ordering::Relaxed) {
                return Ok(());
            }
            let now = self.shared.now();
            let Some(id) = self.engine.due(now) else {
                break;
            };
            let Some(job) = self.engine.prepare(id, now) else {
                break;
            };
            self.shared.metrics.engine.stepping(id);
            if is_heavy(id) {
                threads.start_step(id, job, &self.completed, &self.stopping);
                continue;
            }
            let _span = step_span(id).entered();
            let start = Instant::now();
            let finished =
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| job.run(&|| false)))
                    .map_err(|payload| StepPanicked {
                        decider: id,
                        message: panic_text(&*payload),
                    })?;
            let took = start.elapsed();
            self.shared.metrics.engine.stepped(id, took);
            let turn = self.engine.commit(finished, self.shared.now());
            self.send_effects(id, turn, took);
        }
        Ok(())
    }

    fn send_effects(&self, id: DeciderId, turn: CommitOutput, took: Duration) {
        let CommitOutput {
            orders,
            records,
            tallies,
            commands: _,
        } = turn;
        if !tallies.is_empty() {
            let snapshot = self.shared.snapshot();
            self.shared.metrics.cloud.tallied(&tallies);
            self.shared
                .metrics
                .disruption
                .tallied(&tallies, took, &snapshot);
        }
        let why = match id {
            DeciderId::Disruption => {
                let disrupted = records
                    .iter()
                    .find(|record| record.verdict == Verdict::Disrupted);
                let mut reasons = disrupted.iter().flat_map(|record| &record.reasons);
                let why = reasons.find_map(Reason::karpenter_label);
                why.unwrap_or("underutilized")
            }
            _ => "provisioned",
        };
        for numbered in self.shared.record(records) {
            tracing::debug!(
                decision = numbered.id,
                by = id.label(),
                subject = %numbered.record.subject,
                verdict = numbered.record.verdict.label(),
                generation = numbered.record.generation,
                "decided"
            );
        }
        for order in orders {
            if self
                .effects
                .send(ExecutorMessage::Order { order, why })
                .is_err()
            {
                tracing::debug!("effect executor exited before the engine loop");
            }
        }
    }

    fn publish_snapshot(&mut self, published: &mut Option<u64>) {
        let snapshot = self.engine.snapshot(self.shared.now());
        if *published != Some(snapshot.generation) {
            *published = Some(snapshot.generation);
            self.shared.publish(snapshot);
        } else {
            self.shared.follow_costs();
        }
        self.shared.set_freshness(self.engine.freshness());
        if let Some(age) = self.liveness.time_since_confirmed() {
            self.shared.confirm(age);
        }
        self.shared.health.record_turn();
    }
}

/// Whether a scheduler bound the pod: only schedulers bind pods that are not a node's own.
fn is_bind(before: &Pod, after: Option<&Pod>) -> bool {
    after.is_some_and(|after| {
        after.uid == before.uid
            && before.node.is_none()
            && after.node.is_some()
            && !after.is_node_owned()
    })
}

#[cfg(test)]
mod tests;
