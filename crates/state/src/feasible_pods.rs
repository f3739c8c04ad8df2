//! Pods for which kube-scheduler has found a node, as its calls tell.
//!
//! kube-scheduler asks an extender about a pod only when some node has passed all of its own filters. So a question whose answer
//! leaves a node says that the pod needs no machine, before the pod is bound and whatever the solver thinks of it.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::snapshot::Pod;
use mortise_apis::names::Uid;
use mortise_apis::values::after;

/// A pod that is bound is gone from here by then; one that is not has failed later than at the filters (its volumes, a
/// permit), of which nothing is said here.
const LASTS_MS: i64 = 10_000;

/// The same for a pod that was `Unschedulable` before: should it be so again, the API server shows no change.
const LASTS_AFTER_A_REFUSAL_MS: i64 = 2_000;

/// Most pods that are remembered; beyond, nothing new is. The calls of half a minute at 300 a second.
const MOST: usize = 10_000;

/// What has ended is forgotten this often.
const SWEEP_MS: i64 = 1_000;

/// Pods with a feasible node, by UID, with the time of the newest call.
#[derive(Clone, Debug, Default)]
pub struct FeasiblePods {
    seen: BTreeMap<Uid, Timestamp>,
    swept: Option<Timestamp>,
}

impl FeasiblePods {
    /// The scheduler had a node for the pod at this time.
    pub fn see(&mut self, pod: Uid, at: Timestamp) {
        if self.swept.is_none_or(|swept| after(swept, SWEEP_MS) <= at) {
            self.seen.retain(|_, seen| after(*seen, LASTS_MS) > at);
            self.swept = Some(at);
        }
        if self.seen.len() < MOST {
            self.seen.insert(pod, at);
        }
    }

    /// Until when the pod is the scheduler's; `None` when it is not (any more).
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

    /// Nothing was seen.
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
