//! Events for users: bounded and never blocking. Repeated events are dropped, and floods are rate-limited.

use std::collections::{BTreeMap, VecDeque};
use std::hash::BuildHasher as _;
use std::sync::Arc;

use foldhash::fast::FixedState;
use jiff::Timestamp;
use kube::api::PostParams;
use kube::core::Request as Build;
use mortise_apis::names::ObjectRef;
use mortise_engine::effect::Event;
use mortise_state::snapshot::Snapshot;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::api::ApiWriter;
use crate::client::error_class;
use crate::client::token_bucket::TokenBucket;
use crate::notifications::Notifications;
use crate::service_state::ServiceState;

/// Capacity of the event queue. At 25 per second these are 40 s; older events are not useful.
const QUEUE: usize = 1024;
/// Events remembered so as not to repeat them. 20,000 pods get one each in a large outage, and the rate limit cuts most.
const REMEMBERED: usize = 8192;
/// Longest message that the API server takes.
const MESSAGE: usize = 1024;
/// Source component, so that alerts written for Karpenter go on matching.
const COMPONENT: &str = "karpenter";

/// Takes events and sends them in the background.
#[derive(Clone, Debug)]
pub(crate) struct Events {
    queue: mpsc::Sender<Event>,
    shared: Arc<ServiceState>,
}

impl Events {
    /// The sending half, and the task that must be run.
    pub(crate) fn new(
        api: ApiWriter,
        shared: Arc<ServiceState>,
        notifications: Option<Notifications>,
    ) -> (Self, impl Future<Output = ()> + Send) {
        let (queue, waiting) = mpsc::channel(QUEUE);
        let task = run(waiting, api, Arc::clone(&shared), notifications);
        (Self { queue, shared }, task)
    }

    /// Hands an event over, or drops it when too many wait.
    pub(crate) fn send(&self, event: Event) {
        // A pod that stands for a request has no object that an event could be about; the conditions of the request say how it is.
        if let ObjectRef::Pod(pod) = &event.target
            && let Some(pod) = self.shared.snapshot().pods.get(pod)
            && pod.requested.is_some()
        {
            return;
        }
        if self.queue.try_send(event).is_err() {
            self.shared.metrics.effects.event_dropped("queue_full");
        }
        self.shared
            .metrics
            .effects
            .events_queued(self.queue.max_capacity() - self.queue.capacity());
    }
}

async fn run(
    mut waiting: mpsc::Receiver<Event>,
    api: ApiWriter,
    shared: Arc<ServiceState>,
    notifications: Option<Notifications>,
) {
    let mut recent = EventDeduper::default();
    let limits = EventRateLimits {
        all: TokenBucket::new(25.0, 100),
        nominated: TokenBucket::new(5.0, 10),
    };
    let instance = super::hostname();
    while let Some(event) = waiting.recv().await {
        shared.metrics.effects.events_queued(waiting.len());
        let now = shared.now();
        if !recent.is_new(&event, now) {
            continue;
        }
        if let Some(notifications) = &notifications {
            notifications.offer(&event, now);
        }
        if !limits.allow(&event) {
            shared.metrics.effects.event_dropped("rate_limit");
            continue;
        }
        let (namespace, body) = body(&event, &shared.snapshot(), now, &instance);
        let path = format!("/api/v1/namespaces/{namespace}/events");
        let request =
            match Build::new(path).create(&PostParams::default(), body.to_string().into_bytes()) {
                Ok(request) => request,
                Err(error) => {
                    tracing::warn!(reason = &*event.reason, %error, "failed to encode event");
                    continue;
                }
            };
        match api.send(request).await {
            Ok(_) => shared.metrics.effects.event_sent(),
            Err(error) => {
                shared.metrics.effects.event_dropped("refused");
                tracing::debug!(reason = &*event.reason, error = %error_class::message(&error), "failed to write event");
            }
        }
    }
}

