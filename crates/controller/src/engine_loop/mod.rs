//! The single writer: takes inputs in, publishes snapshots, steps deciders, hands effects out.
//!
//! The loop runs on a thread of its own, because applying a list of 100,000 pods or a step of a light decider must not
//! keep a web server's thread. The two deciders that may compute for long have a thread each; a step of theirs works on
//! the snapshot that it was given and is committed on the then newest one.
//!
//! Invariant: nothing here waits for anything but its next input and its next wake-up.

mod old_watches;
mod step_threads;
mod transitions;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use mortise_apis::names::{ClaimName, NodeName, PodKey, PoolName};
use mortise_apis::{NodeClaim, NodePool, k8s};
use mortise_engine::decider_id::DeciderId;
use mortise_engine::effect::Event;
use mortise_engine::engine::{CommitOutput, Engine, EngineInput};
use mortise_engine::record::Verdict;
use mortise_state::index::Index;
use mortise_state::resource_kinds::{ObjectEvent, ObjectKey};
use mortise_state::snapshot::Pod;
use mortise_webhooks::extender::ExtenderState;
use tokio::sync::mpsc;

use crate::clock::until;
use crate::driver_message::{DriverMessage, ExecutorMessage};
use crate::error::{StepPanicked, panic_text};
use crate::metrics::replacement_reason;
use crate::service_state::ServiceState;
use crate::watch::WatchHealth;
use old_watches::OldWatches;
use step_threads::{StepThreads, is_heavy, step_span};

/// Inputs that may wait. A list of 100,000 pods comes in faster than it is taken in; 4,096 small messages are enough to
/// keep this thread busy while the watches wait for room.
pub(crate) const INPUTS: usize = 4096;
/// Inputs taken in before a snapshot is published: a freeze costs what changed, so a flood is not worth one per object.
const DRAIN: usize = 2048;
/// Under a stream of small changes the loop turns no faster than this: every turn freezes and asks every decider, and what
/// comes within it is taken in together. Well below what anybody notices, and a tenth of the work of a flood.
const PACE: Duration = Duration::from_millis(10);
/// The loop turns at least this often, so that health and freshness are known.
const TICK: Duration = Duration::from_secs(1);

/// The driver with everything that it holds.
pub(crate) struct Driver {
    pub(crate) engine: Engine,
    pub(crate) shared: Arc<ServiceState>,
    pub(crate) liveness: Arc<WatchHealth>,
    /// What the extender has to tell.
    pub(crate) extender: Arc<ExtenderState>,
    pub(crate) inputs: mpsc::Receiver<DriverMessage>,
    /// For the answers of heavy steps.
    pub(crate) answers: mpsc::Sender<DriverMessage>,
    pub(crate) effects: mpsc::UnboundedSender<ExecutorMessage>,
    pub(crate) stopping: Arc<AtomicBool>,
}

impl Driver {
    /// Runs until `stopping` is set or every sender of inputs is gone.
    pub(crate) async fn run(mut self) -> Result<(), StepPanicked> {
        let mut threads = StepThreads::default();
        let mut batch = Vec::with_capacity(256);
        let mut published = None;
        let mut old_watches = OldWatches::default();
        loop {
            let turned = tokio::time::Instant::now();
            self.take_signals();
            self.step_all(&mut threads)?;
            self.publish(&mut published);
            old_watches.look(self.engine.freshness(), self.shared.now());
            let wait = self.wait();
            let received =
                tokio::time::timeout(wait, self.inputs.recv_many(&mut batch, DRAIN)).await;
            if matches!(received, Ok(0)) || self.stopping.load(Ordering::Relaxed) {
                return Ok(());
            }
            if received.is_ok() && turned.elapsed() < PACE {
                tokio::time::sleep_until(turned + PACE).await;
                while batch.len() < DRAIN
                    && let Ok(message) = self.inputs.try_recv()
                {
                    batch.push(message);
                }
            }
            self.shared.metrics.engine.inputs_queued(self.inputs.len());
            for message in batch.drain(..) {
                self.handle(message)?;
            }
        }
    }

    /// Hands on for which pods kube-scheduler has a node. Only a leader buys, so only a leader has a use for it.
    fn take_signals(&mut self) {
        let signals = self.extender.signals.take();
        if self.shared.health.is_leading() {
            for (pod, at) in signals {
                self.engine.apply(EngineInput::Feasible { pod, at }, at);
            }
        }
    }

    fn wait(&self) -> Duration {
        let now = self.shared.now();
        self.engine
            .next_wake()
            .map_or(TICK, |wake| until(now, wake))
            .min(TICK)
    }

