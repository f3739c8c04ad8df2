//! When promises end, and reading them back from claims, so that a follower and a restarted process hold what the leader
//! promised.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use jiff::Timestamp;

use super::Index;
use crate::ledger::{LedgerOp, Nomination, NominationTarget};
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::labels;
use mortise_apis::names::{NodeName, Uid};
use mortise_apis::schema::conditions;
use mortise_apis::values::after;

/// A promise of a claim ends when the claim would be given up for not registering (upstream's 15 min).
const LIFE_MS: i64 = 15 * 60_000;

/// A promise on a machine ends so long after the machine is initialized, however busy kube-scheduler is: it comes back to
/// every pod within 5 min (`podMaxInUnschedulablePodsDuration`).
const READY_LIFE_MS: i64 = 5 * 60_000;

/// A promise on a machine that is ready ends so long after kube-scheduler was seen to refuse its pod. Several times its
/// longest back-off (10 s): a pod that has not come by then has a reason that nobody foresaw.
const REFUSED_LIFE_MS: i64 = 50_000;

/// When promises end. Entries of promises that were withdrawn, prolonged or shortened since stay until they come up, and are
/// passed over then: what the ledger says counts.
#[derive(Debug, Default)]
pub(super) struct PromiseEnds(BinaryHeap<Reverse<(Timestamp, Uid)>>);

impl PromiseEnds {
    pub(super) fn note(&mut self, until: Timestamp, pod: Uid) {
        self.0.push(Reverse((until, pod)));
    }
}

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
        let until = after(ready, READY_LIFE_MS);
        let (name, node) = (claim.name(), claim.status.node_name.as_deref());
        let longer = self.state.ledger.held_on(node, Some(&name));
        let longer = longer.filter(|each| each.until > until && each.from <= ready);
        let longer: Vec<Uid> = longer.map(|each| each.uid.clone()).collect();
        for pod in longer {
            self.shorten(&pod, until);
        }
    }

    /// kube-scheduler has refused a pod that waits: it says so anew, or in other words than before. If its machine was ready
    /// by then, its room is not held for long any more.
    pub(super) fn refused(&mut self, pod: &Uid) {
        let Some(promise) = self.state.ledger.nomination(pod) else {
            return;
        };
        let claim = match &promise.place {
            NominationTarget::Node(node) => self.claim_of(node),
            NominationTarget::Claim(claim) => self.state.claims.get(claim),
        };
        // A machine without a claim is another one's work, and ready.
        let ready = match claim {
            Some(claim) => ready_since(claim),
            None => matches!(promise.place, NominationTarget::Node(_)).then_some(promise.from),
        };
        if ready.is_some_and(|ready| ready <= self.now) {
            self.shorten(pod, after(self.now, REFUSED_LIFE_MS));
        }
    }

    fn claim_of(&self, node: &NodeName) -> Option<&Arc<NodeClaim>> {
        let machine = self.machines.get(self.node_key_of.get(node)?)?;
        self.state.claims.get(machine.claim()?)
    }

    fn shorten(&mut self, pod: &Uid, until: Timestamp) {
        let promise = self.state.ledger.nomination(pod);
        if promise.is_some_and(|each| each.until > until) {
            Arc::make_mut(&mut self.state.ledger).shorten(pod, until);
            self.ends.note(until, pod.clone());
            self.changes.ledger = true;
            self.stale = true;
        }
    }

    /// When to call [`Self::expire_ledger`] again: when the next promise ends, or earlier, if that one was prolonged or
    /// withdrawn.
    #[must_use]
    pub fn promises_end(&self) -> Option<Timestamp> {
        self.ends.0.peek().map(|Reverse((until, _))| *until)
    }

    /// Ends promises that are over. The pods of those that ended count as changed. Cost: the logarithm of the number of
    /// promises, for each that ended.
    pub fn expire_ledger(&mut self, now: Timestamp) {
        while let Some(Reverse((until, pod))) = self.ends.0.peek() {
            let promise = self.state.ledger.nomination(pod);
            let Some(promise) = promise.filter(|promise| promise.until == *until) else {
                self.ends.0.pop();
                continue;
            };
            if *until > now {
                return;
            }
            let (key, uid, place) = (
                promise.pod.clone(),
                promise.uid.clone(),
                promise.place.clone(),
            );
            Arc::make_mut(&mut self.state.ledger).run_out(&uid);
            self.forget_promise(uid, place);
            self.changes.pods.insert(key);
            self.changes.ledger = true;
            self.stale = true;
            self.ends.0.pop();
        }
    }

    /// Changes the ledger. Only the engine and the index itself call this.
    pub fn change_ledger(&mut self, op: LedgerOp) {
        let (ends, withdrawn) = match &op {
            LedgerOp::Nominate(promise) => (Some((promise.until, promise.uid.clone())), None),
            LedgerOp::Withdraw(uid) => {
                let promise = self.state.ledger.nomination(uid);
                (None, promise.map(|it| (uid.clone(), it.place.clone())))
            }
            _ => (None, None),
        };
        if Arc::make_mut(&mut self.state.ledger).apply(op) {
            self.changes.ledger = true;
            self.stale = true;
            if let Some((until, pod)) = ends {
                self.ends.note(until, pod);
            }
            if let Some((pod, place)) = withdrawn {
                self.forget_promise(pod, place);
            }
        }
    }

    /// A promise that ended is not read back from its claim, which still names the pod.
    fn forget_promise(&mut self, pod: Uid, place: NominationTarget) {
        if let NominationTarget::Claim(claim) = place
            && self.pending_keys.contains_key(&pod)
        {
            self.over.insert(pod, claim);
        }
    }

    /// Whether a Node is the place of a promise, which may be named by the machine's claim.
    pub(super) fn is_at(&self, node: &NodeName, place: &NominationTarget) -> bool {
        match place {
            NominationTarget::Node(name) => name == node,
            NominationTarget::Claim(claim) => {
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

    /// Nominates the pods that a claim was made for, if they still wait and nobody has nominated them since: while the claim
    /// may still register, and when its node is ready for as long as promises last there.
    pub(super) fn read_promises(&mut self, claim: &NodeClaim) {
        let (Some(list), true) = (claim.annotation(labels::NOMINATED_PODS), self.state.synced)
        else {
            return;
        };
        if claim.metadata.deletion_timestamp.is_some() {
            return;
        }
        let created = claim.metadata.creation_timestamp.as_ref();
        let Some(created) = created.map(|time| time.0) else {
            return;
        };
        let (from, until) = match ready_since(claim) {
            Some(ready) => (self.now, after(ready, READY_LIFE_MS)),
            None if claim.is_true("Initialized") => return,
            None => (created, after(created, LIFE_MS)),
        };
        if until <= self.now {
            return;
        }
        for uid in list.split(',').filter(|uid| !uid.is_empty()) {
            let pod = self
                .pending_keys
                .get(uid)
                .and_then(|key| self.state.pods.get(key));
            let is_over = self.over.get(uid).is_some_and(|on| *on == claim.name());
            let Some(pod) = pod
                .filter(|_| self.state.ledger.nomination(uid).is_none() && !is_over)
                .cloned()
            else {
                continue;
            };
            self.change_ledger(LedgerOp::Nominate(Nomination {
                pod: pod.key.clone(),
                uid: pod.uid.clone(),
                place: NominationTarget::Claim(claim.name()),
                requests: pod.class.requests.clone(),
                priority: pod.class.priority,
                from,
                until,
            }));
        }
    }
}
