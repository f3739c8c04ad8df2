//! May this pod go to this node, as far as promises and fences are concerned?

use std::sync::Arc;

use jiff::Timestamp;
use mortise_core::ledger::{FenceReason, Nomination, Place};
use mortise_core::snapshot::{Pod, Snapshot, StateNode};

use super::Charges;

/// Why a node is denied. The messages are constants on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Denial {
    /// A disruption command is about to remove it.
    Disrupting,
    /// The cloud takes it back.
    Interrupted,
    /// It is being drained.
    Draining,
    /// Its free room is promised to other pods.
    Reserved,
    /// The pod's own room is on another node, which passed.
    Elsewhere,
}

impl Denial {
    /// Every denial.
    pub const ALL: [Self; 5] = [
        Self::Disrupting,
        Self::Interrupted,
        Self::Draining,
        Self::Reserved,
        Self::Elsewhere,
    ];

    /// What the scheduler shows on the pod.
    #[must_use]
    pub const fn message(self) -> &'static str {
        match self {
            Self::Disrupting => "node is being replaced or removed",
            Self::Interrupted => "node is taken back by the cloud",
            Self::Draining => "node is being drained",
            Self::Reserved => "free room of the node is promised to other pods",
            Self::Elsewhere => "room is kept for the pod on another node",
        }
    }
}

impl From<FenceReason> for Denial {
    fn from(reason: FenceReason) -> Self {
        match reason {
            FenceReason::Disruption => Self::Disrupting,
            FenceReason::Interruption => Self::Interrupted,
            FenceReason::Draining => Self::Draining,
        }
    }
}

/// Answers for one pod on one snapshot.
pub struct Verdicts<'a> {
    /// The cluster.
    pub snapshot: &'a Snapshot,
    /// What passed pods may be about to take.
    pub charges: &'a Charges,
    /// The pod.
    pub pod: &'a Arc<Pod>,
    /// Now.
    pub now: Timestamp,
}

/// What becomes of a pod on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may not go there.
    Denied(Denial),
    /// It may go there. Room of the node is promised, so the pass must be charged.
    BesidePromises,
    /// It may go there, or the snapshot does not know the node.
    Passed,
}

impl Verdicts<'_> {
    /// The verdict on the node with this name.
    #[must_use]
    pub fn on(&self, name: &str) -> Verdict {
        let Some(node) = self.snapshot.node(name) else {
            return Verdict::Passed;
        };
        if let Some(fence) = self.fence(node) {
            return Verdict::Denied(fence);
        }
        if self.held(node).next().is_none() {
            Verdict::Passed
        } else if self.has_room(name, node) {
            Verdict::BesidePromises
        } else {
            Verdict::Denied(Denial::Reserved)
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

    /// Whether the pod still fits after everything that is promised to pods of equal or higher priority. A pod that is
    /// itself promised room there always does.
    fn has_room(&self, name: &str, node: &StateNode) -> bool {
        let mut free = node.free();
        for each in self.held(node) {
            if each.uid == self.pod.uid {
                return true;
            }
            if each.priority >= self.pod.class.priority {
                free.sub_assign(&each.requests);
            }
        }
        free.sub_assign(&self.charges.others(name, &self.pod.uid, self.now));
        self.pod.class.requests.fits_in(&free)
    }

    /// Promises on a node that still hold.
    fn held<'b>(&'b self, node: &'b StateNode) -> impl Iterator<Item = &'b Arc<Nomination>> {
        let (node, claim) = node.names();
        let held = self.snapshot.ledger.held_on(node, claim);
        held.filter(|each| each.until > self.now)
    }

    /// Of these nodes the one on which room is kept for the pod. The scheduler asks about nodes that the pod may use, so it
    /// is sent there: on another one it might take what others need who were placed with it (room, a port, a domain).
    #[must_use]
    pub fn kept_on<'n>(&self, names: &[&'n str]) -> Option<&'n str> {
        let promise = self.snapshot.ledger.nomination(&self.pod.uid)?;
        if promise.until <= self.now {
            return None;
        }
        let node = match &promise.place {
            Place::Node(node) => node.clone(),
            Place::Claim(claim) => self.snapshot.node_of_claim(claim)?.node_name()?,
        };
        let name = names.iter().copied().find(|name| *name == &*node)?;
        let fenced = self
            .snapshot
            .node(name)
            .is_none_or(|node| self.fence(node).is_some());
        (!fenced).then_some(name)
    }

    /// The pod is expected on this node.
    #[must_use]
    pub fn is_expected(&self, node: &StateNode) -> bool {
        self.held(node).any(|each| each.uid == self.pod.uid)
    }
}
