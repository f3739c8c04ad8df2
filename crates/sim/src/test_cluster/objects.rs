//! Objects of the test cluster, by text keys (`Kind/name` or `Kind/namespace/name`), and what the service said and did.

use std::sync::LazyLock;

use jiff::Timestamp;
use mortise_apis::names::NamespacedName;
use mortise_engine::effect::{Effect, Event};
use mortise_engine::engine::EngineInput;
use mortise_engine::freshness::WatchState;
use mortise_engine::record::{Record, Verdict};
use mortise_state::resource_kinds::{
    EventSource, ObjectEvent, ObjectKey, ObjectKind, ResourceKind,
};
use serde_json::{Value, json};

use super::{NODE_CLASS, TestCluster};
use crate::clock::StoreEvent;
use crate::cluster::delete_object;

/// Applies a merge patch (RFC 7396): `null` removes.
pub fn merge_into(value: &mut Value, patch: &Value) {
    json_patch::merge(value, patch);
}

/// The key of an object, from its text.
pub(super) fn key(text: &str) -> ObjectKey {
    static KINDS: LazyLock<Vec<ResourceKind>> = LazyLock::new(|| ResourceKind::all(&[NODE_CLASS]));
    let (kind, name) = text.split_once('/').unwrap();
    let known = KINDS.iter().find(|each| each.api.unique_name() == kind);
    let known = known.unwrap_or_else(|| panic!("no such kind: {kind}"));
    let NamespacedName { namespace, name } = NamespacedName::parse(name);
    known.index.key(&namespace, &name)
}

/// The key text of an object.
fn text_of(value: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let (kind, name) = (text(&value["kind"]), text(&value["metadata"]["name"]));
    let namespace = value["metadata"]["namespace"].as_str();
    namespace.map_or_else(
        || format!("{kind}/{name}"),
        |namespace| format!("{kind}/{namespace}/{name}"),
    )
}

/// The name below the kind, with its namespace.
pub(super) fn name_of(key: &ObjectKey) -> String {
    match key {
        ObjectKey::Pod(name)
        | ObjectKey::Pdb(name)
        | ObjectKey::VolumeClaim(name)
        | ObjectKey::Deployment(name)
        | ObjectKey::PodTemplate(name)
        | ObjectKey::Buffer(name)
        | ObjectKey::Request(name) => name.to_string(),
        ObjectKey::Node(name) => name.to_string(),
        ObjectKey::Claim(name) => name.to_string(),
        ObjectKey::Pool(name) => name.to_string(),
        ObjectKey::NodeClass(class) => class.name.to_string(),
        ObjectKey::Overlay(name)
        | ObjectKey::Policy(name)
        | ObjectKey::Attachment(name)
        | ObjectKey::ResourceSlice(name) => name.to_string(),
        other => panic!("no such kind: {other:?}"),
    }
}

impl TestCluster {
    /// Creates or replaces an object, as a user or another controller does. UID and creation time are set if they are missing.
    pub fn put(&mut self, value: &Value) {
        self.insert(value);
        self.deliver();
    }

    /// The same for an object that no watch shows.
    pub fn put_unseen(&mut self, value: &Value) {
        self.insert(value);
        self.cluster.api_server.take_changes();
    }

    fn insert(&mut self, value: &Value) {
        let mut value = value.clone();
        let uid = format!("uid-{}", self.cluster.api_server.version() + 1);
        let created = self.now().to_string();
        let meta = value["metadata"].as_object_mut().unwrap();
        meta.entry("uid").or_insert_with(|| uid.into());
        meta.entry("creationTimestamp")
            .or_insert_with(|| created.into());
        meta.entry("generation").or_insert_with(|| 1.into());
        let key = key(&text_of(&value));
        self.cluster.api_server.put(key, value);
    }

    /// An object by its key text; `Null` when it does not exist.
    #[must_use]
    pub fn get(&self, text: &str) -> &Value {
        let object = self.cluster.api_server.get(&key(text));
        object.unwrap_or(&Value::Null)
    }

    /// Whether an object exists.
    #[must_use]
    pub fn has(&self, text: &str) -> bool {
        self.cluster.api_server.get(&key(text)).is_some()
    }

    /// Names of the objects of a kind, with their namespaces, sorted.
    #[must_use]
    pub fn names(&self, kind: &str) -> Vec<String> {
        let all = self.cluster.api_server.iter();
        all.filter(|(key, _)| key.kind().to_string() == kind)
            .map(|(key, _)| name_of(key))
            .collect()
    }

    /// Changes an object with a merge patch, as another client does.
    ///
    /// # Panics
    /// The object does not exist.
    pub fn edit(&mut self, text: &str, merge: &Value) {
        let written = self.cluster.api_server.patch(&key(text), merge, None);
        written.unwrap_or_else(|error| panic!("{text}: {error}"));
        self.deliver();
    }

