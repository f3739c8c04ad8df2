//! The production extender, called by the simulated scheduler in process.

use std::borrow::Cow;
use std::sync::Arc;

use jiff::Timestamp;
use mortise_apis::k8s;
use mortise_sim::Extender;
use mortise_state::snapshot::Snapshot;
use mortise_webhooks::extender::wire::Args;
use mortise_webhooks::extender::{ExtenderState, filter, prioritize};
use mortise_webhooks::{ClusterView, Counters};

/// The handlers of the extender, without HTTP.
#[derive(Default)]
pub(crate) struct ProductionExtender {
    state: ExtenderState,
    counters: Counters,
}

/// The cluster at the time of a call.
struct CallView {
    snapshot: Arc<Snapshot>,
    now: Timestamp,
}

impl ClusterView for CallView {
    fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.snapshot)
    }

    fn age_ms(&self) -> i64 {
        0
    }

    fn now(&self) -> Timestamp {
        self.now
    }
}

fn args<'a>(pod: &k8s::Pod, nodes: &'a [String]) -> Args<'a> {
    Args {
        pod: pod.clone(),
        nodes: None,
        node_names: Some(nodes.iter().map(|name| Cow::from(name.as_str())).collect()),
    }
}

impl Extender for ProductionExtender {
    fn filter(
        &self,
        snapshot: &Arc<Snapshot>,
        now: Timestamp,
        pod: &k8s::Pod,
        nodes: &[String],
    ) -> Vec<String> {
        let snapshot = Arc::clone(snapshot);
        let (view, args) = (CallView { snapshot, now }, args(pod, nodes));
        let kept = filter(&view, &self.state, &self.counters, &args, true);
        let names = kept.node_names.into_iter().flatten();
        names.map(str::to_owned).collect()
    }

    fn prioritize(
        &self,
        snapshot: &Arc<Snapshot>,
        now: Timestamp,
        pod: &k8s::Pod,
        nodes: &[String],
    ) -> Vec<(String, i64)> {
        let snapshot = Arc::clone(snapshot);
        let (view, args) = (CallView { snapshot, now }, args(pod, nodes));
        let scores = prioritize(&view, &self.state, &self.counters, &args);
        let scores = scores.into_iter();
        scores
            .map(|each| (each.host.to_owned(), each.score))
            .collect()
    }
}
