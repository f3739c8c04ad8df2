//! The closed list of edits of an object.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use mortise_apis::karpenter::capacitybuffer::ReplicaPeaks;
use mortise_apis::names::Uid;
use mortise_apis::taints::has_disrupted;
use mortise_cloudprovider::PlannedInterruption;
use mortise_state::ledger::FenceReason;

use super::capacity_type_labels::CapacityTypeLabels;
use super::deletion_reason::DeletionReason;
use super::finalizers::Finalizers;
use super::instance_metadata::InstanceMetadata;
use super::node_taints::NodeTaints;
use super::registration::Registration;
use super::status::StatusEdit;

/// What a write changes on its object. Lists are replaced whole; of maps, only the keys that are named here change.
#[derive(Clone, Debug, PartialEq)]
pub enum ObjectEdit {
    /// Replaces the finalizers.
    SetFinalizers(Finalizers),
    /// Records on a NodeClaim which call launches its instance together with others.
    SetLaunchBatch {
        /// Token of the call.
        token: Arc<str>,
        /// All finalizers after the edit, if one is added.
        finalizers: Option<Finalizers>,
    },
    /// Adds labels.
    SetLabels(BTreeMap<String, String>),
    /// Adds what a launch found out about the instance of a NodeClaim.
    SetInstanceMetadata(InstanceMetadata),
    /// Writes hashes and the version of their algorithm, by annotation.
    SetHashes(BTreeMap<String, String>),
    /// Adds annotations by which a NodeClaim remembers that its instance has all tags.
    SetTagged(BTreeMap<String, String>),
    /// Corrects how the instance is paid for, on a NodeClaim or a Node.
    SetCapacityType(CapacityTypeLabels),
    /// Records on a NodeClaim who deletes it by force, and why.
    SetDeletionReason(DeletionReason),
    /// Fences a NodeClaim against new pods, or removes the fence.
    SetFence(Option<FenceReason>),
    /// Records on a NodeClaim what the cloud has announced about its instance.
    SetInterruption {
        /// What, and when it begins.
        plan: PlannedInterruption,
        /// Fences it with the same write.
        fence: Option<FenceReason>,
        /// From then on its pods are deleted instead of evicted.
        deadline: Option<Timestamp>,
    },
    /// Sets the time at which pods of a NodeClaim are deleted instead of evicted.
    SetDeadline {
        /// That time.
        at: Timestamp,
        /// Recorded with it if the deadline is part of a forced deletion.
        reason: Option<DeletionReason>,
    },
    /// Gives a Node the metadata and taints of its NodeClaim.
    Register(Registration),
    /// Labels a Node as initialized.
    Initialize,
    /// Adds or removes the disrupted taint of a Node, and its load balancer label.
    SetTaints(NodeTaints),
    /// Sets the cost of deleting a pod, and that it is ours; `None` removes both.
    SetDeletionCost(Option<i32>),
    /// Records on a CapacityBuffer the most replicas of its workload in each hour.
    SetReplicaPeaks(ReplicaPeaks),
    /// Restarts a Deployment so that the pod with this UID is replaced. For the same pod it does nothing a second time.
    HandOver(Uid),
    /// Changes the status subresource.
    SetStatus(StatusEdit),
}

/// Which edit it is, without its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EditKind {
    /// [`ObjectEdit::SetFinalizers`].
    Finalizers,
    /// [`ObjectEdit::SetLaunchBatch`].
    LaunchBatch,
    /// [`ObjectEdit::SetLabels`].
    Labels,
    /// [`ObjectEdit::SetInstanceMetadata`].
    InstanceMetadata,
    /// [`ObjectEdit::SetHashes`].
    Hashes,
    /// [`ObjectEdit::SetTagged`].
    Tagged,
    /// [`ObjectEdit::SetCapacityType`].
    CapacityType,
    /// [`ObjectEdit::SetDeletionReason`].
    DeletionReason,
    /// [`ObjectEdit::SetFence`].
    Fence,
    /// [`ObjectEdit::SetInterruption`].
    Interruption,
    /// [`ObjectEdit::SetDeadline`].
    Deadline,
    /// [`ObjectEdit::Register`].
    Registration,
    /// [`ObjectEdit::Initialize`].
    Initialization,
    /// [`ObjectEdit::SetTaints`].
    Taints,
    /// [`ObjectEdit::SetDeletionCost`].
    DeletionCost,
    /// [`ObjectEdit::SetReplicaPeaks`].
    ReplicaPeaks,
    /// [`ObjectEdit::HandOver`].
    HandOver,
    /// [`ObjectEdit::SetStatus`].
    Status,
}

