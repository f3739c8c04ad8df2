//! The processes of the service: how one starts, and which of them leads.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use mortise_core::cloud::InterruptionNotice;
use mortise_core::deciders::Decider;
use mortise_core::engine::{Engine, EngineInput};
use mortise_core::freshness::WatchState;
use mortise_core::labels::WellKnown;
use mortise_core::resource_kinds::{EventSource, ObjectEvent, ObjectKey, ObjectKind};

use super::{Action, Simulation};
use crate::options::Options;
use crate::watches::FOLLOWED;

impl Simulation {
    /// Starts one more replica, which waits for the lease.
    pub fn add_replica(&mut self, deciders: Vec<Box<dyn Decider>>) {
        let mut engine = engine(&self.options, deciders, self.now);
        self.read_all(&mut engine);
        self.replicas.push(engine);
    }

    /// How many replicas there are.
    #[must_use]
    pub const fn replicas(&self) -> usize {
        self.replicas.len()
    }

    /// Kills the replica that leads and starts it again: memory is lost, objects and machines stay. It leads again.
    pub fn restart_engine(&mut self, deciders: Vec<Box<dyn Decider>>) {
        self.queue
            .retain(|_, action| !matches!(action, Action::Carry(..) | Action::Answer(..)));
        let mut engine = engine(&self.options, deciders, self.now);
        engine.apply(EngineInput::Leading(true), self.now);
        self.read_all(&mut engine);
        *self.engine() = engine;
        self.has_lease = true;
        self.deliver_all();
    }

    /// Shows every object to a replica, as the lists of a process that starts do.
    fn read_all(&mut self, engine: &mut Engine) {
        let all = self.store.iter();
        let all: Vec<_> = all
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        for (key, value) in all {
            if let Some(object) = self.readable(&key, value) {
                let news = ObjectEvent::Applied(object, EventSource::Watch);
                engine.apply(EngineInput::News(news), self.now);
            }
        }
        self.end_lists(engine);
        engine.apply(EngineInput::Synced, self.now);
    }

    /// The lease is no longer the leader's. It hears of that in `ms`; what it asks for meanwhile is not done.
    pub(crate) fn lose_lease(&mut self, ms: i64) {
        self.has_lease = false;
        self.in_ms(ms, Action::LeaseLost);
    }

    pub(super) fn lease_won(&mut self, replica: usize) {
        self.leader = replica;
        self.has_lease = true;
        let now = self.now;
        self.engine().apply(EngineInput::Leading(true), now);
        self.deliver_all();
    }

    fn deliver_all(&mut self) {
        let notices: Vec<InterruptionNotice> = self.notices.values().cloned().collect();
        notices.into_iter().for_each(|notice| self.deliver(notice));
    }

    /// Ends a list of every kind, as a watch does that began anew.
    fn end_lists(&self, engine: &mut Engine) {
        let mut lists: BTreeMap<ObjectKind, BTreeSet<ObjectKey>> = BTreeMap::new();
        for (key, _) in self.store.iter() {
            lists.entry(key.kind()).or_default().insert(key.clone());
        }
        let version = Some(self.store.version());
        for (kind, keys) in lists {
            let list = ObjectEvent::Listed {
                kind,
                keys,
                version,
            };
            engine.apply(EngineInput::News(list), self.now);
        }
    }
}

pub(super) fn engine(options: &Options, deciders: Vec<Box<dyn Decider>>, now: Timestamp) -> Engine {
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
