//! The event loop: virtual time, the production engine, and everything around it.

mod replicas;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use mortise_core::cloud::InterruptionNotice;
use mortise_core::deciders::Decider;
use mortise_core::effect::{Effect, EffectError, Outcome};
use mortise_core::engine::{EffectRequest, Engine, EngineInput};
use mortise_core::freshness::{Freshness, WatchState};
use mortise_core::names::{ClaimName, PodKey, ProviderId};
use mortise_core::record::Record;
use mortise_core::resource_kinds::{EventSource, Object, ObjectEvent, ObjectKey, ObjectKind};
use mortise_core::snapshot::Snapshot;
use mortise_core::values::{after, since};
use serde_json::{Value, json};

use crate::api_server::{ApiServer, Change, object};
use crate::cloud::Cloud;
use crate::extender::Extender;
use crate::faults::Planned;
use crate::options::Options;
use crate::rng::Rng;
use crate::scheduler::{Scheduler, Verdict};
use crate::stats::Stats;
use crate::watches::WatchFault;
use crate::workload_controllers::WorkloadControllers;

/// Controllers look around this often.
const TICK_MS: i64 = 1_000;
/// One scheduling cycle.
const CYCLE_MS: i64 = 10;
/// More steps of deciders than this at one moment are a loop without end.
const STEPS: usize = 10_000;

/// Something that will happen.
pub(crate) enum Action {
    /// A watch shows changes.
    Watch(Vec<Change>),
    /// An effect of a replica arrives at whoever carries it out.
    Carry(usize, EffectRequest),
    /// The outcome of an effect arrives at the replica that asked for it.
    Answer(usize, EffectRequest, Box<Outcome>),
    /// The leader hears that the lease is lost.
    LeaseLost,
    /// A replica gets the lease.
    LeaseWon(usize),
    /// A machine is up far enough to make its Node.
    NodeAppears(ProviderId),
    /// The kubelet reports ready.
    NodeReady(ProviderId),
    /// A machine is gone.
    MachineGone(ProviderId),
    /// A pod's containers run.
    PodRuns(PodKey),
    /// A pod has ended by itself.
    PodDone(PodKey),
    /// A pod's containers have stopped.
    PodStopped(PodKey, String),
    /// A watch says up to which version it has shown everything.
    Bookmark(ObjectKind, u64),
    /// Owners look around.
    Tick,
    /// The scheduler takes the next pod.
    Schedule,
    /// The cloud takes a machine back.
    Interrupt,
}

/// A virtual cluster with the production deciders in it.
pub struct Simulation {
    pub(crate) options: Options,
    pub(crate) store: ApiServer,
    pub(crate) cloud: Cloud,
    pub(crate) rng: Rng,
    pub(crate) stats: Stats,
    /// The processes of the service, each with its own picture of the same objects.
    pub(crate) replicas: Vec<Engine>,
    /// The one that leads, or led last.
    pub(crate) leader: usize,
    /// Whether the leader still has the lease: without it, nothing that it asks for is done.
    pub(crate) has_lease: bool,
    /// Whose effect is carried out.
    writer: usize,
    scheduler: Scheduler,
    owners: WorkloadControllers,
    extender: Option<Box<dyn Extender>>,
    queue: BTreeMap<(Timestamp, u64), Action>,
    serial: u64,
    now: Timestamp,
    records: Vec<Record>,
    scheduling_at: Option<Timestamp>,
    job_runs: BTreeMap<PodKey, i64>,
    generation: u64,
    spent_since: Timestamp,
    spent_rest: i128,
    pub(crate) planned: Option<Planned>,
    pub(crate) breaches: BTreeSet<String>,
    pub(crate) waiting: crate::waiting::Waiting,
    /// Claims that disruption deleted and that are still there, with their pools, and the most that budgets of a pool ever
    /// allowed.
    pub(crate) disrupted: BTreeMap<ClaimName, String>,
    pub(crate) most_allowed: BTreeMap<String, i64>,
    /// Machines that start do not join.
    pub(crate) images_are_bad: bool,
    /// How much less CPU and memory nodes have than their types say, in percent.
    pub(crate) withheld: i64,
    /// Watches with which something is wrong, and what they hold back.
    pub(crate) watch_faults: BTreeMap<ObjectKind, WatchFault>,
    pub(crate) held_back: BTreeMap<ObjectKind, Vec<Change>>,
    /// Messages of the cloud that nobody has acknowledged.
    pub(crate) notices: BTreeMap<Arc<str>, InterruptionNotice>,
}

