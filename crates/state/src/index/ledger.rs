//! Keeps the ledger up to date with objects: nominations end when their pods are bound or their time is over, and nominations,
//! fences and expected claims are restored from NodeClaims, so that a follower and a restarted process know what the leader
//! decided.

use std::sync::Arc;

use jiff::Timestamp;

use super::Index;
use crate::ledger::{ExpectedClaim, Fence, FenceReason, LedgerOp, Nomination, NominationTarget};
use crate::snapshot::Pod;
use mortise_apis::karpenter::nodeclaim::{DISRUPTION_REASON, NodeClaim};
use mortise_apis::labels;
use mortise_apis::names::{NodeName, Uid};
use mortise_apis::schema::conditions;
use mortise_apis::values::after;

/// A nomination to a NodeClaim expires when the NodeClaim is deleted for not registering (15 min, as in Karpenter).
const LIFE_MS: i64 = 15 * 60_000;

/// A nomination expires this long after its node is initialized, however busy kube-scheduler is: kube-scheduler retries every
/// pod within 5 min (`podMaxInUnschedulablePodsDuration`).
const READY_LIFE_MS: i64 = 5 * 60_000;

/// A nomination to a ready node expires this long after kube-scheduler was seen to reject its pod. Several times the longest
/// backoff of kube-scheduler (10 s): a pod that was not bound by then has a reason that is unknown here.
const REFUSED_LIFE_MS: i64 = 50_000;

/// When the node of a claim became ready for its pods.
fn ready_since(claim: &NodeClaim) -> Option<Timestamp> {
    let initialized = conditions::find(&claim.status.conditions, "Initialized")
        .filter(|_| claim.is_true("Initialized"))?;
    initialized.last_transition_time.as_ref().map(|time| time.0)
}

impl Index {
    /// Changes the ledger. Only the engine and the index itself call this.
    pub fn change_ledger(&mut self, op: LedgerOp) {
        let (expiry, withdrawn) = match &op {
            LedgerOp::Nominate(nomination) => {
                (Some((nomination.until, nomination.uid.clone())), None)
            }
            LedgerOp::Withdraw(uid) => {
                let nomination = self.state.ledger.nomination(uid);
                (
                    None,
                    nomination.map(|each| (uid.clone(), each.place.clone())),
                )
            }
            _ => (None, None),
        };
        if Arc::make_mut(&mut self.state.ledger).apply(op) {
            self.mark_ledger_changed();
            if let Some((until, pod)) = expiry {
                self.nominations.record_expiry(until, pod);
            }
            if let Some((pod, target)) = withdrawn {
                self.record_ended(pod, target);
            }
        }
    }

    fn mark_ledger_changed(&mut self) {
        self.changes.ledger = true;
        self.stale = true;
    }

    /// When to call [`Self::expire_nominations`] again: when the next nomination expires, or earlier if that one was prolonged
    /// or withdrawn.
    #[must_use]
    pub fn next_nomination_expiry(&self) -> Option<Timestamp> {
        self.nominations.next_expiry()
    }

    /// Ends expired nominations. Their pods count as changed. Cost: the logarithm of the number of nominations, for each that
    /// expired.
    pub fn expire_nominations(&mut self, now: Timestamp) {
        while let Some(expired) = self.nominations.pop_expired(&self.state.ledger, now) {
            Arc::make_mut(&mut self.state.ledger).expire(&expired.uid);
            self.record_ended(expired.uid, expired.place);
            self.changes.pods.insert(expired.pod);
            self.mark_ledger_changed();
        }
    }

    fn record_ended(&mut self, pod: Uid, target: NominationTarget) {
        if let NominationTarget::Claim(claim) = target
            && self.pods.pending_key(&pod).is_some()
        {
            self.nominations.record_ended(pod, claim);
        }
    }

    /// Ends the nomination of a pod that is bound, terminal or deleted.
    pub(super) fn end_nomination(&mut self, pod: &Pod) {
        let Some(nomination) = self.state.ledger.nomination(&pod.uid) else {
            return;
        };
        let Some(node) = &pod.node else {
            self.change_ledger(LedgerOp::Withdraw(pod.uid.clone()));
            return;
        };
        let is_there = match &nomination.place {
            NominationTarget::Node(name) => name == node,
            NominationTarget::Claim(claim) => self.nodes.is_same_node(claim, node),
        };
        Arc::make_mut(&mut self.state.ledger).record_bound(&pod.uid, is_there);
        self.mark_ledger_changed();
    }

    /// Shortens the nominations to a NodeClaim whose node is ready: kube-scheduler binds the pods soon, or their capacity is
    /// released.
    pub(super) fn shorten_nominations_when_ready(&mut self, claim: &NodeClaim) {
        let Some(ready) = ready_since(claim) else {
            return;
        };
        let until = after(ready, READY_LIFE_MS);
        let (name, node) = (claim.name(), claim.status.node_name.as_deref());
        let longer = self.state.ledger.nominations_of_node(node, Some(&name));
        let longer = longer.filter(|each| each.until > until && each.from <= ready);
        let longer: Vec<Uid> = longer.map(|each| each.uid.clone()).collect();
        for pod in longer {
            self.shorten_nomination(&pod, until);
        }
    }