struct EventRateLimits {
    all: TokenBucket,
    /// Karpenter's limit for the one event that occurs in thousands.
    nominated: TokenBucket,
}

impl EventRateLimits {
    fn allow(&self, event: &Event) -> bool {
        (event.reason != "Nominated" || self.nominated.try_acquire()) && self.all.try_acquire()
    }
}

/// Stands for object, reason and what else makes an event another one: thousands are remembered, and texts are long.
type EventKey = u64;

/// Which events were sent lately.
#[derive(Debug, Default)]
struct EventDeduper {
    until: BTreeMap<EventKey, Timestamp>,
    order: VecDeque<EventKey>,
}

impl EventDeduper {
    /// `false` for an event that was sent within its time; else it counts as sent now.
    fn is_new(&mut self, event: &Event, now: Timestamp) -> bool {
        let what = event.dedupe_key.as_ref().unwrap_or(&event.message);
        let key = FixedState::with_seed(9).hash_one((&event.target, &event.reason, what));
        if self.until.get(&key).is_some_and(|until| *until > now) {
            return false;
        }
        let until = mortise_apis::values::after(now, event.dedupe_ms);
        if self.until.insert(key, until).is_none() {
            self.order.push_back(key);
        }
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.until.remove(&oldest);
        }
        true
    }
}

fn body(event: &Event, snapshot: &Snapshot, now: Timestamp, instance: &str) -> (String, Value) {
    let (target, name) = (&event.target, event.target.name());
    let mut involved =
        json!({ "kind": target.kind(), "apiVersion": api_version(target, snapshot), "name": name });
    if let Some(namespace) = target.namespace() {
        involved["namespace"] = Value::String(namespace.to_owned());
    }
    // Where events about objects without a namespace are.
    let namespace = target.namespace().unwrap_or("default").to_owned();
    if let Some(uid) = uid(&event.target, snapshot) {
        involved["uid"] = Value::String(uid);
    }
    let time = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let message: String = event.message.chars().take(MESSAGE).collect();
    let unique = u64::try_from(now.as_nanosecond()).unwrap_or_default()
        ^ (crate::client::backoff::random() & 0xFFFF);
    let body = json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": { "name": format!("{name}.{unique:x}"), "namespace": namespace },
        "involvedObject": involved,
        "reason": event.reason,
        "message": message,
        "type": if event.warning { "Warning" } else { "Normal" },
        "source": { "component": COMPONENT },
        "firstTimestamp": time,
        "lastTimestamp": time,
        "count": 1,
        "reportingComponent": COMPONENT,
        "reportingInstance": instance,
    });
    (namespace, body)
}

fn api_version(target: &ObjectRef, snapshot: &Snapshot) -> String {
    match target {
        ObjectRef::Node(_) | ObjectRef::Pod(_) => "v1".to_owned(),
        ObjectRef::Claim(_) | ObjectRef::Pool(_) => "karpenter.sh/v1".to_owned(),
        ObjectRef::Overlay(_) => "karpenter.sh/v1alpha1".to_owned(),
        ObjectRef::Policy(_) => "mortise.sh/v1alpha1".to_owned(),
        ObjectRef::Buffer(_) => "autoscaling.x-k8s.io/v1beta1".to_owned(),
        ObjectRef::Request(_) => "autoscaling.x-k8s.io/v1".to_owned(),
        ObjectRef::Deployment(_) => "apps/v1".to_owned(),
        ObjectRef::NodeClass(key) => {
            let known = snapshot
                .node_classes
                .get(key)
                .and_then(|class| class.object.get("apiVersion"))
                .and_then(Value::as_str);
            known.map_or_else(|| key.group.to_string(), str::to_owned)
        }
    }
}

