//! A pod as a reduced record: its class, which identical pods share, and its own data.

use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;

use super::{DeletionCost, GangKey, LaunchHold, PodClaim, PodClass, RequestedRoom};
use crate::ledger::{Nomination, NominationTarget};
use mortise_apis::names::{NamespacedName, NodeName, PodKey, Uid};

/// `status.phase`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum PodPhase {
    /// Not started.
    Pending,
    /// Started.
    Running,
    /// Completed successfully.
    Succeeded,
    /// Completed with an error.
    Failed,
    /// The kubelet does not respond.
    Unknown,
}

/// The owner that recreates the pod when it is deleted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Owner {
    /// Kind of the controlling owner, such as `ReplicaSet`; `Node` for mirror pods.
    pub kind: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// Its UID.
    pub uid: Uid,
}

/// kube-scheduler's message that no node can run a pod. kube-scheduler writes it again only if the text changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Refusal {
    /// Since when the pod has been unschedulable.
    pub since: Option<Timestamp>,
    /// Message about the nodes, at most [`Self::MOST_CHARS`] characters.
    pub message: Arc<str>,
}

impl Refusal {
    /// Characters of a message that are kept.
    pub const MOST_CHARS: usize = 1_000;
}

/// A pod, as deciders see it.
#[derive(Clone, Debug, PartialEq)]
pub struct Pod {
    /// Namespace and name.
    pub key: PodKey,
    /// UID: a pod of the same name after a deletion is another pod.
    pub uid: Uid,
    /// Everything that scheduling reads, shared by identical pods.
    pub class: Arc<PodClass>,
    /// Labels, shared by pods with equal labels. Sorted by key.
    pub labels: Arc<Vec<(Arc<str>, Arc<str>)>>,
    /// Its device claims; `None` for almost all pods.
    pub claims: Option<Arc<[PodClaim]>>,
    /// Node that it is bound to.
    pub node: Option<NodeName>,
    /// `status.nominatedNodeName`: node on which the scheduler preempts other pods for it.
    pub nominated: Option<NodeName>,
    /// Phase.
    pub phase: PodPhase,
    /// Controlling owner.
    pub owner: Option<Owner>,
    /// Creation.
    pub created: Timestamp,
    /// Deletion timestamp, if it is being deleted.
    pub deleted: Option<Timestamp>,
    /// Finalizers that block the deletion of the pod, separated by commas; `None` for a pod that is not being deleted.
    pub finalizers: Option<Arc<str>>,
    /// `status.startTime`.
    pub started: Option<Timestamp>,
    /// Condition `PodScheduled` has reason `Unschedulable`.
    pub unschedulable: bool,
    /// kube-scheduler's reason and its time; `None` for a pod that is not unschedulable.
    pub refusal: Option<Arc<Refusal>>,
    /// Condition `PodScheduled` has reason `SchedulerError`: kube-scheduler failed, not the pod.
    pub has_scheduler_error: bool,
    /// It has scheduling gates.
    pub gated: bool,
    /// Condition `Ready` is `True`.
    pub ready: bool,
    /// Since when it has been ready; `None` for a pod that is not, and where its condition has no time.
    pub ready_since: Option<Timestamp>,
    /// Annotation `karpenter.sh/do-not-disrupt`, as written.
    pub do_not_disrupt: Option<Arc<str>>,
    /// Cluster Autoscaler may not evict it, and its annotations are respected.
    pub is_unsafe_to_evict: bool,
    /// What keeps nodes from being launched for it, where annotations of Cluster Autoscaler are respected.
    pub launch_hold: Option<LaunchHold>,
    /// Annotation `controller.kubernetes.io/pod-deletion-cost`, and who wrote it.
    pub deletion_cost: DeletionCost,
    /// Annotation `mortise.sh/max-moves-per-day`, as written.
    pub max_moves_per_day: Option<Arc<str>>,
    /// Annotation `mortise.sh/hand-over`, as written.
    pub hand_over: Option<Arc<str>>,
    /// `spec.terminationGracePeriodSeconds`; 30 when absent.
    pub grace_seconds: i64,
    /// It is a mirror of a static pod.
    pub mirror: bool,
    /// The group that it names; it holds only where groups of its kind do.
    pub gang: Option<Arc<GangKey>>,
    /// The capacity buffer that it stands for: a virtual pod, which exists in memory only.
    pub buffer: Option<Arc<NamespacedName>>,
    /// The room that a ProvisioningRequest asks for, if it stands for that: it waits as any pod does, and exists in memory only.
    pub requested: Option<RequestedRoom>,
}

