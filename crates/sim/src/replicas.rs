//! The replicas of the service: their start, the events that they get, and which of them leads.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use mortise_apis::node_class::served::ServedNodeClasses;
use mortise_cloudprovider::InterruptionNotice;
use mortise_engine::decider::Decider;
use mortise_engine::engine::{CommitOutput, EffectRequest, Engine, EngineInput};
use mortise_engine::freshness::{Freshness, WatchState};
use mortise_engine::journal::JournalHeader;
use mortise_planning::scheduling::SchedulerConfig;
use mortise_state::resource_kinds::{EventSource, Object, ObjectEvent, ObjectKey, ObjectKind};
use mortise_state::snapshot::Snapshot;
use serde_json::Value;

use crate::clock::{Action, StoreEvent};
use crate::cluster::Cluster;
use crate::options::SimOptions;
use crate::recordings::Recordings;

/// More steps of deciders than this at one time are an endless loop.
pub(crate) const STEPS: usize = 10_000;

/// Kinds whose watches report their state.
pub(crate) const FOLLOWED: [ObjectKind; 5] = [
    ObjectKind::Pod,
    ObjectKind::Node,
    ObjectKind::Claim,
    ObjectKind::Pool,
    ObjectKind::Pdb,
];

/// The replicas, each with its own state of the same objects, and the lease.
pub(crate) struct Replicas {
    engines: Vec<Engine>,
    /// The replica that leads, or led last.
    leader: usize,
    /// Whether the leader holds the lease: without it, none of its requests is executed.
    has_lease: bool,
    recordings: Option<Recordings>,
}

impl Replicas {
    /// One replica, which leads.
    pub(crate) fn new(
        options: &SimOptions,
        deciders: Vec<Box<dyn Decider>>,
        now: Timestamp,
        recordings: Option<Recordings>,
    ) -> Self {
        let mut engine = start_engine(options, deciders, now, recordings.as_ref());
        engine.apply(EngineInput::Leading(true), now);
        Self {
            engines: vec![engine],
            leader: 0,
            has_lease: true,
            recordings,
        }
    }

    /// Whether processes are recorded: objects then come as a real API server sends them, see [`as_sent`].
    pub(crate) const fn is_recorded(&self) -> bool {
        self.recordings.is_some()
    }

    pub(crate) const fn count(&self) -> usize {
        self.engines.len()
    }

    pub(crate) const fn has_lease(&self) -> bool {
        self.has_lease
    }

    /// Whether a request may be executed: the replica leads, holds the lease, and requested it in its current term.
    pub(crate) fn may_write(&self, replica: usize, request: &EffectRequest) -> bool {
        let term = self.engines.get(replica).map(Engine::term);
        self.has_lease && replica == self.leader && term == Some(request.term)
    }

    /// The engine of the replica that leads, or led last.
    fn leading(&mut self) -> &mut Engine {
        let at = self.leader.min(self.engines.len().saturating_sub(1));
        &mut self.engines[at]
    }

    /// The cluster as the leader sees it.
    pub(crate) fn snapshot(&mut self, now: Timestamp) -> Arc<Snapshot> {
        self.leading().snapshot(now)
    }

    /// How fresh a replica's watches are.
    pub(crate) fn freshness(&self, replica: usize) -> &Freshness {
        self.engines[replica].freshness()
    }

    /// When the next decider is due without a change.
    pub(crate) fn next_wake(&self) -> Option<Timestamp> {
        self.engines.iter().filter_map(Engine::next_wake).min()
    }

    /// Steps the deciders of a replica that are due.
    pub(crate) fn turn(&mut self, replica: usize, now: Timestamp) -> CommitOutput {
        self.engines[replica].turn(now, STEPS, &|| false)
    }

    /// Applies an input to every replica.
    pub(crate) fn apply_all(&mut self, now: Timestamp, input: impl Fn() -> EngineInput) {
        for engine in &mut self.engines {
            engine.apply(input(), now);
        }
    }

    /// Applies an input to one replica.
    pub(crate) fn apply(&mut self, replica: usize, now: Timestamp, input: EngineInput) {
        let at = replica.min(self.engines.len().saturating_sub(1));
        self.engines[at].apply(input, now);
    }

    /// Applies an input to the leader.
    pub(crate) fn apply_leader(&mut self, now: Timestamp, input: EngineInput) {
        self.leading().apply(input, now);
    }

    /// Delivers changes to every replica, as watches do.
    pub(crate) fn show(&mut self, events: Vec<StoreEvent>, cluster: &mut Cluster) {
        let now = cluster.now();
        let is_recorded = self.is_recorded();
        for StoreEvent {
            key,
            object,
            version,
        } in events
        {
            for engine in &mut self.engines {
                let event = match object.clone().map(|value| cluster.readable(&key, value)) {
                    Some(Some(object)) => {
                        ObjectEvent::Applied(as_sent(object, is_recorded), EventSource::Watch)
                    }
                    Some(None) => break,
                    None => ObjectEvent::Deleted(key.clone(), Some(version)),
                };
                engine.apply(EngineInput::News(event), now);
            }
        }
        self.apply_all(now, || EngineInput::Synced);
    }

