//! May this pod go to this node, as far as nominations, fences and the node's lifetime are concerned?

use std::sync::Arc;

use jiff::Timestamp;
use mortise_planning::scheduling::volumes_fit;
use mortise_state::ledger::{FenceReason, NodeNominations, Nomination, NominationTarget};
use mortise_state::snapshot::{Snapshot, StateNode};

use super::{ExtenderState, IncomingPod, NodeLifetime};

/// Why a node is denied. The messages are constants on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Denial {
    /// A disruption command is about to remove it.
    Disrupting,
    /// The cloud reclaims it.
    Interrupted,
    /// It is being drained.
    Draining,
    /// Its free room is nominated for other pods.
    Nominated,
    /// Its free room is reserved for its DaemonSet pods, which are still to come.
    DaemonSetReserved,
    /// The pod is nominated to another node, which passed.
    NominatedElsewhere,
    /// It should go, and waits only for its pods. Dropped when no other node is left.
    Drifted,
    /// It ends before the pod does. Dropped when no other node is left.
    Expiring,
}

impl Denial {
    /// Every denial.
    pub const ALL: [Self; 8] = [
        Self::Disrupting,
        Self::Interrupted,
        Self::Draining,
        Self::Nominated,
        Self::DaemonSetReserved,
        Self::NominatedElsewhere,
        Self::Drifted,
        Self::Expiring,
    ];

    /// What the scheduler shows on the pod.
    #[must_use]
    pub const fn message(self) -> &'static str {
        match self {
            Self::Disrupting => "node is being replaced or removed",
            Self::Interrupted => "node is being interrupted by the cloud provider",
            Self::Draining => "node is being drained",
            Self::Nominated => "free capacity is nominated to other pods",
            Self::DaemonSetReserved => "free capacity is reserved for DaemonSet pods",
            Self::NominatedElsewhere => "pod is nominated to another node",
            Self::Drifted => "node is drifted and awaits disruption",
            Self::Expiring => "node expires before the pod completes",
        }
    }

    /// It only says what would be better: it holds as long as another node is left.
    #[must_use]
    pub const fn is_soft(self) -> bool {
        matches!(self, Self::Drifted | Self::Expiring)
    }
}

impl From<FenceReason> for Denial {
    fn from(reason: FenceReason) -> Self {
        match reason {
            FenceReason::Disruption => Self::Disrupting,
            FenceReason::Interruption | FenceReason::Rebalance => Self::Interrupted,
            FenceReason::Draining => Self::Draining,
        }
    }
}

/// Answers for one pod on one snapshot.
pub struct NodeFilter<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) state: &'a ExtenderState,
    pub(super) incoming: &'a IncomingPod,
    pub(super) now: Timestamp,
    /// Room that is kept for the pod itself.
    nomination: Option<&'a Nomination>,
}

/// What becomes of a pod on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilterVerdict {
    /// It may not go there.
    Denied(Denial),
    /// It may go there. The node has nominations, so the pass must be charged.
    PassedWithNominations,
    /// It may go there, or the snapshot does not know the node.
    Passed,
}

impl<'a> NodeFilter<'a> {
    /// For a pod on a snapshot, with what is known from earlier calls.
    #[must_use]
    pub fn new(
        snapshot: &'a Snapshot,
        state: &'a ExtenderState,
        incoming: &'a IncomingPod,
        now: Timestamp,
    ) -> Self {
        let nomination = snapshot.ledger.nomination(&incoming.pod.uid);
        Self {
            snapshot,
            state,
            incoming,
            now,
            nomination: nomination
                .map(|each| &**each)
                .filter(|each| each.until > now),
        }
    }

    /// The verdict on the node with this name.
    #[must_use]
    pub fn decide(&self, name: &str) -> FilterVerdict {
        let Some(node) = self.snapshot.node(name) else {
            return FilterVerdict::Passed;
        };
        // The scheduler has evicted pods to make room there: a decision that can still be withdrawn gives way.
        let nominated = self.incoming.nominated.as_deref() == Some(name);
        if let Some(fence) = self.fence(node)
            && !(nominated && fence == Denial::Disrupting)
        {
            return FilterVerdict::Denied(fence);
        }
        if nominated {
            return FilterVerdict::Passed;
        }
        let by_capacity = self.decide_by_capacity(name, node);
        match by_capacity {
            FilterVerdict::Denied(_) => by_capacity,
            _ => self
                .soft_denial(node)
                .map_or(by_capacity, FilterVerdict::Denied),
        }
    }