    /// Deletes an object, as a user does, a pod without grace period. Finalizers are respected.
    pub fn delete(&mut self, text: &str) {
        drop(delete_object(key(text), None, Some(0), &mut self.cluster));
        self.deliver();
    }

    /// Removes an object regardless of its finalizers.
    pub fn erase(&mut self, text: &str) {
        self.cluster.api_server.erase(&key(text));
        self.deliver();
    }

    /// A condition that is true since now, and whose reason is its type.
    #[must_use]
    pub fn true_condition(&self, type_: &str) -> Value {
        json!({ "type": type_, "status": "True", "reason": type_, "message": "", "lastTransitionTime": self.now().to_string() })
    }

    // Watches.

    /// Delivers to the service something that no object stands for.
    pub fn deliver_event(&mut self, event: ObjectEvent) {
        let now = self.now();
        self.engine.apply(EngineInput::News(event), now);
    }

    /// Reports the state of the watch of a kind; from the first report on, the watch can be outdated.
    pub fn report_watch(&mut self, kind: ObjectKind, state: WatchState) {
        let now = self.now();
        self.engine.apply(EngineInput::Watch { kind, state }, now);
    }

    /// Delivers the changes since the last delivery to the service and to kube-scheduler.
    pub(super) fn deliver(&mut self) {
        self.deliver_except(&[]);
    }

    /// The same without the objects that the service has got as the response to its write: their events tell it nothing.
    pub(super) fn deliver_except(&mut self, returned: &[ObjectKey]) {
        loop {
            let changes = self.cluster.api_server.take_changes();
            if changes.is_empty() {
                return;
            }
            self.observe(&changes);
            for StoreEvent {
                key,
                object,
                version,
            } in changes
            {
                let event = match object.map(|value| self.cluster.readable(&key, value)) {
                    Some(_) if returned.contains(&key) => continue,
                    Some(Some(object)) => ObjectEvent::Applied(object, EventSource::Watch),
                    Some(None) => ObjectEvent::Unreadable(key),
                    None => ObjectEvent::Deleted(key, Some(version)),
                };
                self.deliver_event(event);
            }
        }
    }

    // What the service said and did.

    /// Receives an event of the service: the only place where a test cluster learns of events.
    pub(super) fn note_event(&mut self, event: &Event) {
        assert_eq!(mortise_engine::events::fault(event), None);
        self.events.push((self.now(), event.clone()));
    }

    /// Events so far, and when they were sent.
    pub fn timed_events(&self) -> impl Iterator<Item = &(Timestamp, Event)> {
        self.events.iter()
    }

    /// Events so far.
    pub fn events(&self) -> impl Iterator<Item = &Event> {
        self.events.iter().map(|(_, event)| event)
    }

    /// Events with a reason.
    #[must_use]
    pub fn events_of(&self, reason: &str) -> Vec<&Event> {
        let all = self.events();
        all.filter(|event| event.reason == reason).collect()
    }

    /// The first event with a reason.
    #[must_use]
    pub fn event(&self, reason: &str) -> Option<&Event> {
        self.events().find(|event| event.reason == reason)
    }

    /// Verdicts about an object, such as `nodeclaim/c`.
    #[must_use]
    pub fn verdicts(&self, subject: &str) -> Vec<Verdict> {
        let all = self.records.iter();
        all.filter(|record| record.subject.to_string() == subject)
            .map(|record| record.verdict)
            .collect()
    }

    /// Records with a verdict.
    #[must_use]
    pub fn records_of(&self, verdict: Verdict) -> Vec<&Record> {
        let all = self.records.iter();
        all.filter(|record| record.verdict == verdict).collect()
    }

    /// Status and reason of a condition of a claim.
    #[must_use]
    pub fn condition(&self, claim: &str, type_: &str) -> Option<(String, String)> {
        let claim = self.get(&format!("NodeClaim/{claim}"));
        let list = claim["status"]["conditions"].as_array()?;
        let found = list.iter().find(|each| each["type"] == type_)?;
        let text = |field: &str| found[field].as_str().map(str::to_owned);
        Some((text("status")?, text("reason")?))
    }

    /// Whether a condition of a claim is true.
    #[must_use]
    pub fn is_true(&self, claim: &str, type_: &str) -> bool {
        let condition = self.condition(claim, type_);
        condition.is_some_and(|(status, _)| status == "True")
    }

    /// When the creation of claims was requested, in milliseconds from the start.
    #[must_use]
    pub fn claim_times(&self) -> Vec<i64> {
        let all = self.effects.iter();
        all.filter(|(_, effect)| matches!(&**effect, Effect::CreateClaim(_)))
            .map(|(at, _)| at.as_millisecond() - self.start.as_millisecond())
            .collect()
    }

    /// Interruption notices that the service has acknowledged.
    #[must_use]
    pub fn acknowledged(&self) -> &[String] {
        &self.answers.acknowledged
    }

    /// What must never happen and did.
    #[must_use]
    pub fn violations(&self) -> &[String] {
        &self.cluster.stats.violations
    }
}
