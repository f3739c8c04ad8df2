//! Promises about room that Kubernetes objects do not show yet (design 9).
//!
//! Invariants: every promise has an owner and an end; one pod has at most one nomination; a fence is kept until the
//! command that put it ends. The engine is the only writer. What followers must know stands in annotations of the
//! NodeClaim ([`mortise_apis::labels::NOMINATED_PODS`], [`mortise_apis::labels::FENCE`]), from which the index feeds their ledger.

mod node_nominations;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;

pub use node_nominations::NodeNominations;

use crate::sharded_map::ShardedMap;
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::names::{ClaimName, NodeName, PodKey, PoolName, Uid};
use mortise_apis::resources::Resources;

/// Where room is held.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NominationTarget {
    /// On a Node that exists.
    Node(NodeName),
    /// On the machine of a claim, whether or not its Node exists.
    Claim(ClaimName),
}

/// A pending pod is expected on a place; its room is held until it is bound, or `until`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Nomination {
    /// The pod.
    pub pod: PodKey,
    /// Its UID.
    pub uid: Uid,
    /// Where.
    pub place: NominationTarget,
    /// What it will take.
    pub requests: Resources,
    /// Its priority: a promise never blocks a pod of higher priority.
    pub priority: i32,
    /// Since when.
    pub from: Timestamp,
    /// When the promise ends by itself.
    pub until: Timestamp,
}

/// A claim that was decided and that no object shows yet, or whose machine is not known yet: counts against limits.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ExpectedClaim {
    /// Name chosen for the claim.
    pub claim: ClaimName,
    /// Pool it belongs to.
    pub pool: PoolName,
    /// The most it can turn out to have: element-wise maximum over its instance types. `None`: nobody has written it down,
    /// and [`crate::snapshot::PoolUsage`] counts the most that the claim allows.
    pub capacity: Option<Resources>,
    /// The claim as it is being created, while no object shows it; `None` when it was read back from one.
    #[serde(skip)]
    pub object: Option<Arc<NodeClaim>>,
    /// Since when.
    pub from: Timestamp,
}

/// Why a node gets no new pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FenceReason {
    /// A disruption command intends to remove it.
    Disruption,
    /// The cloud will take it back.
    Interruption,
    /// It is being drained.
    Draining,
}

impl FenceReason {
    /// Word for annotations and metrics.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Disruption => "disruption",
            Self::Interruption => "interruption",
            Self::Draining => "draining",
        }
    }

    /// Reads a label.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Disruption, Self::Interruption, Self::Draining]
            .into_iter()
            .find(|each| each.label() == text)
    }
}

/// A node that is going gets no new pods, before any taint is visible.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fence {
    /// Claim of the machine.
    pub claim: ClaimName,
    /// Why.
    pub reason: FenceReason,
    /// Since when.
    pub from: Timestamp,
}

/// A change of the ledger, as deciders ask for it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LedgerOp {
    /// Holds room for a pod; replaces the pod's earlier nomination.
    Nominate(Nomination),
    /// Gives a pod's room back.
    Withdraw(Uid),
    /// Counts a decided claim against limits.
    Expect(ExpectedClaim),
    /// The claim is there with its capacity, or will never come.
    Settle(ClaimName),
    /// Fences a machine.
    Fence(Fence),
    /// Lifts a fence.
    Unfence(ClaimName),
}

/// What became of promises of room for pods, since the process began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NominationOutcomes {
    /// The pod was bound where its room was.
    pub bound: u64,
    /// The pod was bound elsewhere.
    pub bound_elsewhere: u64,
    /// The time was over while the pod still waited.
    pub expired: u64,
    /// The machine went, or never came.
    pub node_lost: u64,
}

/// The promises at one moment. Cloning is cheap.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    nominations: ShardedMap<Uid, Nomination>,
    // Two tables, so that the extender can ask with the names that it is asked with.
    held_on_nodes: ShardedMap<NodeName, NodeNominations>,
    held_on_claims: ShardedMap<ClaimName, NodeNominations>,
    coming: Arc<BTreeMap<ClaimName, ExpectedClaim>>,
    fences: Arc<BTreeMap<ClaimName, Fence>>,
    outcomes: NominationOutcomes,
}

impl Ledger {
    /// Carries out one change; `false` when nothing changed.
    pub fn apply(&mut self, op: LedgerOp) -> bool {
        match op {
            LedgerOp::Nominate(nomination) => self.nominate(nomination),
            LedgerOp::Withdraw(uid) => self.withdraw(&uid),
            LedgerOp::Expect(coming) => self.expect(coming),
            LedgerOp::Settle(claim) => {
                self.coming.contains_key(&claim)
                    && Arc::make_mut(&mut self.coming).remove(&claim).is_some()
            }
            LedgerOp::Fence(fence) => {
                if self
                    .fences
                    .get(&fence.claim)
                    .is_some_and(|old| old.reason == fence.reason)
                {
                    return false;
                }
                Arc::make_mut(&mut self.fences).insert(fence.claim.clone(), fence);
                true
            }
            LedgerOp::Unfence(claim) => {
                self.fences.contains_key(&claim)
                    && Arc::make_mut(&mut self.fences).remove(&claim).is_some()
            }
        }
    }

    fn expect(&mut self, coming: ExpectedClaim) -> bool {
        let known = self.coming.get(&coming.claim);
        if known.is_some_and(|known| known.pool == coming.pool && known.capacity == coming.capacity)
        {
            return false;
        }
        Arc::make_mut(&mut self.coming).insert(coming.claim.clone(), coming);
        true
    }

