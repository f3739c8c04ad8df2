//! What the leader knows and no Kubernetes object shows yet: nominations, fences, expected claims, and the
//! room of capacity buffers and ProvisioningRequests.
//!
//! Invariants: every nomination has an owner and an expiry; a pod has at most one nomination; a fence lasts until the command
//! that set it ends. The engine is the only writer. What followers must know is stored in annotations of the NodeClaim
//! ([`mortise_apis::labels::NOMINATED_PODS`], [`mortise_apis::labels::FENCE`]), from which the index restores it.

mod buffer_room;
mod node_nominations;
mod request_room;
mod rooms;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;

pub use buffer_room::BufferRoom;
pub use node_nominations::NodeNominations;
pub use request_room::RequestRoom;
pub use rooms::Rooms;

use crate::sharded_map::ShardedMap;
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::names::{ClaimName, NodeName, PodKey, PoolName, Uid};
use mortise_apis::resources::Resources;

/// The node or NodeClaim that a pod is nominated to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NominationTarget {
    /// A Node that exists.
    Node(NodeName),
    /// The node of a NodeClaim, whether or not its Node exists.
    Claim(ClaimName),
}

/// Capacity of a node or NodeClaim that is set aside for a pending pod until it is bound, or until `until`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Nomination {
    /// The pod.
    pub pod: PodKey,
    /// Its UID.
    pub uid: Uid,
    /// Target of the nomination.
    pub place: NominationTarget,
    /// Requests of the pod.
    pub requests: Resources,
    /// Priority of the pod: a nomination never blocks a pod of higher priority.
    pub priority: i32,
    /// Start.
    pub from: Timestamp,
    /// When the nomination expires.
    pub until: Timestamp,
}

/// A NodeClaim that was planned and that no object shows yet, or whose capacity is not known yet. It counts against limits.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ExpectedClaim {
    /// Name of the NodeClaim.
    pub claim: ClaimName,
    /// NodePool of the NodeClaim.
    pub pool: PoolName,
    /// The largest capacity that it can have: element-wise maximum over its instance types. `None` if no plan is recorded; then
    /// [`crate::snapshot::PoolUsage`] counts the largest capacity that the NodeClaim allows.
    pub capacity: Option<Resources>,
    /// The NodeClaim that is being created, while no object shows it; `None` if it was restored from an object.
    #[serde(skip)]
    pub object: Option<Arc<NodeClaim>>,
    /// Start.
    pub from: Timestamp,
}

/// Why a node is fenced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FenceReason {
    /// A disruption command is about to delete it.
    Disruption,
    /// The cloud is about to interrupt its instance.
    Interruption,
    /// The cloud recommends to leave its instance, and the NodePool asks for a cordon then.
    Rebalance,
    /// It is draining.
    Draining,
}

impl FenceReason {
    /// Value in annotations and metrics.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Disruption => "disruption",
            Self::Interruption => "interruption",
            Self::Rebalance => "rebalance",
            Self::Draining => "draining",
        }
    }

    /// Parses a label.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [
            Self::Disruption,
            Self::Interruption,
            Self::Rebalance,
            Self::Draining,
        ]
        .into_iter()
        .find(|each| each.label() == text)
    }
}

/// Keeps new pods off a node before a taint is visible.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fence {
    /// NodeClaim of the node.
    pub claim: ClaimName,
    /// Reason.
    pub reason: FenceReason,
    /// Start.
    pub from: Timestamp,
}

/// A change of the ledger that a decider requests.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LedgerOp {
    /// Nominates a pod; replaces its earlier nomination.
    Nominate(Nomination),
    /// Ends the nomination of a pod.
    Withdraw(Uid),
    /// Counts a planned NodeClaim against limits.
    Expect(ExpectedClaim),
    /// The capacity of the NodeClaim is known, or it will not be created.
    Settle(ClaimName),
    /// Fences a node.
    Fence(Fence),
    /// Removes a fence.
    Unfence(ClaimName),
    /// Where virtual pods have room, as of the last pass. It keeps nothing free: real pods come first everywhere.
    SetRooms(Arc<Rooms<BufferRoom>>),
    /// What the last pass found for ProvisioningRequests.
    SetRequestRooms(Arc<Rooms<RequestRoom>>),
}