impl EditKind {
    /// Name for logs and metrics.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Finalizers => "finalizers",
            Self::LaunchBatch => "launch_batch",
            Self::Labels => "labels",
            Self::InstanceMetadata => "instance_metadata",
            Self::Hashes => "hashes",
            Self::Tagged => "tagged",
            Self::CapacityType => "capacity_type",
            Self::DeletionReason => "deletion_reason",
            Self::Fence => "fence",
            Self::Interruption => "interruption",
            Self::Deadline => "deadline",
            Self::Registration => "registration",
            Self::Initialization => "initialization",
            Self::Taints => "taints",
            Self::DeletionCost => "deletion_cost",
            Self::ReplicaPeaks => "replica_peaks",
            Self::HandOver => "hand_over",
            Self::Status => "status",
        }
    }
}

/// Whether a write waits for the rate limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WritePriority {
    /// In order of arrival.
    Normal,
    /// Before all others, which wait longer in return: the limit holds for the sum.
    Immediate,
}

impl ObjectEdit {
    /// Which edit it is.
    #[must_use]
    pub const fn kind(&self) -> EditKind {
        match self {
            Self::SetFinalizers(_) => EditKind::Finalizers,
            Self::SetLaunchBatch { .. } => EditKind::LaunchBatch,
            Self::SetLabels(_) => EditKind::Labels,
            Self::SetInstanceMetadata(_) => EditKind::InstanceMetadata,
            Self::SetHashes(_) => EditKind::Hashes,
            Self::SetTagged(_) => EditKind::Tagged,
            Self::SetCapacityType(_) => EditKind::CapacityType,
            Self::SetDeletionReason(_) => EditKind::DeletionReason,
            Self::SetFence(_) => EditKind::Fence,
            Self::SetInterruption { .. } => EditKind::Interruption,
            Self::SetDeadline { .. } => EditKind::Deadline,
            Self::Register(_) => EditKind::Registration,
            Self::Initialize => EditKind::Initialization,
            Self::SetTaints(_) => EditKind::Taints,
            Self::SetDeletionCost(_) => EditKind::DeletionCost,
            Self::SetReplicaPeaks(_) => EditKind::ReplicaPeaks,
            Self::HandOver(_) => EditKind::HandOver,
            Self::SetStatus(_) => EditKind::Status,
        }
    }

    /// The disrupted taint is written before anything else: until it is visible, kube-scheduler binds pods that must move
    /// again.
    #[must_use]
    pub fn priority(&self) -> WritePriority {
        let taints = match self {
            Self::SetTaints(edit) => edit.all.as_deref(),
            Self::Register(registration) => registration.taints.as_deref(),
            Self::SetFinalizers(_)
            | Self::SetLaunchBatch { .. }
            | Self::SetLabels(_)
            | Self::SetInstanceMetadata(_)
            | Self::SetHashes(_)
            | Self::SetTagged(_)
            | Self::SetCapacityType(_)
            | Self::SetDeletionReason(_)
            | Self::SetFence(_)
            | Self::SetInterruption { .. }
            | Self::SetDeadline { .. }
            | Self::Initialize
            | Self::SetDeletionCost(_)
            | Self::SetReplicaPeaks(_)
            | Self::HandOver(_)
            | Self::SetStatus(_) => None,
        };
        if taints.is_some_and(has_disrupted) {
            WritePriority::Immediate
        } else {
            WritePriority::Normal
        }
    }
}
