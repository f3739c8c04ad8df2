//! When nominations expire, and which ended before their pod was bound.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use jiff::Timestamp;

use crate::ledger::{Ledger, Nomination};
use mortise_apis::names::{ClaimName, Uid};

/// Expiry times of nominations, and nominations that ended while their pod is pending.
#[derive(Debug, Default)]
pub(super) struct NominationIndex {
    /// Entries of nominations that were withdrawn, prolonged or shortened since stay until they are first, and are skipped
    /// then: the ledger decides.
    expiries: BinaryHeap<Reverse<(Timestamp, Uid)>>,
    /// Pending pods whose nomination to this NodeClaim ended.
    ended: BTreeMap<Uid, ClaimName>,
}

impl NominationIndex {
    /// Records when the nomination of a pod expires.
    pub(super) fn record_expiry(&mut self, until: Timestamp, pod: Uid) {
        self.expiries.push(Reverse((until, pod)));
    }

    /// The earliest recorded expiry.
    pub(super) fn next_expiry(&self) -> Option<Timestamp> {
        self.expiries.peek().map(|Reverse((until, _))| *until)
    }

    /// Removes and returns a nomination of the ledger that expired at `now`.
    pub(super) fn pop_expired(&mut self, ledger: &Ledger, now: Timestamp) -> Option<Nomination> {
        while let Some(Reverse((until, pod))) = self.expiries.peek() {
            let nomination = ledger.nomination(pod);
            let nomination = nomination.filter(|nomination| nomination.until == *until);
            if nomination.is_some() && *until > now {
                return None;
            }
            let expired = nomination.map(|nomination| Nomination::clone(nomination));
            self.expiries.pop();
            if expired.is_some() {
                return expired;
            }
        }
        None
    }

    /// Records that the nomination of a pending pod to a NodeClaim ended: it is not restored from the NodeClaim, whose
    /// annotation still names the pod.
    pub(super) fn record_ended(&mut self, pod: Uid, claim: ClaimName) {
        self.ended.insert(pod, claim);
    }

    /// Whether the nomination of a pod to this NodeClaim ended.
    pub(super) fn has_ended(&self, pod: &str, claim: &ClaimName) -> bool {
        self.ended.get(pod).is_some_and(|ended| ended == claim)
    }

    /// Forgets a pod that is no longer pending.
    pub(super) fn forget(&mut self, pod: &Uid) {
        self.ended.remove(pod);
    }
}