/// How nominations ended since the process started, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NominationOutcomes {
    /// The pod was bound to its target.
    pub bound: u64,
    /// The pod was bound to another node.
    pub bound_elsewhere: u64,
    /// The nomination expired while the pod was pending.
    pub expired: u64,
    /// The node was deleted, or was never created.
    pub node_lost: u64,
}

/// The current ledger. Cloning is cheap.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    nominations: ShardedMap<Uid, Nomination>,
    // Two tables, so that the extender can look up the names that it receives.
    on_nodes: ShardedMap<NodeName, NodeNominations>,
    on_claims: ShardedMap<ClaimName, NodeNominations>,
    expected: Arc<BTreeMap<ClaimName, ExpectedClaim>>,
    fences: Arc<BTreeMap<ClaimName, Fence>>,
    rooms: Arc<Rooms<BufferRoom>>,
    request_rooms: Arc<Rooms<RequestRoom>>,
    outcomes: NominationOutcomes,
}

impl Ledger {
    /// Applies one change; `false` if nothing changed.
    pub fn apply(&mut self, op: LedgerOp) -> bool {
        match op {
            LedgerOp::Nominate(nomination) => self.nominate(nomination),
            LedgerOp::Withdraw(uid) => self.withdraw(&uid),
            LedgerOp::Expect(expected) => self.expect(expected),
            LedgerOp::Settle(claim) => {
                self.expected.contains_key(&claim)
                    && Arc::make_mut(&mut self.expected).remove(&claim).is_some()
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
            LedgerOp::SetRooms(rooms) => {
                let is_changed = *self.rooms != *rooms;
                self.rooms = rooms;
                is_changed
            }
            LedgerOp::SetRequestRooms(rooms) => {
                let is_changed = *self.request_rooms != *rooms;
                self.request_rooms = rooms;
                is_changed
            }
        }
    }

    fn expect(&mut self, expected: ExpectedClaim) -> bool {
        let known = self.expected.get(&expected.claim);
        if known
            .is_some_and(|known| known.pool == expected.pool && known.capacity == expected.capacity)
        {
            return false;
        }
        Arc::make_mut(&mut self.expected).insert(expected.claim.clone(), expected);
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
        let mut nominations: Vec<_> = self.nominations_to(&nomination.place).cloned().collect();
        nominations.push(Arc::clone(&nomination));
        self.set_nominations(&nomination.place, nominations);
        self.nominations.insert(nomination.uid.clone(), nomination);
        true
    }

    fn withdraw(&mut self, uid: &Uid) -> bool {
        let Some(old) = self.nominations.remove(uid) else {
            return false;
        };
        let left: Vec<_> = self
            .nominations_to(&old.place)
            .filter(|each| each.uid != *uid)
            .cloned()
            .collect();
        self.set_nominations(&old.place, left);
        true
    }

    /// Replaces the nominations to a target; an empty list removes the target.
    fn set_nominations(&mut self, place: &NominationTarget, nominations: Vec<Arc<Nomination>>) {
        let nominations = NodeNominations::new(nominations).map(Arc::new);
        match (place, nominations) {
            (NominationTarget::Node(node), Some(nominations)) => {
                self.on_nodes.insert(node.clone(), nominations)
            }
            (NominationTarget::Node(node), None) => self.on_nodes.remove(node),
            (NominationTarget::Claim(claim), Some(nominations)) => {
                self.on_claims.insert(claim.clone(), nominations)
            }
            (NominationTarget::Claim(claim), None) => self.on_claims.remove(claim),
        };
    }

    /// Ends a nomination that expired while its pod is pending.
    pub fn expire(&mut self, uid: &Uid) {
        self.outcomes.expired += u64::from(self.withdraw(uid));
    }

    /// Removes the nominations, the fence and the expected capacity of a deleted NodeClaim.
    pub fn remove_claim(&mut self, claim: &ClaimName) {
        let place = NominationTarget::Claim(claim.clone());
        let uids: Vec<Uid> = self
            .nominations_to(&place)
            .map(|each| each.uid.clone())
            .collect();
        for uid in uids {
            self.outcomes.node_lost += u64::from(self.withdraw(&uid));
        }
        self.apply(LedgerOp::Settle(claim.clone()));
        self.apply(LedgerOp::Unfence(claim.clone()));
    }

    /// Removes everything except the outcome counters.
    pub fn clear(&mut self) {
        *self = Self {
            outcomes: self.outcomes,
            ..Self::default()
        };
    }

    /// Lets a nomination expire at `until`, unless it expires earlier. Returns whether anything changed.
    pub fn shorten(&mut self, uid: &Uid, until: Timestamp) -> bool {
        let nomination = self.nominations.get(uid);
        let Some(nomination) = nomination.filter(|each| each.until > until) else {
            return false;
        };
        let shorter = Nomination {
            until,
            ..Nomination::clone(nomination)
        };
        self.withdraw(uid);
        self.nominate(shorter)
    }

    /// Ends the nomination of a pod that was bound: to its target (`there`), or to another node.
    pub fn record_bound(&mut self, uid: &Uid, there: bool) {
        if self.withdraw(uid) {
            self.outcomes.bound += u64::from(there);
            self.outcomes.bound_elsewhere += u64::from(!there);
        }
    }

    /// How nominations ended.
    #[must_use]
    pub const fn nomination_outcomes(&self) -> NominationOutcomes {
        self.outcomes
    }

    /// The nomination of a pod.
    #[must_use]
    pub fn nomination(&self, uid: &str) -> Option<&Arc<Nomination>> {
        self.nominations.get(uid)
    }

    /// Every nomination, in a fixed order.
    pub fn nominations(&self) -> impl Iterator<Item = &Arc<Nomination>> {
        self.nominations.values()
    }

    /// The nominations to a target.
    pub fn nominations_to(
        &self,
        place: &NominationTarget,
    ) -> impl Iterator<Item = &Arc<Nomination>> {
        match place {
            NominationTarget::Node(node) => self.nominations_of_node(Some(node), None),
            NominationTarget::Claim(claim) => self.nominations_of_node(None, Some(claim)),
        }
    }

    /// The nominations to a node, by its node name and its NodeClaim name.
    pub fn nominations_of_node(
        &self,
        node: Option<&str>,
        claim: Option<&str>,
    ) -> impl Iterator<Item = &Arc<Nomination>> + use<'_> {
        self.nominations_on(node, claim)
            .flat_map(NodeNominations::nominations)
    }

