//! Pods that kube-scheduler cannot place, and for which no node is being created.

use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;

use super::{Gang, Pod, Snapshot};
use mortise_apis::values::since;

/// Why a pod is pending although no node is being created for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stalled {
    /// It is nominated to a ready node, and kube-scheduler does not bind it.
    OnReadyNode,
    /// It has no nomination.
    NoNode,
}

impl Stalled {
    /// Every variant.
    pub const ALL: [Self; 2] = [Self::OnReadyNode, Self::NoNode];

    /// A pod is stalled after this number of milliseconds.
    pub const AFTER_MS: i64 = 60_000;

    /// Value in metrics.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::OnReadyNode => "on_ready_node",
            Self::NoNode => "no_node",
        }
    }
}

impl Snapshot {
    /// Why a pod is stalled: it has been unschedulable for a minute, and no node is being created for it.
    #[must_use]
    pub fn stalled(&self, pod: &Pod, now: Timestamp) -> Option<Stalled> {
        let refusal = pod.refusal.as_ref().filter(|_| pod.node.is_none())?;
        if self.gangs.held(pod, now).is_some() {
            return None;
        }
        let first = refusal.since.unwrap_or(pod.created);
        if since(now, first) < Stalled::AFTER_MS {
            return None;
        }
        let Some(nomination) = self.ledger.nomination(&pod.uid) else {
            return Some(Stalled::NoNode);
        };
        let node = self.node_at(&nomination.place);
        let is_ready = node.is_some_and(|node| node.initialized);
        (is_ready && !self.is_gang_coming(pod)).then_some(Stalled::OnReadyNode)
    }

    /// Whether the gang of a pod cannot run yet, because too few of its pods run or are nominated to nodes that are ready. Until then
    /// its scheduler rejects all of them, on nodes that are ready as well.
    ///
    /// # Cost
    /// A look at each pod of the gang; nothing for a pod without.
    #[must_use]
    pub fn is_gang_coming(&self, pod: &Pod) -> bool {
        let Some(gang) = &pod.gang else {
            return false;
        };
        let Gang::Together(min) = self.gangs.get(gang) else {
            return false;
        };
        let members = self.gangs.members(gang);
        let members = members.filter_map(|key| self.pods.get(key));
        let is_ready = |pod: &&Arc<Pod>| {
            let nomination = self.ledger.nomination(&pod.uid);
            let node = nomination.and_then(|nomination| self.node_at(&nomination.place));
            pod.node.is_some() || node.is_some_and(|node| node.initialized)
        };
        members.filter(is_ready).count() < min
    }
}
