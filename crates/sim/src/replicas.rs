//! The processes of the service: how one starts, what it is shown, and which of them leads.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use mortise_apis::labels::WellKnown;
use mortise_cloudprovider::InterruptionNotice;
use mortise_engine::decider::Decider;
use mortise_engine::engine::{CommitOutput, EffectRequest, Engine, EngineInput};
use mortise_engine::freshness::{Freshness, WatchState};
use mortise_state::resource_kinds::{EventSource, ObjectEvent, ObjectKey, ObjectKind};
use mortise_state::snapshot::Snapshot;
use serde_json::Value;

use crate::clock::{Action, StoreEvent};
use crate::cluster::Cluster;
use crate::options::Options;

/// More steps of deciders than this at one moment are a loop without end.
const STEPS: usize = 10_000;

/// Kinds whose watches say how they are.
pub(crate) const FOLLOWED: [ObjectKind; 5] = [
    ObjectKind::Pod,
    ObjectKind::Node,
    ObjectKind::Claim,
    ObjectKind::Pool,
    ObjectKind::Pdb,
];

/// The processes, each with its own state of the same objects, and the lease.
pub(crate) struct Replicas {
    engines: Vec<Engine>,
    /// The one that leads, or led last.
    leader: usize,
    /// Whether the leader still has the lease: without it, nothing that it requests is done.
    has_lease: bool,
}

impl Replicas {
    /// One process, which leads.
    pub(crate) fn new(options: &Options, deciders: Vec<Box<dyn Decider>>, now: Timestamp) -> Self {
        let mut engine = start(options, deciders, now);
        engine.apply(EngineInput::Leading(true), now);
        Self {
            engines: vec![engine],
            leader: 0,
            has_lease: true,
        }
    }

    pub(crate) const fn count(&self) -> usize {
        self.engines.len()
    }

    pub(crate) const fn has_lease(&self) -> bool {
        self.has_lease
    }

    /// Whether what was requested may be done: by the leader, while it has the lease, in its present term.
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

    /// When some decider wants to be stepped although nothing changes.
    pub(crate) fn next_wake(&self) -> Option<Timestamp> {
        self.engines.iter().filter_map(Engine::next_wake).min()
    }

    /// Steps the deciders of a replica that are due.
    pub(crate) fn turn(&mut self, replica: usize, now: Timestamp) -> CommitOutput {
        self.engines[replica].turn(now, STEPS, &|| false)
    }

    /// Tells every replica.
    pub(crate) fn apply_all(&mut self, now: Timestamp, input: impl Fn() -> EngineInput) {
        for engine in &mut self.engines {
            engine.apply(input(), now);
        }
    }

    /// Tells one replica.
    pub(crate) fn apply(&mut self, replica: usize, now: Timestamp, input: EngineInput) {
        let at = replica.min(self.engines.len().saturating_sub(1));
        self.engines[at].apply(input, now);
    }

    /// Tells the leader.
    pub(crate) fn apply_leader(&mut self, now: Timestamp, input: EngineInput) {
        self.leading().apply(input, now);
    }

    /// Shows changes to every replica, as watches do.
    pub(crate) fn show(&mut self, events: Vec<StoreEvent>, cluster: &mut Cluster) {
        let now = cluster.now();
        for StoreEvent {
            key,
            object,
            version,
        } in events
        {
            for engine in &mut self.engines {
                let event = match object.clone().map(|value| cluster.readable(&key, value)) {
                    Some(Some(object)) => ObjectEvent::Applied(object, EventSource::Watch),
                    Some(None) => break,
                    None => ObjectEvent::Deleted(key.clone(), Some(version)),
                };
                engine.apply(EngineInput::News(event), now);
            }
        }
        self.apply_all(now, || EngineInput::Synced);
    }

    /// Shows a replica the object that its write returned.
    pub(crate) fn show_write(
        &mut self,
        writer: usize,
        key: &ObjectKey,
        value: Value,
        cluster: &mut Cluster,
    ) {
        if let Some(object) = cluster.readable(key, value) {
            let event = ObjectEvent::Applied(object, EventSource::Write);
            self.apply(writer, cluster.now(), EngineInput::News(event));
        }
    }

    /// Starts one more replica, which waits for the lease.
    pub(crate) fn add(
        &mut self,
        options: &Options,
        deciders: Vec<Box<dyn Decider>>,
        cluster: &mut Cluster,
    ) {
        let mut engine = start(options, deciders, cluster.now());
        read_all(&mut engine, cluster);
        self.engines.push(engine);
    }

    /// Kills the replica that leads and starts it again: memory is lost, objects and instances stay. It leads again.
    pub(crate) fn restart(
        &mut self,
        options: &Options,
        deciders: Vec<Box<dyn Decider>>,
        cluster: &mut Cluster,
    ) {
        let is_kept = |action: &Action| !matches!(action, Action::Execute(..) | Action::Answer(..));
        cluster.clock.retain(is_kept);
        let now = cluster.now();
        let mut engine = start(options, deciders, now);
        engine.apply(EngineInput::Leading(true), now);
        read_all(&mut engine, cluster);
        *self.leading() = engine;
        self.has_lease = true;
        self.deliver_all(cluster);
    }

    /// The lease is no longer the leader's, which learns of that in `ms`; what it requests meanwhile is not done.
    pub(crate) fn lose_lease(&mut self, ms: i64, cluster: &mut Cluster) {
        self.has_lease = false;
        cluster.clock.in_ms(ms, Action::LeaseLost);
    }

    /// A replica has the lease.
    pub(crate) fn win_lease(&mut self, replica: usize, cluster: &Cluster) {
        self.leader = replica;
        self.has_lease = true;
        self.apply_leader(cluster.now(), EngineInput::Leading(true));
        self.deliver_all(cluster);
    }

    /// Hands a message of the cloud to the leader.
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

/// A process whose watches stand and have shown nothing.
fn start(options: &Options, deciders: Vec<Box<dyn Decider>>, now: Timestamp) -> Engine {
    let mut engine = Engine::new(
        deciders,
        options.settings.clone(),
        WellKnown::aws(),
        options.seed,
        now,
    );
    for kind in FOLLOWED {
        let state = WatchState::Stands;
        engine.apply(EngineInput::Watch { kind, state }, now);
    }
    engine
}

/// Shows every object to a replica, as the lists of a process that starts do.
fn read_all(engine: &mut Engine, cluster: &mut Cluster) {
    let now = cluster.now();
    let all = cluster.api_server.iter();
    let all: Vec<_> = all
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    for (key, value) in all {
        if let Some(object) = cluster.readable(&key, value) {
            let event = ObjectEvent::Applied(object, EventSource::Watch);
            engine.apply(EngineInput::News(event), now);
        }
    }
    end_lists(engine, cluster);
    engine.apply(EngineInput::Synced, now);
}

/// Ends a list of every kind, as a watch does that has begun again.
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