    /// The same as sums: one for nominations to the Node, one for those to the NodeClaim, if there are any.
    pub fn nominations_on(
        &self,
        node: Option<&str>,
        claim: Option<&str>,
    ) -> impl Iterator<Item = &NodeNominations> + use<'_> {
        let on_node = node.and_then(|node| self.on_nodes.get(node));
        let on_claim = claim.and_then(|claim| self.on_claims.get(claim));
        on_node
            .into_iter()
            .chain(on_claim)
            .map(|nominations| &**nominations)
    }

    /// The nominations to NodeClaims, in a fixed order.
    pub fn nominations_on_claims(&self) -> impl Iterator<Item = (&ClaimName, &NodeNominations)> {
        let nominations = self.on_claims.iter();
        nominations.map(|(claim, nominations)| (claim, &**nominations))
    }

    /// NodeClaims that are planned but not visible or not launched yet.
    #[must_use]
    pub fn expected_claims(&self) -> &BTreeMap<ClaimName, ExpectedClaim> {
        &self.expected
    }

    /// Where virtual pods of capacity buffers have room, as of the last pass.
    #[must_use]
    pub fn rooms(&self) -> &Arc<Rooms<BufferRoom>> {
        &self.rooms
    }

    /// What the last pass found for ProvisioningRequests.
    #[must_use]
    pub fn request_rooms(&self) -> &Arc<Rooms<RequestRoom>> {
        &self.request_rooms
    }

    /// The fence of a NodeClaim's node.
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