    fn nominate(&mut self, nomination: Nomination) -> bool {
        if let Some(old) = self.nominations.get(&nomination.uid)
            && old.place == nomination.place
            && old.requests == nomination.requests
            && old.until >= nomination.until
        {
            return false;
        }
        self.withdraw(&nomination.uid.clone());
        let nomination = Arc::new(nomination);
        let mut held: Vec<_> = self.held(&nomination.place).cloned().collect();
        held.push(Arc::clone(&nomination));
        self.hold(&nomination.place, held);
        self.nominations.insert(nomination.uid.clone(), nomination);
        true
    }

    fn withdraw(&mut self, uid: &Uid) -> bool {
        let Some(old) = self.nominations.remove(uid) else {
            return false;
        };
        let left: Vec<_> = self
            .held(&old.place)
            .filter(|each| each.uid != *uid)
            .cloned()
            .collect();
        self.hold(&old.place, left);
        true
    }

    /// Puts what is held on a place; nothing takes the place out.
    fn hold(&mut self, place: &NominationTarget, held: Vec<Arc<Nomination>>) {
        let some = NodeNominations::of(held).map(Arc::new);
        match (place, some) {
            (NominationTarget::Node(node), Some(held)) => {
                self.held_on_nodes.insert(node.clone(), held)
            }
            (NominationTarget::Node(node), None) => self.held_on_nodes.remove(node),
            (NominationTarget::Claim(claim), Some(held)) => {
                self.held_on_claims.insert(claim.clone(), held)
            }
            (NominationTarget::Claim(claim), None) => self.held_on_claims.remove(claim),
        };
    }

    /// The time of a pod's promise is over while the pod still waits.
    pub fn run_out(&mut self, uid: &Uid) {
        self.outcomes.expired += u64::from(self.withdraw(uid));
    }

    /// Forgets everything held on the machine of a claim that is gone.
    pub fn forget_claim(&mut self, claim: &ClaimName) {
        let place = NominationTarget::Claim(claim.clone());
        let uids: Vec<Uid> = self.held(&place).map(|each| each.uid.clone()).collect();
        for uid in uids {
            self.outcomes.node_lost += u64::from(self.withdraw(&uid));
        }
        self.apply(LedgerOp::Settle(claim.clone()));
        self.apply(LedgerOp::Unfence(claim.clone()));
    }

    /// Forgets every promise, and what became of none.
    pub fn forget(&mut self) {
        *self = Self {
            outcomes: self.outcomes,
            ..Self::default()
        };
    }

    /// Lets a pod's promise end at `until`, unless it ends earlier by itself. Returns whether anything changed.
    pub fn shorten(&mut self, uid: &Uid, until: Timestamp) -> bool {
        let promise = self.nominations.get(uid);
        let Some(promise) = promise.filter(|each| each.until > until) else {
            return false;
        };
        let shorter = Nomination {
            until,
            ..Nomination::clone(promise)
        };
        self.withdraw(uid);
        self.nominate(shorter)
    }

    /// The pod of a promise was bound: `there`, where its room was, or elsewhere. The promise ends.
    pub fn bound(&mut self, uid: &Uid, there: bool) {
        if self.withdraw(uid) {
            self.outcomes.bound += u64::from(there);
            self.outcomes.bound_elsewhere += u64::from(!there);
        }
    }

    /// What became of promises.
    #[must_use]
    pub const fn nomination_outcomes(&self) -> NominationOutcomes {
        self.outcomes
    }

    /// Where a pod is expected.
    #[must_use]
    pub fn nomination(&self, uid: &str) -> Option<&Arc<Nomination>> {
        self.nominations.get(uid)
    }

    /// Every nomination, in a fixed order.
    pub fn nominations(&self) -> impl Iterator<Item = &Arc<Nomination>> {
        self.nominations.values()
    }

    /// What is held on a place.
    pub fn held(&self, place: &NominationTarget) -> impl Iterator<Item = &Arc<Nomination>> {
        match place {
            NominationTarget::Node(node) => self.held_on(Some(node), None),
            NominationTarget::Claim(claim) => self.held_on(None, Some(claim)),
        }
    }

    /// What is held on a machine, by its node name and its claim name.
    pub fn held_on(
        &self,
        node: Option<&str>,
        claim: Option<&str>,
    ) -> impl Iterator<Item = &Arc<Nomination>> + use<'_> {
        self.nominations_on(node, claim)
            .flat_map(NodeNominations::promises)
    }

    /// The same as sums: one for the promises on the node, one for those on the claim, where there are any.
    pub fn nominations_on(
        &self,
        node: Option<&str>,
        claim: Option<&str>,
    ) -> impl Iterator<Item = &NodeNominations> + use<'_> {
        let on_node = node.and_then(|node| self.held_on_nodes.get(node));
        let on_claim = claim.and_then(|claim| self.held_on_claims.get(claim));
        on_node.into_iter().chain(on_claim).map(|held| &**held)
    }

    /// What is held on the machines of claims, in a fixed order.
    pub fn on_claims(&self) -> impl Iterator<Item = (&ClaimName, &NodeNominations)> {
        let held = self.held_on_claims.iter();
        held.map(|(claim, held)| (claim, &**held))
    }

    /// Claims that are decided but not visible or not launched yet.
    #[must_use]
    pub fn coming(&self) -> &BTreeMap<ClaimName, ExpectedClaim> {
        &self.coming
    }

    /// The fence around a claim's machine.
    #[must_use]
    pub fn fence(&self, claim: &str) -> Option<&Fence> {
        self.fences.get(claim)
    }

    /// Every fence.
    #[must_use]
    pub fn fences(&self) -> &BTreeMap<ClaimName, Fence> {
        &self.fences
    }
}

#[cfg(test)]
mod tests;