impl Simulation {
    /// A cluster at its start: pools and workloads exist, no node does.
    #[must_use]
    pub fn new(options: Options, deciders: Vec<Box<dyn Decider>>) -> Self {
        let now = options.start;
        let mut engine = replicas::engine(&options, deciders, now);
        engine.apply(EngineInput::Leading(true), now);
        let mut simulation = Self {
            store: ApiServer::default(),
            cloud: Cloud::new(options.catalog.clone(), options.shortage_per_mille),
            rng: Rng::new(options.seed),
            stats: Stats::default(),
            replicas: vec![engine],
            leader: 0,
            has_lease: true,
            writer: 0,
            scheduler: Scheduler::default(),
            owners: WorkloadControllers::new(&options),
            extender: None,
            queue: BTreeMap::new(),
            serial: 0,
            now,
            records: Vec::new(),
            scheduling_at: None,
            job_runs: BTreeMap::new(),
            generation: 0,
            spent_since: now,
            spent_rest: 0,
            planned: None,
            images_are_bad: false,
            withheld: 0,
            watch_faults: BTreeMap::new(),
            held_back: BTreeMap::new(),
            breaches: BTreeSet::new(),
            waiting: crate::waiting::Waiting::default(),
            disrupted: BTreeMap::new(),
            most_allowed: BTreeMap::new(),
            notices: BTreeMap::new(),
            options,
        };
        simulation
            .owners
            .install(&simulation.options, &mut simulation.store, now);
        simulation.at(now, Action::Tick);
        simulation.plan_interruption();
        simulation
    }

    /// Virtual time.
    #[must_use]
    pub const fn now(&self) -> Timestamp {
        self.now
    }

    /// The cluster as the deciders see it.
    pub fn snapshot(&mut self) -> Arc<Snapshot> {
        let now = self.now;
        self.engine().snapshot(now)
    }

    /// The engine of the replica that leads, or led last.
    fn engine(&mut self) -> &mut Engine {
        let at = self.leader.min(self.replicas.len().saturating_sub(1));
        &mut self.replicas[at]
    }

    /// Decisions since the last call.
    pub fn take_records(&mut self) -> Vec<Record> {
        std::mem::take(&mut self.records)
    }

