//! A small world for tests of deciders: objects as an API server keeps them, machines as a cloud keeps them, and virtual
//! time. Effects are carried out on these, and the answers are fed back to a real engine.

mod chaos;
mod coexistence;
mod opening;
mod outside;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    ClaimConditionsDecider, DisruptionDecider, ExpirationDecider, GarbageCollectionDecider,
    InterruptionDecider, LifecycleDecider, NodeClassDecider, NodeOverlayDecider, NodePoolDecider,
    RepairDecider, StaticCapacityDecider, TerminationDecider,
};
use mortise_apis::labels::WellKnown;
use mortise_apis::names::{NodeClassKey, ObjectRef};
use mortise_apis::node_class::served::ServedNodeClasses;
use mortise_apis::node_class::{NodeClassKind, NodeClassObject};
use mortise_apis::values::after;
use mortise_cloudprovider::{CloudError, LaunchError};
use mortise_engine::decider::Decider;
use mortise_engine::effect::{EffectError, Event};
use mortise_engine::engine::{Engine, EngineInput};
use mortise_engine::record::{Record, Verdict};
use mortise_planning::settings::Settings;
use mortise_state::resource_kinds::{EventSource, Object, ObjectEvent, ObjectKey, ObjectKind};
use mortise_state::snapshot::Snapshot;

/// Group and kind of the node classes of these tests.
pub(super) const GROUP: &str = "fake.test";
pub(super) const KIND: &str = "FakeNodeClass";
/// How long a pod takes to end once it is asked to.
const POD_EXIT_MS: i64 = 1_000;
/// More steps than any story needs at one moment: beyond, two deciders wake each other for ever.
const MAX_STEPS: usize = 2_000;

#[derive(Clone, Debug)]
pub(super) struct TestInstance {
    pub(super) claim: String,
    uid: String,
    created: Timestamp,
    ends: Option<Timestamp>,
}

pub(super) struct TestCluster {
    pub(super) engine: Engine,
    pub(super) now: Timestamp,
    pub(super) settings: Settings,
    /// By `Kind/name` or `Kind/namespace/name`.
    objects: BTreeMap<String, Value>,
    count: u64,
    pub(super) machines: BTreeMap<String, TestInstance>,
    /// Machines ever made: ids are never used twice.
    launched: usize,
    /// Answers of the next launches; a machine when empty.
    pub(super) launch_errors: VecDeque<LaunchError>,
    /// Pods whose eviction a budget refuses, and pods that never end.
    pub(super) blocked: BTreeSet<String>,
    pub(super) stuck: BTreeSet<String>,
    /// Other answers to evictions, by pod.
    pub(super) eviction_errors: BTreeMap<String, EffectError>,
    /// What the cloud says instead of ending a machine, and how long it takes to end one.
    pub(super) terminate_error: Option<CloudError>,
    pub(super) machine_exit_ms: i64,
    /// Objects that an admission webhook does not let anybody change.
    pub(super) refused_writes: BTreeSet<String>,
    /// What the provider says about drift, by claim.
    pub(super) drifted: BTreeMap<String, String>,
    /// Pods on their way out.
    leaving: BTreeMap<String, Timestamp>,
    /// When the provider wants to be asked again for its classes.
    pub(super) again_ms: Option<i64>,
    /// Version and value of the hash that the provider makes of classes.
    pub(super) class_hash: Option<[&'static str; 2]>,
    /// The provider does not answer when it is asked for its machines; another one does.
    pub(super) mute: bool,
    /// Machines that lists leave out.
    pub(super) unlisted: BTreeSet<String>,
    /// The process dies right after an effect with this label was carried out, before its outcome arrives.
    pub(super) die_after: Option<&'static str>,
    /// A label that an admission webhook takes off every Node.
    pub(super) vetoed_label: Option<&'static str>,
    /// Patches of this many objects fail with a conflict first.
    pub(super) conflicts: usize,
    /// So many claims are not created: a policy denies them.
    pub(super) refused_creations: usize,
    /// Every effect but events: label and target.
    pub(super) done: Vec<String>,
    pub(super) events: Vec<Event>,
    pub(super) records: Vec<Record>,
    pub(super) acknowledged: Vec<String>,
    /// What must never happen and did.
    pub(super) violations: Vec<String>,
}

/// All but those that place pods; disruption only where pools have replicas, whose drift it replaces.
fn deciders(settings: &Settings) -> Vec<Box<dyn Decider>> {
    let mut all: Vec<Box<dyn Decider>> = vec![
        Box::new(NodeClassDecider::new()),
        Box::new(NodePoolDecider::new()),
        Box::new(NodeOverlayDecider::default()),
        Box::new(InterruptionDecider::new()),
        Box::new(LifecycleDecider::new()),
        Box::new(TerminationDecider::new()),
        Box::new(ClaimConditionsDecider::new()),
        Box::new(ExpirationDecider::new()),
        Box::new(GarbageCollectionDecider::new()),
        Box::new(RepairDecider::new()),
        Box::new(StaticCapacityDecider::new()),
    ];
    if settings.gates.static_capacity {
        all.push(Box::new(DisruptionDecider::new()));
    }
    all
}

/// Kinds of node classes that these tests serve.
pub(super) fn served() -> ServedNodeClasses {
    ours()
}

fn ours() -> ServedNodeClasses {
    ServedNodeClasses::only([NodeClassKind {
        group: GROUP,
        version: "v1",
        kind: KIND,
        plural: "fakenodeclasses",
    }])
}

fn engine(settings: &Settings, now: Timestamp) -> Engine {
    Engine::new(
        deciders(settings),
        settings.clone(),
        WellKnown::core(),
        1,
        now,
    )
    .serving(ours())
}

impl TestCluster {
    /// A world with one node class and one pool, both called `default`, ready.
    pub(super) fn new() -> Self {
        Self::with(Settings::default())
    }