fn uid(target: &ObjectRef, snapshot: &Snapshot) -> Option<String> {
    match target {
        ObjectRef::Pod(key) => snapshot.pods.get(key).map(|pod| pod.uid.to_string()),
        ObjectRef::Node(name) => snapshot.node(name)?.node.as_ref()?.metadata.uid.clone(),
        ObjectRef::Claim(name) => snapshot.claims.get(name)?.metadata.uid.clone(),
        ObjectRef::Pool(name) => snapshot.pools.get(name)?.metadata.uid.clone(),
        ObjectRef::Overlay(name) => snapshot.overlays.get(name)?.metadata.uid.clone(),
        ObjectRef::Policy(name) => snapshot.policies.get(name)?.metadata.uid.clone(),
        ObjectRef::Buffer(key) => snapshot.buffers.get(key)?.metadata.uid.clone(),
        ObjectRef::Request(key) => snapshot.gangs.requests.get(key)?.metadata.uid.clone(),
        // No event is sent about one.
        ObjectRef::Deployment(_) => None,
        ObjectRef::NodeClass(key) => snapshot
            .node_classes
            .get(key)?
            .object
            .pointer("/metadata/uid")?
            .as_str()
            .map(str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use mortise_apis::names::PodKey;
    use mortise_engine::decider_id::DeciderId;
    use mortise_engine::events::events_of;
    use mortise_engine::record::{Record, Verdict, Visibility};
    use mortise_planning::reason::Reason;

    use super::*;

    fn some_event() -> Event {
        let pod = PodKey::new("a", "p");
        let record = Record {
            at: Timestamp::UNIX_EPOCH,
            decider: DeciderId::Termination,
            subject: ObjectRef::Node("n".into()),
            verdict: Verdict::Blocked,
            reasons: vec![
                Reason::MultiplePdbs {
                    pod: pod.clone(),
                    pdbs: Vec::new(),
                },
                Reason::Eviction { pod },
            ],
            visibility: Visibility::Event,
            related: Vec::new(),
            generation: 1,
        };
        events_of(&record).remove(0)
    }

    #[test]
    fn the_same_event_is_sent_once_in_its_time() {
        let mut recent = EventDeduper::default();
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        let event = |message: &str| {
            let mut event = some_event();
            event.message = message.to_owned();
            event
        };
        assert!(recent.is_new(&event("a"), at(0)));
        assert!(!recent.is_new(&event("a"), at(119)));
        assert!(
            recent.is_new(&event("b"), at(1)),
            "another message is another event"
        );
        assert!(recent.is_new(&event("a"), at(120)));
        let keyed = |message: &str| {
            let mut keyed = event(message);
            keyed.dedupe_key = Some("k".to_owned());
            keyed
        };
        assert!(recent.is_new(&keyed("x"), at(0)));
        assert!(!recent.is_new(&keyed("y"), at(1)), "the key decides");
        for n in 0..2 * REMEMBERED {
            recent.is_new(&event(&n.to_string()), at(0));
        }
        assert!(recent.until.len() <= REMEMBERED && recent.order.len() <= REMEMBERED);
    }

    #[test]
    fn the_body_is_an_event_of_the_component() {
        let now: Timestamp = "2026-01-02T03:04:05.678Z".parse().unwrap();
        let snapshot =
            mortise_state::index::Index::new(mortise_apis::labels::WellKnown::core(), true, now)
                .freeze(now);
        let mut event = some_event();
        event.target = ObjectRef::Pod(PodKey::new("a", "p"));
        event.warning = true;
        event.message = "x".repeat(3000);
        let (namespace, body) = body(&event, &snapshot, now, "host");
        assert_eq!(namespace, "a");
        assert_eq!(body["source"]["component"], "karpenter");
        assert_eq!(body["type"], "Warning");
        assert_eq!(body["lastTimestamp"], "2026-01-02T03:04:05Z");
        assert_eq!(
            body["involvedObject"],
            json!({ "kind": "Pod", "apiVersion": "v1", "name": "p", "namespace": "a" })
        );
        assert_eq!(body["message"].as_str().map(str::len), Some(1024));
    }
}
