//! May this pod go to this node, as far as promises and fences are concerned?

use std::sync::Arc;

use jiff::Timestamp;
use mortise_core::ledger::FenceReason;
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
}

impl Denial {
    /// Every denial.
    pub const ALL: [Self; 4] = [
        Self::Disrupting,
        Self::Interrupted,
        Self::Draining,
        Self::Reserved,
    ];

    /// What the scheduler shows on the pod.
    #[must_use]
    pub const fn message(self) -> &'static str {
        match self {
            Self::Disrupting => "node is being replaced or removed",
            Self::Interrupted => "node is taken back by the cloud",
            Self::Draining => "node is being drained",
            Self::Reserved => "free room of the node is promised to other pods",
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

impl Verdicts<'_> {
    /// `None` = may go there. A node that the snapshot does not know is passed.
    #[must_use]
    pub fn denial(&self, node: &str) -> Option<Denial> {
        let node = self.snapshot.node(node)?;
        self.fence(node).or_else(|| self.reservation(node))
    }

    /// The fence around a node, if any.
    #[must_use]
    pub fn fence(&self, node: &StateNode) -> Option<Denial> {
        if node.deleting {
            return Some(Denial::Draining);
        }
        let claim = node.claim_name()?;
        self.snapshot
            .ledger
            .fence(&claim)
            .map(|fence| fence.reason.into())
    }

    /// Room is denied if, after everything promised to pods of equal or higher priority, the pod no longer fits. A pod
    /// that is itself promised room there always passes.
    fn reservation(&self, node: &StateNode) -> Option<Denial> {
        let held = self.held(node);
        if held.is_empty() || held.iter().any(|each| each.uid == self.pod.uid) {
            return None;
        }
        let mut free = node.free();
        for each in held
            .iter()
            .filter(|each| each.priority >= self.pod.class.priority)
        {
            free.sub_assign(&each.requests);
        }
        let name = node.node_name()?;
        free.sub_assign(&self.charges.others(&name, &self.pod.uid, self.now));
        (!self.pod.class.requests.fits_in(&free)).then_some(Denial::Reserved)
    }

    /// Promises on a node that still hold.
    fn held(&self, node: &StateNode) -> Vec<&Arc<mortise_core::ledger::Nomination>> {
        let held = self
            .snapshot
            .ledger
            .held_on(node.node_name().as_ref(), node.claim_name().as_ref());
        held.into_iter()
            .filter(|each| each.until > self.now)
            .collect()
    }

    /// Whether the node has promises, so that passing it must be charged.
    #[must_use]
    pub fn has_promises(&self, node: &str) -> bool {
        self.snapshot
            .node(node)
            .is_some_and(|node| !self.held(node).is_empty())
    }

    /// The pod is expected on this node.
    #[must_use]
    pub fn is_expected(&self, node: &StateNode) -> bool {
        self.held(node).iter().any(|each| each.uid == self.pod.uid)
    }
}
