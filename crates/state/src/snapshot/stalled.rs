//! Pods that kube-scheduler cannot place, and for which no node is on its way.

use jiff::Timestamp;
use serde::Serialize;

use super::{Pod, Snapshot};
use mortise_apis::values::since;

/// How a pod waits that nothing is on its way for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stalled {
    /// It is expected on a node that is ready, and kube-scheduler does not put it there.
    OnReadyNode,
    /// It is expected nowhere.
    NoNode,
}

impl Stalled {
    /// Every way.
    pub const ALL: [Self; 2] = [Self::OnReadyNode, Self::NoNode];

    /// A pod is stalled after so many milliseconds.
    pub const AFTER_MS: i64 = 60_000;

    /// Word for metrics.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::OnReadyNode => "on_ready_node",
            Self::NoNode => "no_node",
        }
    }
}

impl Snapshot {
    /// How a pod is stalled: it has been unschedulable for a minute, and no node is on its way for it.
    #[must_use]
    pub fn stalled(&self, pod: &Pod, now: Timestamp) -> Option<Stalled> {
        let refusal = pod.refusal.as_ref().filter(|_| pod.node.is_none())?;
        let first = refusal.since.unwrap_or(pod.created);
        if since(now, first) < Stalled::AFTER_MS {
            return None;
        }
        let Some(promise) = self.ledger.nomination(&pod.uid) else {
            return Some(Stalled::NoNode);
        };
        let machine = self.machine_at(&promise.place);
        let is_ready = machine.is_some_and(|machine| machine.initialized);
        is_ready.then_some(Stalled::OnReadyNode)
    }
}