    fn handle(&mut self, message: DriverMessage) -> Result<(), StepPanicked> {
        let now = self.shared.now();
        match message {
            DriverMessage::Input(input) => {
                self.take_in(input, now);
            }
            DriverMessage::Finished { id, finished, took } => {
                self.shared.metrics.engine.stepped(id, took);
                let turn = self.engine.commit(*finished, now);
                self.dispatch(id, turn, took);
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

    /// Applies an input, and counts what can only be counted here: what went, and what moved. Only the leader counts, so
    /// that the sum over all replicas is right.
    fn take_in(&mut self, input: EngineInput, now: jiff::Timestamp) {
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
        let subjects = if self.shared.health.is_leading() {
            subjects(&input, self.engine.index())
        } else {
            Vec::new()
        };
        let index = self.engine.index();
        let before: Vec<Before> = subjects
            .into_iter()
            .filter_map(|subject| Before::of(subject, index))
            .collect();
        self.engine.apply(input, now);
        for before in before {
            self.count(before, now);
        }
    }

    /// Counts what became of an object.
    fn count(&self, before: Before, now: jiff::Timestamp) {
        let (metrics, index) = (&self.shared.metrics, self.engine.index());
        match before {
            Before::Claim(name, before) => {
                let (before, after) = (before.as_deref(), index.claim(&name).map(|after| &**after));
                let told = transitions::of_claim(metrics.detail(), before, after);
                match (before, after) {
                    (before, Some(claim)) => metrics.conditions.claim_changed(before, claim),
                    (Some(before), None) => metrics.claim_gone(before, now),
                    (None, None) => {}
                }
                self.tell(told);
            }
            Before::Pool(name, before) => {
                let (before, after) = (before.as_deref(), index.pool(&name).map(|after| &**after));
                let told = transitions::of_pool(before, after);
                match (before, after) {
                    (before, Some(pool)) => metrics.conditions.pool_changed(before, pool),
                    (Some(before), None) => metrics.pool_gone(before, now),
                    (None, None) => {}
                }
                self.tell(told);
            }
            Before::Node(name, before) => {
                let (before, after) = (before.as_deref(), index.node(&name).map(|after| &**after));
                let ours = [before, after].into_iter().flatten().all(|node| {
                    let of_pool = node.label(mortise_apis::labels::NODEPOOL).is_some();
                    of_pool && !index.is_of_foreign_pool(node)
                });
                if ours {
                    let told = transitions::of_node(metrics.detail(), before, after);
                    match (before, after) {
                        (before, Some(node)) => metrics.conditions.node_changed(before, node),
                        (Some(before), None) => metrics.node_gone(before, now),
                        (None, None) => {}
                    }
                    self.tell(told);
                }
            }
            Before::Pod(key, before) => {
                let after = index.pod(&key).map(|after| &**after);
                if is_bind(&before, after) {
                    self.extender.schedulers.bound(now);
                }
                metrics.pods.changed(&before, after, now);
            }
        }
    }

    fn tell(&self, events: Vec<Event>) {
        for event in events {
            if self.effects.send(ExecutorMessage::Tell(event)).is_err() {
                tracing::debug!("effect executor exited before the engine loop");
            }
        }
    }

    fn step_all(&mut self, threads: &mut StepThreads) -> Result<(), StepPanicked> {
        // One round gives every decider two chances; what is due after that waits for the inputs that came meanwhile.
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
                threads.run(id, job, &self.answers, &self.stopping);
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
            self.dispatch(id, turn, took);
        }
        Ok(())
    }

    fn dispatch(&self, id: DeciderId, turn: CommitOutput, took: Duration) {
        let CommitOutput {
            orders,
            records,
            tallies,
        } = turn;
        if !tallies.is_empty() {
            let snapshot = self.shared.snapshot();
            self.shared
                .metrics
                .disruption
                .tallied(&tallies, took, &snapshot);
        }
        let why = match id {
            DeciderId::Disruption => {
                let reasons = records
                    .iter()
                    .find(|record| record.verdict == Verdict::Disrupted)
                    .map(|record| record.reasons.as_slice());
                replacement_reason(reasons.unwrap_or_default())
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

    fn publish(&mut self, published: &mut Option<u64>) {
        let snapshot = self.engine.snapshot(self.shared.now());
        if *published != Some(snapshot.generation) {
            *published = Some(snapshot.generation);
            self.shared.publish(snapshot);
        }
        self.shared.set_freshness(self.engine.freshness());
        if let Some(proof) = self.liveness.proof() {
            self.shared.confirm(proof);
        }
        self.shared.health.turned();
    }
}

/// An object as it was before an input was taken in.
enum Before {
    Claim(ClaimName, Option<Arc<NodeClaim>>),
    Pool(PoolName, Option<Arc<NodePool>>),
    Node(NodeName, Option<Arc<k8s::Node>>),
    Pod(PodKey, Arc<Pod>),
}

impl Before {
    /// `None`: nothing is counted of it.
    fn of(subject: ObjectKey, index: &Index) -> Option<Self> {
        Some(match subject {
            ObjectKey::Claim(name) => {
                let before = index.claim(&name).cloned();
                Self::Claim(name, before)
            }
            ObjectKey::Pool(name) => {
                let before = index.pool(&name).cloned();
                Self::Pool(name, before)
            }
            ObjectKey::Node(name) => {
                let before = index.node(&name).cloned();
                Self::Node(name, before)
            }
            ObjectKey::Pod(key) => {
                let before = Arc::clone(index.pod(&key)?);
                Self::Pod(key, before)
            }
            _ => return None,
        })
    }
}

/// Which objects an input is about.
fn subjects(input: &EngineInput, index: &Index) -> Vec<ObjectKey> {
    match input {
        EngineInput::News(ObjectEvent::Applied(object, _)) => vec![object.key()],
        EngineInput::News(ObjectEvent::Deleted(key, _)) => vec![key.clone()],
        EngineInput::News(ObjectEvent::Listed {
            kind,
            keys,
            version,
        }) => index.missing(kind, keys, *version),
        _ => Vec::new(),
    }
}

/// A scheduler gave the pod a node: nobody else binds pods that are not a node's own.
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