    /// Sums so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats {
            virtual_seconds: since(self.now, self.options.start) / 1000,
            ..self.stats.clone()
        }
    }

    /// The cloud.
    #[must_use]
    pub const fn cloud(&self) -> &Cloud {
        &self.cloud
    }

    /// The objects.
    #[must_use]
    pub const fn store(&self) -> &ApiServer {
        &self.store
    }

    /// Lets the scheduler ask an extender.
    pub fn set_extender(&mut self, extender: Box<dyn Extender>) {
        self.extender = Some(extender);
    }

    /// From now on machines start and never join as nodes, or do so again.
    pub const fn break_images(&mut self, are_bad: bool) {
        self.images_are_bad = are_bad;
    }

    /// From now on nodes join with so much less CPU and memory than their types say.
    pub const fn withhold(&mut self, percent: i64) {
        self.withheld = percent;
    }

    /// Somebody changes an object by a merge patch, its specification among it.
    ///
    /// # Errors
    /// There is no such object.
    pub fn edit(&mut self, key: &ObjectKey, mut merge: Value) -> Result<(), EffectError> {
        let generation = self
            .store
            .get(key)
            .and_then(|object| object.pointer("/metadata/generation")?.as_i64());
        merge["metadata"]["generation"] = json!(generation.unwrap_or(0) + 1);
        self.store.patch(key, &merge, None).map(drop)
    }

    /// Scales every workload, in per cent of its normal size; 0 = nothing runs.
    pub fn apply_scale(&mut self, percent: u32) {
        self.owners.scale_percent = percent;
        if percent == 0 {
            let jobs: Vec<PodKey> = self.job_runs.keys().cloned().collect();
            for pod in jobs {
                self.at(self.now, Action::PodDone(pod));
            }
        }
    }

    /// Gives a workload a size, as `kubectl scale` does.
    pub fn scale(&mut self, deployment: &str, replicas: u32) {
        let scaled = &mut self.owners.scaled;
        scaled.insert(deployment.to_owned(), replicas);
    }

    /// Effects that were ordered and have not arrived.
    pub(crate) fn on_their_way(&self) -> Vec<Arc<Effect>> {
        let effects = self.queue.values().filter_map(|action| match action {
            Action::Carry(_, order) => Some(Arc::clone(&order.effect)),
            _ => None,
        });
        effects.collect()
    }

    /// Plays until a time.
    pub fn run_until(&mut self, end: Timestamp) {
        loop {
            self.pump();
            let event = self.queue.keys().next().map(|(at, _)| *at);
            let wakes = self.replicas.iter().filter_map(Engine::next_wake);
            let wake = wakes.min().map(|at| at.max(self.now));
            let next = match (event, wake) {
                (Some(event), Some(wake)) => event.min(wake),
                (Some(at), None) | (None, Some(at)) => at,
                (None, None) => end,
            };
            if next > end {
                self.advance(end);
                return;
            }
            self.advance(next);
            while let Some(((at, serial), _)) = self.queue.first_key_value() {
                if *at > self.now {
                    break;
                }
                let key = (*at, *serial);
                if let Some(action) = self.queue.remove(&key) {
                    self.act(action);
                }
            }
        }
    }

    /// Time passes; machines cost.
    fn advance(&mut self, to: Timestamp) {
        let passed = since(to, self.spent_since).max(0);
        let price = self.cloud.price().0;
        self.stats.price_micro_usd = price;
        self.stats.peak_price_micro_usd = self.stats.peak_price_micro_usd.max(price);
        let cost = i128::from(price) * i128::from(passed) + self.spent_rest;
        self.stats.spent_micro_usd += i64::try_from(cost / 3_600_000).unwrap_or(i64::MAX);
        self.spent_rest = cost % 3_600_000;
        self.spent_since = to;
        self.now = to;
    }

    /// Tells every replica.
    pub(crate) fn input(&mut self, input: impl Fn() -> EngineInput) {
        for engine in &mut self.replicas {
            engine.apply(input(), self.now);
        }
    }

    /// How fresh a replica's watches are.
    pub(crate) fn freshness(&self, replica: usize) -> &Freshness {
        self.replicas[replica].freshness()
    }

    pub(crate) fn at(&mut self, at: Timestamp, action: Action) {
        self.serial += 1;
        self.queue.insert((at, self.serial), action);
    }

    pub(crate) fn in_ms(&mut self, ms: i64, action: Action) {
        let at = after(self.now, ms.max(0));
        self.at(at, action);
    }

    /// Steps what is due, sends its orders on their way, and lets watches see what was written.
    fn pump(&mut self) {
        let changes = self.store.take_changes();
        if !changes.is_empty() {
            self.scheduler.observe(&changes, self.now);
            self.plan_scheduling();
        }
        self.send_changes(changes);
        for replica in 0..self.replicas.len() {
            let turn = self.replicas[replica].turn(self.now, STEPS, &|| false);
            for record in &turn.records {
                let decisions = &mut self.stats.decisions;
                *decisions.entry(record.verdict.label()).or_default() += 1;
            }
            self.records.extend(turn.records);
            self.check_held(replica, &turn.orders);
            for order in turn.orders {
                let ms = self.latency(&order);
                self.in_ms(ms, Action::Carry(replica, order));
            }
        }
        let snapshot = self.snapshot();
        if snapshot.generation != self.generation {
            self.generation = snapshot.generation;
            self.plan_scheduling();
        }
    }

    fn plan_scheduling(&mut self) {
        if let Some(due) = self.scheduler.next_due(self.now) {
            let at = due.max(after(self.now, CYCLE_MS));
            if self
                .scheduling_at
                .is_none_or(|planned| planned > at || planned < self.now)
            {
                self.scheduling_at = Some(at);
                self.at(at, Action::Schedule);
            }
        }
    }

    fn plan_interruption(&mut self) {
        if self.options.interruption_every_s > 0 {
            let ms = self.rng.millis(
                self.options.interruption_every_s * 500,
                self.options.interruption_every_s * 1500,
            );
            self.in_ms(ms, Action::Interrupt);
        }
    }

    /// Shows changes to every replica, as watches do.
    fn show(&mut self, changes: Vec<Change>) {
        for Change {
            key,
            object: value,
            version,
        } in changes
        {
            for replica in 0..self.replicas.len() {
                let news = match value.clone().map(|value| self.readable(&key, value)) {
                    Some(Some(object)) => ObjectEvent::Applied(object, EventSource::Watch),
                    Some(None) => break,
                    None => ObjectEvent::Deleted(key.clone(), Some(version)),
                };
                self.replicas[replica].apply(EngineInput::News(news), self.now);
            }
        }
    }

    /// An object as the service reads it; one that it cannot read is a fault of this world.
    fn readable(&mut self, key: &ObjectKey, value: Value) -> Option<Object> {
        match object(key, value) {
            Ok(object) => Some(object),
            Err(error) => {
                let line = format!("{}: {key:?} cannot be read: {error}", self.now);
                self.stats.violations.push(line);
                None
            }
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Watch(changes) => {
                self.show(changes);
                for engine in &mut self.replicas {
                    engine.apply(EngineInput::Synced, self.now);
                }
            }
            Action::Carry(replica, order) => {
                self.writer = replica;
                self.carry(replica, order);
            }
            Action::Answer(replica, order, outcome) => {
                let answer = EngineInput::Outcome {
                    decider: order.decider,
                    term: order.term,
                    outcome: *outcome,
                };
                self.replicas[replica].apply(answer, self.now);
            }
            Action::LeaseLost => {
                let now = self.now;
                self.engine().apply(EngineInput::Leading(false), now);
            }
            Action::LeaseWon(replica) => self.lease_won(replica),
            Action::NodeAppears(id) => self.node_appears(&id),
            Action::NodeReady(id) => self.node_ready(&id),
            Action::MachineGone(id) => self.machine_gone(&id),
            Action::PodRuns(pod) => self.pod_runs(&pod),
            Action::PodDone(pod) => self.pod_done(&pod),
            Action::PodStopped(pod, uid) => self.pod_stopped(&pod, &uid),
            Action::Bookmark(kind, version) => {
                self.say(&kind, WatchState::Bookmark(Some(version)));
            }
            Action::Tick => self.tick(),
            Action::Schedule => self.schedule(),
            Action::Interrupt => {
                self.interrupt_one();
                self.plan_interruption();
            }
        }
    }

    fn tick(&mut self) {
        for run in self.owners.tick(&mut self.store, self.now, &mut self.rng) {
            self.job_runs.insert(run.pod, run.ms);
        }
        self.kubelets();
        self.tick_watches();
        self.check();
        self.in_ms(TICK_MS, Action::Tick);
    }

    fn schedule(&mut self) {
        self.scheduling_at = None;
        let snapshot = self.snapshot();
        let store = &self.store;
        let body = |key: &PodKey| {
            store
                .get(&ObjectKey::Pod(key.clone()))
                .and_then(|value| serde_json::from_value(value.clone()).ok())
        };
        match self
            .scheduler
            .cycle(&snapshot, self.now, self.extender.as_deref(), body)
        {
            Some(Verdict::Bind(pod, uid, node)) => {
                if self.extender.is_some() {
                    let at = self.now;
                    self.engine()
                        .apply(EngineInput::Feasible { pod: uid, at }, at);
                }
                self.stats.pods_placed += 1;
                let condition = json!([{ "type": "PodScheduled", "status": "True", "lastTransitionTime": self.now.to_string() }]);
                self.write(&ObjectKey::Pod(pod.clone()), &json!({ "spec": { "nodeName": node.as_str() }, "status": { "conditions": condition } }));
                let ms = self.rng.millis(800, 2_500);
                self.in_ms(ms, Action::PodRuns(pod));
            }
            Some(Verdict::Unschedulable(pod)) => self.fits_nowhere(pod, &snapshot),
            None => {}
        }
        self.plan_scheduling();
    }

    /// Says that a pod was tried in vain, as kube-scheduler does: only when the words change, which count the nodes.
    fn fits_nowhere(&mut self, pod: PodKey, snapshot: &Snapshot) {
        let key = ObjectKey::Pod(pod);
        let nodes = snapshot.nodes.values().filter(|node| node.node.is_some());
        let message = format!("0/{} nodes are available", nodes.count());
        let said = self.store.get(&key);
        let said = said.and_then(|pod| pod.pointer("/status/conditions/0"));
        if said.is_some_and(|said| said["message"] == message.as_str()) {
            return;
        }
        let since = said.filter(|said| said["status"] == "False");
        let since = since.map_or_else(
            || json!(self.now.to_string()),
            |said| said["lastTransitionTime"].clone(),
        );
        let condition = json!([{ "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message, "lastTransitionTime": since }]);
        self.write(&key, &json!({ "status": { "conditions": condition } }));
    }

    /// A controller's own write. The object may have gone in between, which is what writers must live with.
    pub(crate) fn write(&mut self, key: &ObjectKey, merge: &Value) {
        if self.store.get(key).is_some()
            && let Err(error) = self.store.patch(key, merge, None)
        {
            self.stats
                .violations
                .push(format!("{}: {key:?} was not written: {error}", self.now));
        }
    }

    /// The picture of the replica that wrote, right after its write.
    pub(crate) fn show_write(&mut self, key: &ObjectKey, value: Value) {
        if let Some(object) = self.readable(key, value) {
            let news = ObjectEvent::Applied(object, EventSource::Write);
            let writer = self.writer.min(self.replicas.len().saturating_sub(1));
            self.replicas[writer].apply(EngineInput::News(news), self.now);
        }
    }

    /// A message of the cloud. It stays in the queue until it is acknowledged.
    pub(crate) fn notify(&mut self, notice: InterruptionNotice) {
        self.notices.insert(Arc::clone(&notice.id), notice.clone());
        self.deliver(notice);
    }

    fn deliver(&mut self, notice: InterruptionNotice) {
        let (provider, now) = ("sim".into(), self.now);
        self.engine()
            .apply(EngineInput::Notice { provider, notice }, now);
    }

    /// How long a pod of a job runs once it has started.
    pub(crate) fn job_run(&mut self, pod: &PodKey) -> Option<i64> {
        self.job_runs.remove(pod)
    }
}