    /// The fence around a node, if any.
    #[must_use]
    pub fn fence(&self, node: &StateNode) -> Option<Denial> {
        if node.deleting {
            return Some(Denial::Draining);
        }
        let claim = node.claim.as_ref()?.metadata.name.as_deref()?;
        self.snapshot
            .ledger
            .fence(claim)
            .map(|fence| fence.reason.into())
    }

    /// Whether the pod still fits after all nominations of pods of equal or higher priority, and after the
    /// DaemonSet pods that are to come. A pod that is itself nominated there always does.
    fn decide_by_capacity(&self, name: &str, node: &Arc<StateNode>) -> FilterVerdict {
        let missing =
            self.state
                .daemonset_reservations
                .missing_on(self.snapshot, name, node, self.now);
        if self.is_expected(node) {
            return FilterVerdict::PassedWithNominations;
        }
        let mut nominations = self.nominations_on(node).peekable();
        if missing.is_none() && nominations.peek().is_none() {
            return FilterVerdict::Passed;
        }
        let pod = &self.incoming.pod;
        let mut free = node.free();
        nominations.for_each(|each| free.sub_assign(&each.requests(pod.class.priority, self.now)));
        free.sub_assign(&self.state.assumed_pods.usage_by_others(name, &pod.uid));
        if !pod.class.requests.fits_in(&free) || !self.has_volume_slots(node) {
            return FilterVerdict::Denied(Denial::Nominated);
        }
        if let Some(missing) = missing {
            free.sub_assign(&missing);
            if !pod.class.requests.fits_in(&free) {
                return FilterVerdict::Denied(Denial::DaemonSetReserved);
            }
        }
        FilterVerdict::PassedWithNominations
    }

    /// Whether the node has slots for the pod's volumes in addition to those of the pods that come before it.
    fn has_volume_slots(&self, node: &StateNode) -> bool {
        let pod = &self.incoming.pod;
        if pod.class.volumes.is_empty() {
            return true;
        }
        let earlier = self
            .nominations_on(node)
            .flat_map(|each| each.active(pod.class.priority, self.now));
        let others = earlier.filter_map(|each| {
            let pod = self.snapshot.pods.get(&each.pod);
            pod.filter(|pod| pod.uid == each.uid)
        });
        volumes_fit(self.snapshot, node, others, pod)
    }

    /// Why the pod should rather not go there.
    fn soft_denial(&self, node: &StateNode) -> Option<Denial> {
        if node.claim.is_none() || self.is_expected(node) {
            return None;
        }
        let lifetime = NodeLifetime::from_node(node, self.now);
        if lifetime.ends_before(self.incoming) {
            Some(Denial::Expiring)
        } else if lifetime.is_blocked() {
            Some(Denial::Drifted)
        } else {
            None
        }
    }

    /// Nominations on a node that still hold.
    fn nominations_on(&self, node: &StateNode) -> impl Iterator<Item = &'a NodeNominations> {
        let (node, claim) = node.names();
        let nominations = self.snapshot.ledger.nominations_on(node, claim);
        nominations.filter(|each| each.has_active(self.now))
    }

    /// Of these nodes the one that the pod is nominated to.
    #[must_use]
    pub fn nominated_among<'n>(&self, names: &[&'n str]) -> Option<&'n str> {
        let node = match &self.nomination?.place {
            NominationTarget::Node(node) => node.clone(),
            NominationTarget::Claim(claim) => self.snapshot.node_of_claim(claim)?.node_name()?,
        };
        names.iter().copied().find(|name| *name == &*node)
    }

    /// The scheduler asks about nodes that the pod may use, so it is sent to its own one, unless that is to go: on another it
    /// might take what others need who were placed with it (room, a port, a domain).
    pub(super) fn prefers_nominated(&self, own: &str) -> bool {
        let node = self.snapshot.node(own);
        node.is_some_and(|node| self.fence(node).is_none())
    }

    /// Room is kept for the pod somewhere.
    pub(super) const fn is_nominated(&self) -> bool {
        self.nomination.is_some()
    }

    /// The pod is expected on this node.
    #[must_use]
    pub fn is_expected(&self, node: &StateNode) -> bool {
        let (node, claim) = node.names();
        self.nomination
            .is_some_and(|nomination| match &nomination.place {
                NominationTarget::Node(name) => node == Some(&**name),
                NominationTarget::Claim(name) => claim == Some(&**name),
            })
    }
}