impl Pod {
    /// The nomination of this pod to a node or NodeClaim.
    #[must_use]
    pub fn nomination(
        &self,
        place: NominationTarget,
        from: Timestamp,
        until: Timestamp,
    ) -> Nomination {
        Nomination {
            pod: self.key.clone(),
            uid: self.uid.clone(),
            place,
            requests: self.class.requests.clone(),
            priority: self.class.priority,
            from,
            until,
        }
    }

    /// Whether a new node could help this pod: it is pending, kube-scheduler preempts no pods for it, and its owner is neither
    /// a DaemonSet nor a Node. With `ahead`, it counts before kube-scheduler has marked it `Unschedulable`.
    #[must_use]
    pub fn is_provisionable(&self, ahead: bool) -> bool {
        (self.unschedulable || ahead)
            && self.node.is_none()
            && self.nominated.is_none()
            && !self.gated
            && self.deleted.is_none()
            && !self.is_daemon()
            && !self.is_node_owned()
            && !self.is_terminal()
    }

    /// Whether it exists in memory only, for the room of a capacity buffer.
    #[must_use]
    pub const fn is_virtual(&self) -> bool {
        self.buffer.is_some()
    }

    /// Owned by a DaemonSet.
    #[must_use]
    pub fn is_daemon(&self) -> bool {
        self.owner
            .as_ref()
            .is_some_and(|owner| &*owner.kind == "DaemonSet")
    }

    /// Owned by a Job: it completes.
    #[must_use]
    pub fn is_of_job(&self) -> bool {
        self.owner
            .as_ref()
            .is_some_and(|owner| &*owner.kind == "Job")
    }

    /// Owned by a Node (static pods).
    #[must_use]
    pub fn is_node_owned(&self) -> bool {
        self.mirror
            || self
                .owner
                .as_ref()
                .is_some_and(|owner| &*owner.kind == "Node")
    }

    /// Succeeded or failed.
    #[must_use]
    pub const fn is_terminal(&self) -> bool {
        matches!(self.phase, PodPhase::Succeeded | PodPhase::Failed)
    }

    /// Not terminal and not being deleted.
    #[must_use]
    pub const fn is_active(&self) -> bool {
        !self.is_terminal() && self.deleted.is_none()
    }

    /// Whether it would be rescheduled if its node were deleted: active (or a terminating StatefulSet pod), no DaemonSet pod,
    /// no mirror pod.
    #[must_use]
    pub fn is_reschedulable(&self) -> bool {
        let stateful = self
            .owner
            .as_ref()
            .is_some_and(|owner| &*owner.kind == "StatefulSet");
        (self.is_active() || (self.deleted.is_some() && stateful && !self.is_terminal()))
            && !self.is_daemon()
            && !self.is_node_owned()
    }

    /// Namespace and name of its owner.
    #[must_use]
    pub fn owner_key(&self) -> Option<NamespacedName> {
        let owner = self.owner.as_ref()?;
        let namespace = Arc::clone(&self.key.namespace);
        Some(NamespacedName::new(namespace, Arc::clone(&owner.name)))
    }

    /// The value of a label.
    #[must_use]
    pub fn label(&self, key: &str) -> Option<&Arc<str>> {
        self.labels
            .iter()
            .find(|(k, _)| &**k == key)
            .map(|(_, value)| value)
    }
}