    /// The same with other settings.
    pub(super) fn with(settings: Settings) -> Self {
        let mut world = Self::bare(settings);
        world.put(&json!({ "kind": KIND, "metadata": { "name": "default" } }));
        world.put(&json!({ "kind": "NodePool", "metadata": { "name": "default" }, "spec": {
            "disruption": { "consolidateAfter": "30s" },
            "template": { "spec": { "nodeClassRef": { "group": GROUP, "kind": KIND, "name": "default" } } },
        }}));
        world.settle();
        world
    }

    /// Nodes and conditions are written at once, so that each story shows one thing at a time.
    pub(super) fn bare(settings: Settings) -> Self {
        let settings = Settings {
            join_grace_ms: 0,
            held_grace_ms: 0,
            condition_grace_ms: 0,
            reason_grace_ms: 0,
            end_grace_ms: 0,
            ..settings
        };
        let now: Timestamp = "2030-01-01T00:00:00Z".parse().unwrap();
        let mut world = Self {
            engine: engine(&settings, now),
            now,
            settings,
            objects: BTreeMap::new(),
            count: 0,
            machines: BTreeMap::new(),
            launched: 0,
            launch_errors: VecDeque::new(),
            blocked: BTreeSet::new(),
            stuck: BTreeSet::new(),
            eviction_errors: BTreeMap::new(),
            terminate_error: None,
            machine_exit_ms: 3_000,
            refused_writes: BTreeSet::new(),
            drifted: BTreeMap::new(),
            leaving: BTreeMap::new(),
            again_ms: None,
            class_hash: None,
            mute: false,
            unlisted: BTreeSet::new(),
            die_after: None,
            vetoed_label: None,
            conflicts: 0,
            refused_creations: 0,
            done: Vec::new(),
            events: Vec::new(),
            records: Vec::new(),
            acknowledged: Vec::new(),
            violations: Vec::new(),
        };
        world.restart();
        world
    }

    /// A new process on the same objects.
    pub(super) fn restart(&mut self) {
        self.engine = engine(&self.settings, self.now);
        let mut lists: BTreeMap<ObjectKind, BTreeSet<ObjectKey>> = BTreeMap::new();
        for (key, value) in &self.objects {
            let object = object(key, value);
            let key = object.key();
            lists.entry(key.kind()).or_default().insert(key);
            self.engine.apply(
                EngineInput::News(ObjectEvent::Applied(object, EventSource::Watch)),
                self.now,
            );
        }
        let version = Some(self.count);
        for (kind, keys) in lists {
            let list = ObjectEvent::Listed {
                kind,
                keys,
                version,
            };
            self.engine.apply(EngineInput::News(list), self.now);
        }
        self.engine.apply(EngineInput::Synced, self.now);
        self.engine.apply(EngineInput::Leading(true), self.now);
    }

    pub(super) fn snapshot(&mut self) -> Arc<Snapshot> {
        self.engine.snapshot(self.now)
    }

