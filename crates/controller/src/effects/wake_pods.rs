//! Wakes pods that the extender denied on every node.
//!
//! kube-scheduler retries a denied pod only after an event. A lifted fence or an expired nomination causes none, so this module
//! writes an annotation to a node that such a pod may now use. Every replica does this, since any of them may serve the
//! scheduler; only the annotation changes. One node per turn is enough: an event about any node wakes all pods that an extender
//! denied.
//!
//! The same turns check how schedulers call the extender, and log problems.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use mortise_apis::labels;
use mortise_apis::names::NodeName;
use mortise_webhooks::Counters;
use mortise_webhooks::extender::ExtenderState;
use serde_json::json;
use tokio::time::MissedTickBehavior;

use crate::client::error_class;
use crate::service_state::ServiceState;

/// Between two looks, and so the least time between two annotations. A denied pod is asked about again within two seconds
/// of a change.
const TURN: Duration = Duration::from_secs(1);
/// The mode that sends whole nodes is complained about this often.
const COMPLAINT: Duration = Duration::from_mins(10);
/// Missing extender calls are reported again after this time, indefinitely where the schedulers cannot be configured.
const REMINDER: Duration = Duration::from_hours(1);

/// Looks until it is cancelled.
pub(crate) async fn run(
    client: Client,
    shared: Arc<ServiceState>,
    memory: Arc<ExtenderState>,
    counters: Arc<Counters>,
) {
    let nodes: Api<Node> = Api::all(client);
    let mut turns = tokio::time::interval(TURN);
    turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut mode = NodeListWarning::default();
    let mut silence = Silence::default();
    loop {
        turns.tick().await;
        mode.look(&counters);
        silence.look(&shared, &memory);
        if memory.denied_pods.is_empty() {
            continue;
        }
        if let Some(node) = memory.allowed_node(&shared.snapshot(), shared.now()) {
            wake_pods(&nodes, &node, &shared, &counters).await;
        }
    }
}

async fn wake_pods(nodes: &Api<Node>, node: &NodeName, shared: &ServiceState, counters: &Counters) {
    let patch = json!({ "metadata": { "annotations": { labels::CAPACITY_FREED_AT: shared.now().to_string() } } });
    match nodes
        .patch_metadata(node, &PatchParams::default(), &Patch::Merge(patch))
        .await
    {
        Ok(_) => {
            counters.wakeups.inc();
            tracing::debug!(%node, "woke pods that were denied on every node");
        }
        // A node that is gone is an event too.
        Err(error) if error_class::classify(&error) == error_class::ErrorClass::NotFound => {}
        Err(error) => {
            tracing::warn!(%node, error = %error_class::message(&error), "failed to wake denied pods");
        }
    }
}

/// Says when pods are bound and no scheduler asks.
#[derive(Debug, Default)]
struct Silence {
    said: Option<tokio::time::Instant>,
}

impl Silence {
    fn look(&mut self, shared: &ServiceState, memory: &ExtenderState) {
        let binds = memory.schedulers.unasked_binds();
        shared.metrics.http.set_unasked_binds(binds);
        if binds == 0 {
            self.said = None;
            return;
        }
        if self.said.is_some_and(|at| at.elapsed() < REMINDER) {
            return;
        }
        self.said = Some(tokio::time::Instant::now());
        let seen = memory.schedulers.calls_seen();
        let asked: Vec<&str> = seen
            .schedulers
            .iter()
            .map(|each| &*each.scheduler)
            .collect();
        let failing: u64 = shared.handshakes.all().iter().map(|each| each.count).sum();
        tracing::warn!(
            unasked_binds = binds,
            asked_before = asked.join(", "),
            failed_handshakes = failing,
            "pods are bound without extender calls for one minute, nominations are not enforced; run `mortise check scheduler FILE --live`, or check whether another replica receives the calls"
        );
    }
}

/// Says when the scheduler sends whole nodes.
#[derive(Debug, Default)]
struct NodeListWarning {
    seen: u64,
    said: Option<tokio::time::Instant>,
}

impl NodeListWarning {
    fn look(&mut self, counters: &Counters) {
        let seen = counters.full_nodes.get();
        let new = seen > std::mem::replace(&mut self.seen, seen);
        let silent = self.said.is_none_or(|at| at.elapsed() >= COMPLAINT);
        if new && silent {
            self.said = Some(tokio::time::Instant::now());
            tracing::warn!(
                calls = seen,
                "kube-scheduler sends full Node objects to the extender, set nodeCacheCapable: true in its configuration"
            );
        }
    }
}
