//! Reading promises back from claims, so that a follower and a restarted process hold what the leader promised.

use std::sync::Arc;

use jiff::Timestamp;

use super::Index;
use crate::apis::conditions;
use crate::apis::nodeclaim::NodeClaim;
use crate::deciders::after;
use crate::labels;
use crate::ledger::{LedgerOp, Nomination, Place};
use crate::names::{NodeName, Uid};

/// A promise of a claim ends when the claim would be given up for not registering (upstream's 15 min).
const LIFE_MS: i64 = 15 * 60_000;

/// A promise on a machine ends so long after the machine is initialized, however busy kube-scheduler is: it comes back to
/// every pod within 5 min (`podMaxInUnschedulablePodsDuration`).
const READY_LIFE_MS: i64 = 5 * 60_000;

/// The same for a pod that was tried since: several times the longest back-off of kube-scheduler, after which a pod that
/// has not come has a reason that nobody foresaw.
const TRIED_LIFE_MS: i64 = 60_000;

/// Since when the machine of a claim is ready for its pods.
fn ready_since(claim: &NodeClaim) -> Option<Timestamp> {
    let initialized = conditions::find(&claim.status.conditions, "Initialized")
        .filter(|_| claim.is_true("Initialized"))?;
    initialized.last_transition_time.as_ref().map(|time| time.0)
}

impl Index {
    /// The machine of a claim is ready for its pods: they come soon, or their room is given back.
    pub(super) fn end_promises(&mut self, claim: &NodeClaim) {
        let Some(ready) = ready_since(claim) else {
            return;
        };
        let place = Place::Claim(claim.name());
        let until = after(ready, READY_LIFE_MS);
        let longer = self.state.ledger.held(&place);
        let longer = longer.filter(|each| each.until > until);
        let longer: Vec<Uid> = longer.map(|each| each.uid.clone()).collect();
        for pod in longer {
            self.shorten(&pod, until);
        }
    }

    /// There is news of a pod that waits. Who writes to such a pod is kube-scheduler, to say that it was tried in vain: if
    /// that was with its machine ready, its room is not held for long any more.
    pub(super) fn tried(&mut self, pod: &Uid) {
        let Some(promise) = self.state.ledger.nomination(pod) else {
            return;
        };
        let Place::Claim(claim) = &promise.place else {
            return;
        };
        let claim = self.state.claims.get(claim);
        if let Some(ready) = claim.and_then(|claim| ready_since(claim)) {
            self.shorten(pod, after(ready, TRIED_LIFE_MS));
        }
    }

    fn shorten(&mut self, pod: &Uid, until: Timestamp) {
        let promise = self.state.ledger.nomination(pod);
        if promise.is_some_and(|each| each.until > until) {
            Arc::make_mut(&mut self.state.ledger).shorten(pod, until);
            self.changes.ledger = true;
            self.stale = true;
        }
    }

    /// Whether a Node is the place of a promise, which may be named by the machine's claim.
    pub(super) fn is_at(&self, node: &NodeName, place: &Place) -> bool {
        match place {
            Place::Node(name) => name == node,
            Place::Claim(claim) => {
                let machine = self.claim_key_of.get(claim);
                machine.is_some() && machine == self.node_key_of.get(node)
            }
        }
    }

    /// Promises of every claim, once pods and claims have all been seen.
    pub(super) fn read_all_promises(&mut self) {
        let claims: Vec<_> = self.state.claims.values().cloned().collect();
        for claim in claims {
            self.read_promises(&claim);
        }
    }

    /// Nominates the pods that a claim was made for, if they still wait and nobody has nominated them since. A claim
    /// whose node is initialized promises nothing new: its pods have had their chance.
    pub(super) fn read_promises(&mut self, claim: &NodeClaim) {
        let (Some(list), true) = (claim.annotation(labels::NOMINATED_PODS), self.state.synced)
        else {
            return;
        };
        if claim.is_true("Initialized") || claim.metadata.deletion_timestamp.is_some() {
            return;
        }
        let Some(created) = claim
            .metadata
            .creation_timestamp
            .as_ref()
            .map(|time| time.0)
        else {
            return;
        };
        for uid in list.split(',').filter(|uid| !uid.is_empty()) {
            let pod = self
                .pending_keys
                .get(uid)
                .and_then(|key| self.state.pods.get(key));
            let Some(pod) = pod
                .filter(|_| self.state.ledger.nomination(uid).is_none())
                .cloned()
            else {
                continue;
            };
            self.change_ledger(LedgerOp::Nominate(Nomination {
                pod: pod.key.clone(),
                uid: pod.uid.clone(),
                place: Place::Claim(claim.name()),
                requests: pod.class.requests.clone(),
                priority: pod.class.priority,
                from: created,
                until: after(created, LIFE_MS),
            }));
        }
    }
}
