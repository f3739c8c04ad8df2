//! A small cluster around an engine: an API server, a scheduler that binds first-fit, a cloud that always delivers, and
//! owners that re-create pods. Virtual time; everything follows from what is asked for.

#![allow(
    dead_code,
    reason = "each test binary uses its own part of the small world"
)]

mod objects;
mod outside;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use mortise_apis::names::NodeClassKey;
use mortise_apis::node_class::NodeClassObject;
use mortise_apis::values::after;
use mortise_cloudprovider::{InstanceType, ResolvedNodeClass};
use mortise_deciders::{DisruptionDecider, ProvisioningDecider};
use mortise_engine::decider::Decider;
use mortise_engine::decider_id::DeciderId;
use mortise_engine::effect::{Effect, EffectOutput, Event, Outcome};
use mortise_engine::engine::{EffectRequest, Engine, EngineInput};
use mortise_engine::record::{Record, Verdict};
use mortise_kwok_class::labels::well_known;
use mortise_planning::settings::Settings;
use serde_json::{Value, json};

pub(crate) use objects::instance_type;

/// What the outside does later.
#[derive(Clone, Debug)]
pub(crate) enum Todo {
    /// The cloud delivers the machine of a claim.
    Launch(String),
    /// The machine's Node is there and ready.
    Boot(String),
    /// The scheduler looks at pending pods.
    Schedule,
    /// A claim that goes is drained a bit further.
    Drain(String),
    /// An effect arrives that was slow.
    Arrive(EffectRequest),
}

/// The cluster.
pub(crate) struct SmallWorld {
    pub(crate) engine: Engine,
    pub(crate) now: Timestamp,
    /// Objects by kind and `namespace/name` or name.
    pub(crate) objects: BTreeMap<(&'static str, String), Value>,
    pub(crate) events: Vec<Event>,
    pub(crate) records: Vec<Record>,
    /// Effects that left, in order.
    pub(crate) effects: Vec<(Timestamp, Arc<Effect>)>,
    /// From launch to a ready Node.
    pub(crate) boot_ms: i64,
    /// How long the API server takes to create a claim.
    pub(crate) create_ms: i64,
    /// Claims that the API server refuses to create.
    pub(crate) refuse_claims: usize,
    /// The cloud delivers nothing; claims are given up.
    pub(crate) no_capacity: bool,
    /// Machines whose Node never becomes ready.
    pub(crate) never_ready: bool,
    /// Nodes come up with this much CPU, whatever their type says.
    pub(crate) cpu_of_nodes: Option<&'static str>,
    /// kube-scheduler does nothing.
    pub(crate) scheduler_is_away: bool,
    /// Pods of these apps find no node: kube-scheduler refuses them for a reason that nobody foresees.
    pub(crate) refused_apps: BTreeSet<String>,
    /// Called after every effect: a law that must hold.
    pub(crate) checks: Vec<fn(&Self)>,
    types: Vec<InstanceType>,
    agenda: BTreeMap<(Timestamp, u64), Todo>,
    version: u64,
    created: u64,
    scheduling: bool,
    restarts: u64,
}

fn engine(settings: Settings, seed: u64, now: Timestamp) -> Engine {
    let deciders: Vec<Box<dyn Decider>> = vec![
        Box::new(ProvisioningDecider::new()),
        Box::new(DisruptionDecider::new()),
    ];
    Engine::new(deciders, settings, well_known(), seed, now)
}

pub(crate) const START: i64 = 1_700_000_000;

impl SmallWorld {
    /// A cluster with one pool `default` and these instance types. The engine leads and has seen everything.
    pub(crate) fn new(types: Vec<InstanceType>, settings: Settings) -> Self {
        let now = Timestamp::from_second(START).unwrap();
        let mut world = Self {
            engine: engine(settings, 7, now),
            now,
            objects: BTreeMap::new(),
            events: Vec::new(),
            records: Vec::new(),
            effects: Vec::new(),
            boot_ms: 20_000,
            create_ms: 0,
            refuse_claims: 0,
            no_capacity: false,
            never_ready: false,
            cpu_of_nodes: None,
            scheduler_is_away: false,
            refused_apps: BTreeSet::new(),
            checks: Vec::new(),
            types,
            agenda: BTreeMap::new(),
            version: 0,
            created: 0,
            scheduling: false,
            restarts: 0,
        };
        world.node_class();
        world.pool("default", json!({}));
        world.engine.apply(EngineInput::Synced, now);
        world.engine.apply(EngineInput::Leading(true), now);
        world
    }

