//! Which pods of a node must be evicted, which of them now, and how. A pure function of the pods, the time and the
//! deadline.

use std::sync::Arc;

use jiff::Timestamp;

use mortise_apis::values::after;
use mortise_state::snapshot::Pod;

/// A pod is stuck, and the drain no longer waits for it, when its deletion time is more than a minute past (see
/// [`Pod::is_stuck_terminating`]).
const STUCK_MS: i64 = 60_000;

/// The next evictions and deletions of one node.
#[derive(Debug, Default)]
pub struct Drain<'a> {
    /// Pods that the node waits for.
    pub waiting: Vec<&'a Arc<Pod>>,
    /// Pods to be evicted now: those of the first group that is not empty.
    pub evict: Vec<&'a Arc<Pod>>,
    /// Pods to be deleted now, with their grace in seconds.
    pub force: Vec<(&'a Arc<Pod>, i64)>,
    /// When this result changes by the passing of time alone.
    pub changes: Option<Timestamp>,
}

/// Whether the pod tolerates the disrupted taint or belongs to the node itself: it stays until the node is deleted.
pub fn is_not_evicted(pod: &Pod) -> bool {
    pod.is_node_owned() || pod.class.tolerates_disruption()
}

/// Groups are drained strictly one after another: ordinary pods, then DaemonSet pods, then the critical ones in that
/// order.
fn group(pod: &Pod) -> (bool, bool) {
    (pod.class.critical, pod.is_daemon())
}

/// When a pod must be deleted so that it has its own grace period before the deadline.
fn force_at(pod: &Pod, deadline: Timestamp) -> Timestamp {
    after(deadline, pod.grace_seconds.saturating_mul(-1_000))
}

impl<'a> Drain<'a> {
    /// Evaluates the pods of a node. `deadline` is the end of the termination grace period, if there is one.
    pub fn new(pods: &'a [Arc<Pod>], now: Timestamp, deadline: Option<Timestamp>) -> Self {
        let mut drain = Self {
            waiting: pods
                .iter()
                .filter(|pod| pod.is_waiting_eviction(now))
                .collect(),
            ..Self::default()
        };
        let first = drain.waiting.iter().map(|pod| group(pod)).min();
        for pod in drain.waiting.clone() {
            if let Some(deleted) = pod.deleted {
                drain.changes_at(after(deleted, STUCK_MS + 1));
            }
            if let Some(deadline) = deadline
                && drain.is_forced(pod, now, deadline)
            {
                let left = deadline.as_second().saturating_sub(now.as_second());
                drain.force.push((pod, left.max(1)));
            } else if Some(group(pod)) == first && pod.is_evictable(now) {
                drain.evict.push(pod);
            } else if pod.is_protected(now)
                && let Some(until) = pod.protected_until()
            {
                drain.changes_at(until);
            }
        }
        drain
    }

    /// Pods of the group that is being drained. The others wait for them.
    pub fn first_group(&self) -> impl Iterator<Item = &'a Arc<Pod>> {
        let first = self.waiting.iter().map(|pod| group(pod)).min();
        self.waiting
            .iter()
            .copied()
            .filter(move |pod| Some(group(pod)) == first)
    }

    /// Whether the pod must be deleted now to have its grace period before the deadline.
    fn is_forced(&mut self, pod: &Pod, now: Timestamp, deadline: Timestamp) -> bool {
        if pod.deleted.is_some() {
            return pod.outlives(deadline);
        }
        let due = force_at(pod, deadline);
        if now <= due {
            self.changes_at(after(due, 1)); // strictly later than due
        }
        now > due
    }

    fn changes_at(&mut self, at: Timestamp) {
        self.changes = Some(self.changes.map_or(at, |known| known.min(at)));
    }
}
