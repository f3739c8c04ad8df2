//! Pods for which kube-scheduler has found a node, known from its extender calls.
//!
//! kube-scheduler calls an extender for a pod only if some node has passed all of its own filters. A call whose response
//! accepts a node therefore proves that the pod needs no new node, before the pod is bound and regardless of the solver.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::snapshot::Pod;
use mortise_apis::names::Uid;
use mortise_apis::values::after;

/// By then, the pod is bound and no longer listed here; otherwise it failed after the filters (volumes, a permit plugin), which
/// this does not cover.
const LASTS_MS: i64 = 10_000;

/// The same for a pod that was `Unschedulable` before: if it becomes unschedulable again, the API server shows no change.
const LASTS_AFTER_A_REFUSAL_MS: i64 = 2_000;

/// Maximum number of pods that are remembered; further ones are ignored. The calls of half a minute at 300 per second.
const MOST: usize = 10_000;

/// How often expired entries are removed.
const SWEEP_MS: i64 = 1_000;

/// Pods with a feasible node, by UID, with the time of the newest call.
#[derive(Clone, Debug, Default)]
pub struct FeasiblePods {
    seen: BTreeMap<Uid, Timestamp>,
    swept: Option<Timestamp>,
    /// A scheduler has asked.
    is_asked: bool,
}

impl FeasiblePods {
    /// Records that the scheduler found a node for the pod at this time.
    pub fn see(&mut self, pod: Uid, at: Timestamp) {
        self.is_asked = true;
        if self.swept.is_none_or(|swept| after(swept, SWEEP_MS) <= at) {
            self.seen.retain(|_, seen| after(*seen, LASTS_MS) > at);
            self.swept = Some(at);
        }
        if self.seen.len() < MOST {
            self.seen.insert(pod, at);
        }
    }

    /// Until when the scheduler is expected to bind the pod; `None` if it is not.
    #[must_use]
    pub fn until(&self, pod: &Pod, now: Timestamp) -> Option<Timestamp> {
        let seen = self.seen.get(&pod.uid)?;
        let lasts = if pod.unschedulable {
            LASTS_AFTER_A_REFUSAL_MS
        } else {
            LASTS_MS
        };
        Some(after(*seen, lasts)).filter(|until| *until > now && pod.node.is_none())
    }

    /// Whether a scheduler asks at all, as far as this process knows: pods get the nodes that are planned for them.
    #[must_use]
    pub const fn is_asked(&self) -> bool {
        self.is_asked
    }

    /// Whether no pod is recorded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.seen.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_remembered_is_bounded() {
        let at = |ms| after(Timestamp::UNIX_EPOCH, ms);
        let mut feasible = FeasiblePods::default();
        for pod in 0..30_000 {
            feasible.see(format!("{pod}").as_str().into(), at(pod / 10));
        }
        assert_eq!(feasible.seen.len(), MOST);
        feasible.see("later".into(), at(60_000));
        assert_eq!(feasible.seen.len(), 1);
    }
}