    // Objects.

    /// Creates or replaces an object, as a user or another controller would.
    pub(super) fn put(&mut self, value: &Value) {
        let mut value = value.clone();
        self.count += 1;
        let (uid, created) = (format!("uid-{}", self.count), self.now.to_string());
        let meta = value["metadata"].as_object_mut().unwrap();
        meta.entry("uid").or_insert_with(|| uid.into());
        meta.entry("creationTimestamp")
            .or_insert_with(|| created.into());
        meta.entry("generation").or_insert_with(|| 1.into());
        let key = key_of(&value);
        self.store(key, value, EventSource::Watch);
    }

    fn store(&mut self, key: String, mut value: Value, source: EventSource) {
        self.count += 1;
        value["metadata"]["resourceVersion"] = self.count.to_string().into();
        if let (Some(label), Some(labels)) = (
            self.vetoed_label,
            value["metadata"]["labels"].as_object_mut(),
        ) {
            labels.remove(label);
        }
        let over = value["metadata"].get("deletionTimestamp").is_some()
            && no_finalizers(&value)
            && !key.starts_with("Pod/");
        if over {
            self.gone(&key);
            return;
        }
        let news = ObjectEvent::Applied(object(&key, &value), source);
        self.objects.insert(key, value);
        self.engine.apply(EngineInput::News(news), self.now);
    }

    /// Hands news to the engine that no object of this world stands for.
    pub(super) fn tell(&mut self, news: ObjectEvent) {
        self.engine.apply(EngineInput::News(news), self.now);
    }

    fn gone(&mut self, key: &str) {
        if let Some(value) = self.objects.remove(key) {
            self.engine.apply(
                EngineInput::News(ObjectEvent::Deleted(object(key, &value).key(), None)),
                self.now,
            );
        }
    }

    /// An object by `Kind/name`; `Null` when it is not there.
    pub(super) fn get(&self, key: &str) -> &Value {
        self.objects.get(key).unwrap_or(&Value::Null)
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.objects.contains_key(key)
    }

    /// Changes an object in place, as somebody else would.
    pub(super) fn edit(&mut self, key: &str, merge: &Value) {
        let mut value = self.objects[key].clone();
        merge_into(&mut value, merge);
        self.store(key.to_owned(), value, EventSource::Watch);
    }

    pub(super) fn delete(&mut self, key: &str) {
        self.mark_deleted(key, None, EventSource::Watch);
    }

    fn mark_deleted(&mut self, key: &str, grace_ms: Option<i64>, source: EventSource) {
        let Some(mut value) = self.objects.get(key).cloned() else {
            return;
        };
        let at = Timestamp::from_second(after(self.now, grace_ms.unwrap_or(0)).as_second())
            .unwrap()
            .to_string();
        let meta = value["metadata"].as_object_mut().unwrap();
        if meta.get("deletionTimestamp").is_none() {
            meta["generation"] = (meta["generation"].as_i64().unwrap() + 1).into();
        } else if grace_ms.is_none() {
            return;
        }
        meta.insert("deletionTimestamp".to_owned(), at.into());
        if key.starts_with("Pod/") && !self.stuck.contains(key) {
            self.leaving
                .insert(key.to_owned(), after(self.now, POD_EXIT_MS));
        }
        self.store(key.to_owned(), value, source);
    }

    /// The condition of a claim: `(status, reason)`.
    pub(super) fn condition(&self, claim: &str, type_: &str) -> Option<(String, String)> {
        let list = self
            .get(&format!("NodeClaim/{claim}"))
            .pointer("/status/conditions")?
            .as_array()?;
        let found = list.iter().find(|each| each["type"] == type_)?;
        Some((
            found["status"].as_str()?.to_owned(),
            found["reason"].as_str()?.to_owned(),
        ))
    }

    pub(super) fn is_true(&self, claim: &str, type_: &str) -> bool {
        self.condition(claim, type_)
            .is_some_and(|(status, _)| status == "True")
    }

    pub(super) fn event(&self, reason: &str) -> Option<&Event> {
        self.events.iter().find(|event| event.reason == reason)
    }

    pub(super) fn verdicts(&self, target: &str) -> Vec<Verdict> {
        self.records
            .iter()
            .filter(|record| record.subject.to_string() == target)
            .map(|record| record.verdict)
            .collect()
    }

    // Time and effects.