    /// Ordinary types: 2, 4 and 8 CPUs for 100, 200 and 400 milli-dollars an hour, on demand, in two zones.
    pub(crate) fn ordinary() -> Self {
        Self::new(
            vec![
                instance_type("small", 2, &[("on-demand", 100)]),
                instance_type("medium", 4, &[("on-demand", 200)]),
                instance_type("large", 8, &[("on-demand", 400)]),
            ],
            Settings::default(),
        )
    }

    /// The process is killed and started again: memory is lost, objects stay.
    pub(crate) fn restart(&mut self) {
        self.restarts += 1;
        self.restart_with(7 + self.restarts);
    }

    /// The same, with this seed.
    pub(crate) fn restart_with(&mut self, seed: u64) {
        self.engine = engine(self.engine.settings().clone(), seed, self.now);
        self.node_class();
        for ((kind, name), object) in self.objects.clone() {
            self.put(kind, &name, object);
        }
        self.engine.apply(EngineInput::Synced, self.now);
        self.engine.apply(EngineInput::Leading(true), self.now);
    }

    fn node_class(&mut self) {
        let class = NodeClassObject::new(
            NodeClassKey::new("karpenter.kwok.sh", "KWOKNodeClass", "default"),
            json!({ "metadata": { "name": "default", "resourceVersion": "1" } }),
        );
        self.engine.apply(
            EngineInput::News(mortise_state::resource_kinds::ObjectEvent::Applied(
                mortise_state::resource_kinds::Object::from(class.clone()),
                mortise_state::resource_kinds::EventSource::Watch,
            )),
            self.now,
        );
        self.resolve(&class);
    }

    fn resolve(&mut self, class: &NodeClassObject) {
        let resolved = ResolvedNodeClass {
            status: None,
            annotations: BTreeMap::new(),
            finalizer: None,
            instance_types: self.types.clone(),
            again_ms: None,
        };
        let outcome = Outcome {
            effect: Arc::new(Effect::Resolve(class.clone())),
            result: Ok(EffectOutput::Resolved(Arc::new(resolved))),
        };
        let (decider, term) = (DeciderId::NodeClass, self.engine.term());
        self.engine.apply(
            EngineInput::Outcome {
                decider,
                term,
                outcome,
            },
            self.now,
        );
    }

    /// The cloud offers other types from now on.
    pub(crate) fn offer(&mut self, types: Vec<InstanceType>) {
        self.types = types;
        let key = NodeClassKey::new("karpenter.kwok.sh", "KWOKNodeClass", "default");
        self.resolve(&NodeClassObject::new(key, json!({})));
    }

    pub(crate) fn types(&self) -> &[InstanceType] {
        &self.types
    }

    /// Lets `ms` pass.
    pub(crate) fn run(&mut self, ms: i64) {
        let end = after(self.now, ms);
        for turns in 0.. {
            assert!(turns < 1_000_000, "the world does not come to rest");
            let turn = self.engine.turn(self.now, 1, &|| false);
            let idle = turn.orders.is_empty() && turn.records.is_empty();
            self.records.extend(turn.records);
            for order in turn.orders {
                self.carry_out(order);
            }
            if !idle || self.engine.due(self.now).is_some() {
                continue;
            }
            let wake = self.engine.next_wake();
            let todo = self.agenda.keys().next().map(|(at, _)| *at);
            let next = wake.into_iter().chain(todo).min();
            let Some(next) = next.filter(|next| *next <= end) else {
                break;
            };
            self.now = self.now.max(next);
            if let Some((at, key)) = self.agenda.keys().next().copied()
                && at <= self.now
                && let Some(todo) = self.agenda.remove(&(at, key))
            {
                self.do_it(&todo);
            }
        }
        self.now = end;
    }

