//! A small cluster, and the extender's answers about it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::world::{World, now, pool};
use jiff::{SignedDuration, Timestamp};
use mortise_apis::names::{NodeName, PodKey};
use mortise_apis::resources::Resources;
use mortise_state::ledger::{Fence, FenceReason, LedgerOp, Nomination, NominationTarget};
use mortise_state::snapshot::Snapshot;
use mortise_webhooks::Counters;
use mortise_webhooks::extender::{ExtenderState, filter, prioritize, wire};
use serde_json::{Value, json};

/// The process around the handlers, at a moment.
pub(crate) struct At {
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) now: Timestamp,
    pub(crate) age_ms: i64,
}

impl mortise_webhooks::ClusterView for At {
    fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.snapshot)
    }

    fn age_ms(&self) -> i64 {
        self.age_ms
    }

    fn now(&self) -> Timestamp {
        self.now
    }
}

/// A cluster and the extender in it.
pub(crate) struct Stage {
    pub(crate) world: World,
    pub(crate) memory: ExtenderState,
    pub(crate) counters: Counters,
    pub(crate) later: SignedDuration,
    pub(crate) age_ms: i64,
}

impl Stage {
    /// Three machines of four CPUs with one pod of one CPU each: `web-0`, `web-1` and `web-2`.
    pub(crate) fn new() -> Self {
        let mut world = World::new();
        world.pool(&pool("web", &json!({})));
        for number in 0..3 {
            world.node("web", "m5.xlarge", number, 1);
        }
        Self {
            world,
            memory: ExtenderState::of("kube-system"),
            counters: Counters::default(),
            later: SignedDuration::ZERO,
            age_ms: 0,
        }
    }

    pub(crate) fn at(&mut self) -> At {
        At {
            snapshot: Arc::new(self.world.snapshot()),
            now: now() + self.later,
            age_ms: self.age_ms,
        }
    }

    pub(crate) fn ask(&mut self, body: &Value, real: bool) -> Value {
        let (at, body) = (self.at(), body.to_string());
        let args: wire::Args<'_> = serde_json::from_str(&body).unwrap();
        let answer = filter(&at, &self.memory, &self.counters, &args, real);
        serde_json::to_value(answer).unwrap()
    }

    /// Names that stay, and messages of those that do not.
    pub(crate) fn filter(&mut self, pod: &Value) -> (Vec<String>, BTreeMap<String, String>) {
        self.filter_of(pod, &["web-0", "web-1", "web-2"])
    }

    pub(crate) fn filter_of(
        &mut self,
        pod: &Value,
        names: &[&str],
    ) -> (Vec<String>, BTreeMap<String, String>) {
        let answer = self.ask(
            &json!({ "Pod": pod, "Nodes": null, "NodeNames": names }),
            true,
        );
        let kept = serde_json::from_value(answer["NodeNames"].clone()).unwrap();
        let failed = &answer["FailedAndUnresolvableNodes"];
        let failed: Option<BTreeMap<String, String>> =
            serde_json::from_value(failed.clone()).unwrap();
        (kept, failed.unwrap_or_default())
    }

    pub(crate) fn scores(&mut self, pod: &Value) -> BTreeMap<String, i64> {
        let at = self.at();
        let body =
            json!({ "Pod": pod, "NodeNames": ["web-0", "web-1", "web-2", "nobody"] }).to_string();
        let args: wire::Args<'_> = serde_json::from_str(&body).unwrap();
        prioritize(&at, &self.memory, &self.counters, &args)
            .into_iter()
            .map(|each| (each.host.to_owned(), each.score))
            .collect()
    }

    /// Room on a node is promised to another pod.
    pub(crate) fn promise(&mut self, uid: &str, node: &str, milli_cpu: i64, priority: i32) {
        self.world.ledger(LedgerOp::Nominate(Nomination {
            pod: PodKey::new("default", uid),
            uid: uid.into(),
            place: NominationTarget::Node(NodeName::from(node)),
            requests: Resources::new(milli_cpu, 0).with("pods", 1),
            priority,
            from: now(),
            until: now() + SignedDuration::from_secs(30),
        }));
    }

    pub(crate) fn fence(&mut self, claim: &str, reason: FenceReason) {
        self.world.ledger(LedgerOp::Fence(Fence {
            claim: claim.into(),
            reason,
            from: now(),
        }));
    }
}

/// A pod that waits and asks for so much CPU.
pub(crate) fn pod(uid: &str, cpu: &str) -> Value {
    json!({
        "metadata": { "name": uid, "namespace": "default", "uid": uid, "labels": { "app": "web" } },
        "spec": { "containers": [{ "name": "main", "resources": { "requests": { "cpu": cpu } } }] },
        "status": { "phase": "Pending" },
    })
}

pub(crate) fn with(pod: Value, change: Value) -> Value {
    crate::world::merged(pod, &change)
}

pub(crate) fn names(all: &[&str]) -> Vec<String> {
    all.iter().map(|name| (*name).to_owned()).collect()
}
