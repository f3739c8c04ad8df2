//! Reading promises back from claims, so that a follower and a restarted process hold what the leader promised.

use std::sync::Arc;

use super::Index;
use crate::apis::conditions;
use crate::apis::nodeclaim::NodeClaim;
use crate::deciders::after;
use crate::labels;
use crate::ledger::{LedgerOp, Nomination, Place};
use crate::names::NodeName;

/// A promise of a claim ends when the claim would be given up for not registering (upstream's 15 min).
const LIFE_MS: i64 = 15 * 60_000;

/// A promise on a machine ends so long after the machine is initialized: several times the longest back-off of
/// kube-scheduler, after which a pod that has not come has a reason that nobody foresaw.
const READY_LIFE_MS: i64 = 60_000;

impl Index {
    /// The machine of a claim is ready for its pods: they come soon, or their room is given back.
    pub(super) fn end_promises(&mut self, claim: &NodeClaim) {
        let conditions = &claim.status.conditions;
        let ready = conditions::find(conditions, "Initialized")
            .filter(|_| claim.is_true("Initialized"))
            .and_then(|condition| condition.last_transition_time.as_ref());
        let Some(ready) = ready else { return };
        let place = Place::Claim(claim.name());
        let until = after(ready.0, READY_LIFE_MS);
        let longer = |each: &Arc<Nomination>| each.until > until;
        if self.state.ledger.held(&place).any(longer) {
            Arc::make_mut(&mut self.state.ledger).shorten(&place, until);
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