    pub(crate) fn later(&mut self, ms: i64, todo: Todo) {
        self.created += 1;
        self.agenda
            .insert((after(self.now, ms), self.created), todo);
    }

    /// Names of objects of a kind.
    pub(crate) fn names(&self, kind: &str) -> Vec<String> {
        let all = self.objects.keys().filter(|(of, _)| *of == kind);
        all.map(|(_, name)| name.clone()).collect()
    }

    pub(crate) fn get(&self, kind: &'static str, name: &str) -> Option<&Value> {
        self.objects.get(&(kind, name.to_owned()))
    }

    /// Pods that are bound, by Node.
    pub(crate) fn bound(&self) -> BTreeMap<String, BTreeSet<String>> {
        let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for ((kind, name), object) in &self.objects {
            if *kind == "Pod"
                && let Some(node) = object.pointer("/spec/nodeName").and_then(Value::as_str)
            {
                all.entry(node.to_owned()).or_default().insert(name.clone());
            }
        }
        all
    }

    pub(crate) fn pending(&self) -> usize {
        self.names("Pod").len() - self.bound().values().map(BTreeSet::len).sum::<usize>()
    }

    /// Instance types of the Nodes, sorted.
    pub(crate) fn node_types(&self) -> Vec<String> {
        let label = "/metadata/labels/node.kubernetes.io~1instance-type";
        let mut all: Vec<String> = self
            .objects
            .iter()
            .filter(|((kind, _), _)| *kind == "Node")
            .map(|(_, node)| {
                node.pointer(label)
                    .and_then(Value::as_str)
                    .unwrap_or("?")
                    .to_owned()
            })
            .collect();
        all.sort();
        all
    }

    /// Price of all Nodes per hour, in micro-dollars.
    pub(crate) fn bill(&self) -> i64 {
        self.objects
            .iter()
            .filter(|((kind, _), _)| *kind == "Node")
            .map(|(_, node)| self.price_of(node))
            .sum()
    }

    pub(crate) fn price_of(&self, node: &Value) -> i64 {
        let label = |key: &str| node["metadata"]["labels"][key].as_str().unwrap_or_default();
        let name = label("node.kubernetes.io/instance-type");
        let found = self.types.iter().find(|each| *each.name == *name);
        found
            .and_then(|each| {
                each.offerings.iter().find(|offering| {
                    *offering.zone == *label("topology.kubernetes.io/zone")
                        && offering.capacity_type.as_str() == label("karpenter.sh/capacity-type")
                })
            })
            .and_then(|offering| offering.price)
            .map_or(0, |price| price.0)
    }

    pub(crate) fn events_of(&self, reason: &str) -> Vec<&Event> {
        self.events
            .iter()
            .filter(|event| event.reason == reason)
            .collect()
    }

    pub(crate) fn records_of(&self, verdict: Verdict) -> Vec<&Record> {
        let all = self.records.iter();
        all.filter(|record| record.verdict == verdict).collect()
    }

    /// When claims were created, from the start of the world.
    pub(crate) fn claim_times(&self) -> Vec<i64> {
        let start = Timestamp::from_second(START).unwrap();
        let claims = self
            .effects
            .iter()
            .filter(|(_, effect)| matches!(&**effect, Effect::CreateClaim(_)));
        claims
            .map(|(at, _)| at.as_millisecond() - start.as_millisecond())
            .collect()
    }
}