    /// Lets everything happen that happens now.
    pub(super) fn settle(&mut self) {
        loop {
            let turn = self.engine.turn(self.now, MAX_STEPS, &|| false);
            assert_eq!(
                self.engine.due(self.now),
                None,
                "deciders wake each other for ever"
            );
            self.records.extend(turn.records);
            if turn.orders.is_empty() {
                return;
            }
            for order in turn.orders {
                let result = self.carry_out(&order.effect);
                if self
                    .die_after
                    .is_some_and(|label| label == order.effect.label())
                {
                    self.die_after = None;
                    self.restart();
                    return;
                }
                let outcome = mortise_engine::effect::Outcome {
                    effect: order.effect,
                    result,
                };
                self.engine.apply(
                    EngineInput::Outcome {
                        decider: order.decider,
                        term: order.term,
                        outcome,
                    },
                    self.now,
                );
            }
        }
    }

    /// Lets time pass.
    pub(super) fn pass(&mut self, ms: i64) {
        let end = after(self.now, ms);
        self.settle();
        loop {
            let next = self
                .engine
                .next_wake()
                .into_iter()
                .chain(self.leaving.values().copied())
                .min();
            let next = next
                .map_or(end, |next| next.max(after(self.now, 1)))
                .min(end);
            self.now = next;
            self.machines
                .retain(|_, machine| machine.ends.is_none_or(|ends| ends > next));
            let left: Vec<String> = self
                .leaving
                .iter()
                .filter(|(_, at)| **at <= next)
                .map(|(key, _)| key.clone())
                .collect();
            for key in left {
                self.leaving.remove(&key);
                self.gone(&key);
            }
            self.settle();
            if next == end {
                return;
            }
        }
    }
}

fn no_finalizers(value: &Value) -> bool {
    value["metadata"]["finalizers"]
        .as_array()
        .is_none_or(Vec::is_empty)
}

fn key_of(value: &Value) -> String {
    let name = value["metadata"]["name"].as_str().unwrap();
    let kind = value["kind"].as_str().unwrap();
    value["metadata"]["namespace"].as_str().map_or_else(
        || format!("{kind}/{name}"),
        |namespace| format!("{kind}/{namespace}/{name}"),
    )
}

fn ref_key(target: &ObjectRef) -> String {
    match target {
        ObjectRef::Node(name) => format!("Node/{name}"),
        ObjectRef::Claim(name) => format!("NodeClaim/{name}"),
        ObjectRef::Pool(name) => format!("NodePool/{name}"),
        ObjectRef::NodeClass(key) => format!("{}/{}", key.kind, key.name),
        ObjectRef::Overlay(name) => format!("NodeOverlay/{name}"),
        ObjectRef::Pod(key) => format!("Pod/{key}"),
    }
}

fn object(key: &str, value: &Value) -> Object {
    let kind = key.split('/').next().unwrap();
    let value = value.clone();
    match kind {
        "NodeClaim" => Object::Claim(serde_json::from_value(value).unwrap()),
        "NodePool" => Object::Pool(serde_json::from_value(value).unwrap()),
        "Node" => Object::Node(serde_json::from_value(value).unwrap()),
        "Pod" => Object::Pod(serde_json::from_value(value).unwrap()),
        "PodDisruptionBudget" => Object::Pdb(serde_json::from_value(value).unwrap()),
        "NodeOverlay" => Object::Overlay(serde_json::from_value(value).unwrap()),
        "ResourceSlice" => Object::ResourceSlice(serde_json::from_value(value).unwrap()),
        "VolumeAttachment" => Object::Attachment(serde_json::from_value(value).unwrap()),
        "PersistentVolumeClaim" => Object::VolumeClaim(serde_json::from_value(value).unwrap()),
        KIND => {
            let name = value["metadata"]["name"].as_str().unwrap();
            Object::from(NodeClassObject::new(
                NodeClassKey::new(GROUP, KIND, name),
                value,
            ))
        }
        other => panic!("no kind {other}"),
    }
}

/// JSON merge patch (RFC 7386).
pub(super) fn merge_into(value: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *value = patch.clone();
        return;
    };
    if !value.is_object() {
        *value = json!({});
    }
    let there = value.as_object_mut().unwrap();
    for (name, wanted) in fields {
        if wanted.is_null() {
            there.remove(name);
        } else {
            merge_into(there.entry(name.clone()).or_insert(Value::Null), wanted);
        }
    }
}