    /// Delivers to a replica the object that its write returned.
    pub(crate) fn show_write(
        &mut self,
        writer: usize,
        key: &ObjectKey,
        value: Value,
        cluster: &mut Cluster,
    ) {
        if let Some(object) = cluster.readable(key, value) {
            let object = as_sent(object, self.is_recorded());
            let event = ObjectEvent::Applied(object, EventSource::Write);
            self.apply(writer, cluster.now(), EngineInput::News(event));
        }
    }

    /// Starts one more replica, which waits for the lease.
    pub(crate) fn add(
        &mut self,
        options: &SimOptions,
        deciders: Vec<Box<dyn Decider>>,
        cluster: &mut Cluster,
    ) {
        let recordings = self.recordings.as_ref();
        let mut engine = start_engine(options, deciders, cluster.now(), recordings);
        list_all(&mut engine, cluster, self.is_recorded());
        self.engines.push(engine);
    }

    /// Kills the leader and starts it again: memory is lost, objects and instances stay. It leads again.
    pub(crate) fn restart(
        &mut self,
        options: &SimOptions,
        deciders: Vec<Box<dyn Decider>>,
        cluster: &mut Cluster,
    ) {
        let is_kept =
            |action: &Action| !matches!(action, Action::Execute(..) | Action::Outcome(..));
        cluster.clock.retain(is_kept);
        let now = cluster.now();
        let mut engine = start_engine(options, deciders, now, self.recordings.as_ref());
        engine.apply(EngineInput::Leading(true), now);
        list_all(&mut engine, cluster, self.is_recorded());
        *self.leading() = engine;
        self.has_lease = true;
        self.deliver_all(cluster);
    }

    /// The leader loses the lease and notices it after `ms`; requests until then are not executed.
    pub(crate) fn lose_lease(&mut self, ms: i64, cluster: &mut Cluster) {
        self.has_lease = false;
        cluster.clock.in_ms(ms, Action::LeaseLost);
    }

    /// A replica acquires the lease.
    pub(crate) fn win_lease(&mut self, replica: usize, cluster: &Cluster) {
        self.leader = replica;
        self.has_lease = true;
        self.apply_leader(cluster.now(), EngineInput::Leading(true));
        self.deliver_all(cluster);
    }

    /// Delivers an interruption notice to the leader.
    pub(crate) fn deliver(&mut self, notice: InterruptionNotice, now: Timestamp) {
        let provider = "sim".into();
        self.apply_leader(now, EngineInput::Notice { provider, notice });
    }

    fn deliver_all(&mut self, cluster: &Cluster) {
        for notice in cluster.cloud.notices() {
            self.deliver(notice.clone(), cluster.now());
        }
    }
}

/// A process with established watches and without objects.
fn start_engine(
    options: &SimOptions,
    deciders: Vec<Box<dyn Decider>>,
    now: Timestamp,
    recordings: Option<&Recordings>,
) -> Engine {
    let mut engine = Engine::new(
        deciders,
        options.settings.clone(),
        options.well_known.clone(),
        options.seed,
        now,
    );
    if let Some(recordings) = recordings {
        let header = JournalHeader {
            recorded_by: env!("CARGO_PKG_VERSION").to_owned(),
            started_at: now,
            file: 0,
            settings: options.settings.clone(),
            scheduler_config: SchedulerConfig::default(),
            well_known: options.well_known.clone(),
            served: ServedNodeClasses::All,
            seed: options.seed,
        };
        let groups = options.node_classes.iter().map(|class| &*class.group);
        let groups: BTreeSet<&str> = groups.collect();
        let groups = groups.into_iter().map(str::to_owned).collect();
        engine = engine.recorded_by(recordings.start(&header, groups));
    }
    for kind in FOLLOWED {
        let state = WatchState::Stands;
        engine.apply(EngineInput::Watch { kind, state }, now);
    }
    engine
}

/// Delivers every object to a replica, as the initial lists do.
pub(crate) fn list_all(engine: &mut Engine, cluster: &mut Cluster, is_recorded: bool) {
    let now = cluster.now();
    let all = cluster.api_server.iter();
    let all: Vec<_> = all
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    for (key, value) in all {
        if let Some(object) = cluster.readable(&key, value) {
            let object = as_sent(object, is_recorded);
            let event = ObjectEvent::Applied(object, EventSource::Watch);
            engine.apply(EngineInput::News(event), now);
        }
    }
    end_lists(engine, cluster);
    engine.apply(EngineInput::Synced, now);
}

/// The object as a real API server sends it, with times in whole seconds: what is recorded has no finer ones either.
pub(crate) fn as_sent(object: Object, is_recorded: bool) -> Object {
    if !is_recorded {
        return object;
    }
    let sent = serde_json::to_value(&object);
    let sent = sent.and_then(|value| object.key().kind().deserialize(value));
    sent.unwrap_or(object)
}

/// Completes a list of every kind, as a restarted watch does.
fn end_lists(engine: &mut Engine, cluster: &Cluster) {
    let mut lists: BTreeMap<ObjectKind, BTreeSet<ObjectKey>> = BTreeMap::new();
    for (key, _) in cluster.api_server.iter() {
        lists.entry(key.kind()).or_default().insert(key.clone());
    }
    let version = Some(cluster.api_server.version());
    for (kind, keys) in lists {
        let list = ObjectEvent::Listed {
            kind,
            keys,
            version,
        };
        engine.apply(EngineInput::News(list), cluster.now());
    }
}
