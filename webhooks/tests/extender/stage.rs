//! A small cluster and its extender.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::test_cluster::{TestCluster, now, pool};
use jiff::{SignedDuration, Timestamp};
use mortise_apis::names::{NodeName, PodKey};
use mortise_apis::resources::Resources;
use mortise_state::ledger::{Fence, FenceReason, LedgerOp, Nomination, NominationTarget};
use mortise_state::snapshot::Snapshot;
use mortise_webhooks::Counters;
use mortise_webhooks::extender::{ExtenderState, filter, prioritize, wire};
use serde_json::{Value, json};

/// Cluster state at one time.
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

/// A cluster with an extender.
pub(crate) struct Stage {
    pub(crate) cluster: TestCluster,
    pub(crate) state: ExtenderState,
    pub(crate) counters: Counters,
    pub(crate) later: SignedDuration,
    pub(crate) age_ms: i64,
}

impl Stage {
    /// Three nodes with four CPUs and one pod of one CPU each: `web-0`, `web-1` and `web-2`.
    pub(crate) fn new() -> Self {
        let mut cluster = TestCluster::new();
        cluster.pool(&pool("web", &json!({})));
        for number in 0..3 {
            cluster.node("web", "m5.xlarge", number, 1);
        }
        Self {
            cluster,
            state: ExtenderState::new("kube-system"),
            counters: Counters::default(),
            later: SignedDuration::ZERO,
            age_ms: 0,
        }
    }

    pub(crate) fn at(&mut self) -> At {
        At {
            snapshot: Arc::new(self.cluster.snapshot()),
            now: now() + self.later,
            age_ms: self.age_ms,
        }
    }

    pub(crate) fn call_filter(&mut self, body: &Value, real: bool) -> Value {
        let (at, body) = (self.at(), body.to_string());
        let args: wire::Args<'_> = serde_json::from_str(&body).unwrap();
        let answer = filter(&at, &self.state, &self.counters, &args, real);
        serde_json::to_value(answer).unwrap()
    }

    /// Allowed names, and the messages of denied ones.
    pub(crate) fn filter(&mut self, pod: &Value) -> (Vec<String>, BTreeMap<String, String>) {
        self.filter_of(pod, &["web-0", "web-1", "web-2"])
    }

    pub(crate) fn filter_of(
        &mut self,
        pod: &Value,
        names: &[&str],
    ) -> (Vec<String>, BTreeMap<String, String>) {
        let answer = self.call_filter(
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
            json!({ "Pod": pod, "NodeNames": ["web-0", "web-1", "web-2", "unknown"] }).to_string();
        let args: wire::Args<'_> = serde_json::from_str(&body).unwrap();
        prioritize(&at, &self.state, &self.counters, &args)
            .into_iter()
            .map(|each| (each.host.to_owned(), each.score))
            .collect()
    }

    /// Nominates a pod to a node.
    pub(crate) fn nominate(&mut self, uid: &str, node: &str, milli_cpu: i64, priority: i32) {
        self.cluster.ledger(LedgerOp::Nominate(Nomination {
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
        self.cluster.ledger(LedgerOp::Fence(Fence {
            claim: claim.into(),
            reason,
            from: now(),
        }));
    }
}

/// A pending pod with a CPU request.
pub(crate) fn pod(uid: &str, cpu: &str) -> Value {
    json!({
        "metadata": { "name": uid, "namespace": "default", "uid": uid, "labels": { "app": "web" } },
        "spec": { "containers": [{ "name": "main", "resources": { "requests": { "cpu": cpu } } }] },
        "status": { "phase": "Pending" },
    })
}

pub(crate) fn with(pod: Value, change: Value) -> Value {
    crate::test_cluster::merged(pod, &change)
}

pub(crate) fn names(all: &[&str]) -> Vec<String> {
    all.iter().map(|name| (*name).to_owned()).collect()
}