    /// Shortens the nomination of a pending pod that kube-scheduler has rejected again, or with another message than before, if
    /// the node was ready by then. A pod of a gang is rejected until the nodes of all are ready, and every pod as long as the node has
    /// a boot taint.
    pub(super) fn shorten_refused_nomination(&mut self, pod: &Pod) {
        let Some(nomination) = self.state.ledger.nomination(&pod.uid) else {
            return;
        };
        let claim = match &nomination.place {
            NominationTarget::Node(node) => self.claim_of(node),
            NominationTarget::Claim(claim) => self.state.claims.get(claim),
        };
        // A node without a NodeClaim is not mortise's, and ready.
        let is_on_node = matches!(nomination.place, NominationTarget::Node(_));
        let ready = match claim {
            Some(claim) => ready_since(claim),
            None => is_on_node.then_some(nomination.from),
        };
        let node = self.state.node_at(&nomination.place);
        let is_closed = node.is_some_and(|node| self.state.boot_taints.keep_closed(node));
        let is_ready = ready.is_some_and(|ready| ready <= self.now);
        if is_ready && !is_closed && !self.state.is_gang_coming(pod) {
            self.shorten_nomination(&pod.uid, after(self.now, REFUSED_LIFE_MS));
        }
    }

    fn claim_of(&self, node: &NodeName) -> Option<&Arc<NodeClaim>> {
        self.state.claims.get(self.nodes.claim(node)?)
    }

    fn shorten_nomination(&mut self, pod: &Uid, until: Timestamp) {
        let nomination = self.state.ledger.nomination(pod);
        if nomination.is_some_and(|each| each.until > until) {
            Arc::make_mut(&mut self.state.ledger).shorten(pod, until);
            self.nominations.record_expiry(until, pod.clone());
            self.mark_ledger_changed();
        }
    }

    /// Drops what the ledger holds that no object shows, and restores the rest.
    pub fn reload_ledger(&mut self) {
        Arc::make_mut(&mut self.state.ledger).clear();
        let claims = self.state.claims.iter().map(|(_, claim)| claim);
        let claims: Vec<_> = claims.cloned().collect();
        for claim in claims {
            self.restore_fence(&claim);
            self.restore_expected_claim(&claim);
            self.restore_nominations(&claim);
        }
        self.mark_ledger_changed();
    }

    /// Restores the nominations of every NodeClaim, once pods and NodeClaims are listed.
    pub(super) fn restore_all_nominations(&mut self) {
        let claims: Vec<_> = self.state.claims.values().cloned().collect();
        for claim in claims {
            self.restore_nominations(&claim);
        }
    }

    /// Nominates the pods that a NodeClaim was created for, if they are still pending and were not nominated since: while the
    /// NodeClaim may still register, and for the usual time once its node is ready.
    pub(super) fn restore_nominations(&mut self, claim: &NodeClaim) {
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
        let name = claim.name();
        for uid in list.split(',').filter(|uid| !uid.is_empty()) {
            let key = self.pods.pending_key(uid);
            let pod = key.and_then(|key| self.state.pods.get(key));
            let Some(pod) = pod
                .filter(|_| self.state.ledger.nomination(uid).is_none())
                .filter(|_| !self.nominations.has_ended(uid, &name))
                .cloned()
            else {
                continue;
            };
            self.change_ledger(LedgerOp::Nominate(Nomination {
                pod: pod.key.clone(),
                uid: pod.uid.clone(),
                place: NominationTarget::Claim(name.clone()),
                requests: pod.class.requests.clone(),
                priority: pod.class.priority,
                from,
                until,
            }));
        }
    }

    /// Restores the fence of a NodeClaim. A fence is written to the NodeClaim before it applies, so that every replica and a
    /// restarted process know it: as an annotation, or as the condition with the reason of the disruption.
    pub(super) fn restore_fence(&mut self, claim: &NodeClaim) {
        let annotated = claim.annotation(labels::FENCE).and_then(FenceReason::parse);
        let reason = if claim.metadata.deletion_timestamp.is_some() {
            Some(FenceReason::Draining)
        } else {
            let is_disrupted = claim.is_true(DISRUPTION_REASON);
            annotated.or_else(|| is_disrupted.then_some(FenceReason::Disruption))
        };
        let name = claim.name();
        self.change_ledger(match reason {
            Some(reason) => LedgerOp::Fence(Fence {
                claim: name,
                reason,
                from: self.state.taken_at,
            }),
            None => LedgerOp::Unfence(name),
        });
    }

    /// Restores the expected capacity of a NodeClaim: it counts against the limits of its NodePool from the plan until the
    /// capacity of its node is known. The plan is stored on the NodeClaim, so that every replica and a restarted process count
    /// the same.
    pub(super) fn restore_expected_claim(&mut self, claim: &NodeClaim) {
        let name = claim.name();
        let Some(pool) = claim.pool().filter(|_| !claim.is_measured()) else {
            self.change_ledger(LedgerOp::Settle(name));
            return;
        };
        let known = self.state.ledger.expected_claims().get(&name);
        let capacity = claim
            .planned_capacity()
            .or_else(|| known.and_then(|known| known.capacity.clone()));
        let created = claim.metadata.creation_timestamp.as_ref();
        let from = known.map(|known| known.from);
        let from = from.or_else(|| created.map(|time| time.0));
        self.change_ledger(LedgerOp::Expect(ExpectedClaim {
            claim: name,
            pool,
            capacity,
            object: None,
            from: from.unwrap_or(self.state.taken_at),
        }));
    }
}
