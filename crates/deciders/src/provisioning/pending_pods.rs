//! Pods that wait for a place, and what was said of them.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hash;
use std::sync::Arc;

use jiff::Timestamp;

use super::launch_backoff::LaunchBackoff;
use super::stalled::RejectedNode;
use crate::tracking::event_throttle::EventThrottle;
use mortise_apis::names::{ClaimName, ObjectRef, PodKey, Uid};
use mortise_engine::decider::StepInput;
use mortise_planning::reason::Reason;
use mortise_state::snapshot::{Pod, Refusal, Snapshot};

/// The same is said of a pod again after five minutes, as in Karpenter.
const SAID_EVERY_MS: i64 = 5 * 60_000;

/// A pod that waits for a place.
#[derive(Clone, Debug)]
pub(super) struct PendingPod {
    pub(super) uid: Uid,
    pub(super) since: Timestamp,
    pub(super) confirmed: bool,
    /// Where it was nominated last: name of the claim, or of the Node if that has no claim.
    pub(super) nominated_to: Option<String>,
    /// kube-scheduler's newest word on it.
    pub(super) refusal: Option<Arc<Refusal>>,
    /// That word came while the node it is nominated to was ready.
    pub(super) refused: bool,
    /// Ready nodes on which it was expected and refused.
    pub(super) refused_on: Vec<RejectedNode>,
    /// When the next node may be launched for it, after nodes that stayed unused.
    pub(super) launch_backoff: LaunchBackoff,
    /// Why no node is on its way for it, where no solve says so.
    pub(super) held_up: Option<Reason>,
}

impl From<(&Pod, Timestamp)> for PendingPod {
    fn from((pod, since): (&Pod, Timestamp)) -> Self {
        Self {
            uid: pod.uid.clone(),
            since,
            confirmed: pod.unschedulable,
            nominated_to: None,
            refusal: pod.refusal.clone(),
            refused: false,
            refused_on: Vec::new(),
            launch_backoff: LaunchBackoff::default(),
            held_up: None,
        }
    }
}

/// Every pod that waits for a place.
#[derive(Debug, Default)]
pub(super) struct PendingPods {
    pub(super) by_key: BTreeMap<PodKey, PendingPod>,
    told: EventThrottle,
    /// When pods that nothing is on its way for are listed next.
    pub(super) review_at: Option<Timestamp>,
}

impl PendingPods {
    pub(super) fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    pub(super) fn get(&self, key: &PodKey) -> Option<&PendingPod> {
        self.by_key.get(key)
    }

    pub(super) fn get_mut(&mut self, key: &PodKey) -> Option<&mut PendingPod> {
        self.by_key.get_mut(key)
    }

    /// Forgets pods that do not wait any more.
    pub(super) fn retain_pending(&mut self, snapshot: &Snapshot) {
        self.by_key.retain(|key, _| snapshot.pending.contains(key));
    }

    /// Forgets a pod: if it waits again, that is news.
    pub(super) fn remove(&mut self, key: &PodKey) {
        if self.by_key.remove(key).is_some() {
            self.told.forget(&ObjectRef::Pod(key.clone()), "place");
        }
    }

    /// Takes a waiting pod in. Returns whether it asks for a place: it is new, kube-scheduler has confirmed it, or the
    /// place that it was nominated to is lost. The last two do not prolong a batch that is open.
    pub(super) fn see(&mut self, pod: &Pod, snapshot: &Snapshot, now: Timestamp) -> PodChange {
        let nominated = snapshot.ledger.nomination(&pod.uid).is_some();
        let change = match self.by_key.get_mut(&pod.key) {
            Some(known) if known.uid == pod.uid => {
                let confirmed = pod.unschedulable && !known.confirmed;
                known.confirmed = pod.unschedulable;
                let lost = known.hear(pod, nominated, snapshot, now);
                if confirmed || lost {
                    PodChange::AsksAgain
                } else {
                    PodChange::None
                }
            }
            _ => {
                self.by_key
                    .insert(pod.key.clone(), PendingPod::from((pod, now)));
                PodChange::IsNew
            }
        };
        if nominated { PodChange::None } else { change }
    }

    /// A claim came to nothing: its pods are nominated nowhere.
    pub(super) fn forget_claim(&mut self, claim: &ClaimName) {
        self.forget_claims(&BTreeSet::from([claim.as_str()]));
    }

    /// The same for several claims. Returns whether pods were nominated to their nodes.
    pub(super) fn forget_claims(&mut self, claims: &BTreeSet<&str>) -> bool {
        let mut any = false;
        for waiting in self.by_key.values_mut() {
            let claim = waiting.nominated_to.as_deref();
            if claim.is_some_and(|claim| claims.contains(claim)) {
                waiting.nominated_to = None;
                any = true;
            }
        }
        any
    }

    /// Notes why no node is on its way for pods.
    pub(super) fn hold_up(&mut self, pods: &[Arc<Pod>], why: &Reason) {
        for pod in pods.iter().filter(|pod| !pod.is_virtual()) {
            if let Some(waiting) = self.by_key.get_mut(&pod.key) {
                waiting.held_up = Some(why.clone());
            }
        }
    }

    /// A new solve says why.
    pub(super) fn forget_hold_ups(&mut self) {
        self.by_key
            .values_mut()
            .for_each(|waiting| waiting.held_up = None);
    }

    /// Whether these facts about the place of a pod are worth saying; if so they count as said.
    pub(super) fn is_news(
        &mut self,
        pod: &ObjectRef,
        facts: &impl Hash,
        input: &StepInput<'_>,
    ) -> bool {
        self.told
            .is_news(pod, "place", facts, input.now, SAID_EVERY_MS)
    }

    /// Drops what was said long ago.
    pub(super) fn sweep(&mut self, now: Timestamp) {
        self.told.sweep(now);
    }
}

/// What an event of a waiting pod asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PodChange {
    /// Nothing.
    None,
    /// A place, for the first time.
    IsNew,
    /// A place, once more.
    AsksAgain,
}
