//! The steps of a node's lifecycle, each one effect.
//!
//! Failpoints, simulated crashes and counts of writes name a step by this one table.
//!
//! ```text
//! create-claim ─ add-claim-finalizer ─ launch ─ label-claim ─ write-launched ─ register-node ─ write-registered
//!   ─ initialize-node ─ write-initialized ─ ... ─ fence-claim ─ write-disruption ─ mark-node ─ delete-claim
//!   ─ set-deadline ─ taint-node ─ delete-node ─ write-draining ─ evict ─ delete-pod ─ write-drained
//!   ─ terminate ─ write-terminating ─ remove-node-finalizer ─ remove-claim-finalizer
//! ```
//!
//! Not every lifecycle contains all steps: one write may report the launch, the registration and the initialization.

use mortise_apis::names::ObjectRef;
use mortise_apis::schema::conditions::{ConditionStatus, find};
use mortise_apis::{Condition, labels};

use super::ObjectWrite;
use super::edit::ObjectEdit;
use super::node_taints::LoadBalancerExclusion;
use super::status::StatusEdit;
use mortise_apis::taints::has_disrupted;

/// A step. Its variants are in the order of a life that goes through all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LifecycleStep {
    /// A NodeClaim is created.
    CreateClaim,
    /// The claim gets its finalizer.
    AddClaimFinalizer,
    /// The cloud launches the instance.
    Launch,
    /// The claim gets the instance's labels.
    LabelClaim,
    /// The claim's status names the instance.
    WriteLaunched,
    /// The Node becomes what its claim says.
    RegisterNode,
    /// The claim's status says `Registered`.
    WriteRegistered,
    /// The Node gets its label `initialized`.
    InitializeNode,
    /// The claim's status says `Initialized`.
    WriteInitialized,
    /// The claim is fenced because the cloud reclaims its instance.
    FenceClaim,
    /// The claim's status says why it is disrupted, which fences it.
    WriteDisruption,
    /// The Node gets the disrupted taint by a decision to replace it.
    MarkNode,
    /// The claim is deleted.
    DeleteClaim,
    /// The claim gets the time at which its pods are deleted without asking.
    SetDeadline,
    /// The Node is tainted and leaves load balancers: it goes, or a decision without replacement says so.
    TaintNode,
    /// The Node is deleted.
    DeleteNode,
    /// The claim's status says that it drains.
    WriteDraining,
    /// A pod is evicted.
    Evict,
    /// A pod is deleted, because the deadline has come.
    DeletePod,
    /// The claim's status says that it has drained.
    WriteDrained,
    /// The cloud terminates the instance.
    Terminate,
    /// The claim's status says that the instance is terminating.
    WriteTerminating,
    /// The Node loses our finalizer.
    RemoveNodeFinalizer,
    /// The claim loses our finalizer.
    RemoveClaimFinalizer,
}

impl LifecycleStep {
    /// Every step, in the order of a life.
    pub const ALL: [Self; 24] = [
        Self::CreateClaim,
        Self::AddClaimFinalizer,
        Self::Launch,
        Self::LabelClaim,
        Self::WriteLaunched,
        Self::RegisterNode,
        Self::WriteRegistered,
        Self::InitializeNode,
        Self::WriteInitialized,
        Self::FenceClaim,
        Self::WriteDisruption,
        Self::MarkNode,
        Self::DeleteClaim,
        Self::SetDeadline,
        Self::TaintNode,
        Self::DeleteNode,
        Self::WriteDraining,
        Self::Evict,
        Self::DeletePod,
        Self::WriteDrained,
        Self::Terminate,
        Self::WriteTerminating,
        Self::RemoveNodeFinalizer,
        Self::RemoveClaimFinalizer,
    ];

    /// Its name, lower case with dashes.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::CreateClaim => "create-claim",
            Self::AddClaimFinalizer => "add-claim-finalizer",
            Self::Launch => "launch",
            Self::LabelClaim => "label-claim",
            Self::WriteLaunched => "write-launched",
            Self::RegisterNode => "register-node",
            Self::WriteRegistered => "write-registered",
            Self::InitializeNode => "initialize-node",
            Self::WriteInitialized => "write-initialized",
            Self::FenceClaim => "fence-claim",
            Self::MarkNode => "mark-node",
            Self::WriteDisruption => "write-disruption",
            Self::DeleteClaim => "delete-claim",
            Self::SetDeadline => "set-deadline",
            Self::DeleteNode => "delete-node",
            Self::TaintNode => "taint-node",
            Self::WriteDraining => "write-draining",
            Self::Evict => "evict",
            Self::DeletePod => "delete-pod",
            Self::WriteDrained => "write-drained",
            Self::Terminate => "terminate",
            Self::WriteTerminating => "write-terminating",
            Self::RemoveNodeFinalizer => "remove-node-finalizer",
            Self::RemoveClaimFinalizer => "remove-claim-finalizer",
        }
    }
}

impl ObjectWrite {
    /// The step that the write is; `None` if it does not advance a node's lifecycle.
    #[must_use]
    pub fn lifecycle_step(&self) -> Option<LifecycleStep> {
        match self.target {
            ObjectRef::Claim(_) => step_of_claim(&self.edit),
            ObjectRef::Node(_) => step_of_node(&self.edit),
            ObjectRef::Pool(_)
            | ObjectRef::NodeClass(_)
            | ObjectRef::Overlay(_)
            | ObjectRef::Policy(_)
            | ObjectRef::Buffer(_)
            | ObjectRef::Request(_)
            | ObjectRef::Deployment(_)
            | ObjectRef::Pod(_) => None,
        }
    }
}

fn step_of_claim(edit: &ObjectEdit) -> Option<LifecycleStep> {
    match edit {
        ObjectEdit::SetFinalizers(finalizers) if finalizers.includes_ours() => {
            Some(LifecycleStep::AddClaimFinalizer)
        }
        ObjectEdit::SetFinalizers(_) => Some(LifecycleStep::RemoveClaimFinalizer),
        ObjectEdit::SetLaunchBatch { finalizers, .. } => finalizers
            .as_ref()
            .map(|_| LifecycleStep::AddClaimFinalizer),
        ObjectEdit::SetLabels(_) | ObjectEdit::SetInstanceMetadata(_) => {
            Some(LifecycleStep::LabelClaim)
        }
        ObjectEdit::SetFence(Some(_)) | ObjectEdit::SetInterruption { fence: Some(_), .. } => {
            Some(LifecycleStep::FenceClaim)
        }
        ObjectEdit::SetDeadline { .. } => Some(LifecycleStep::SetDeadline),
        ObjectEdit::SetStatus(StatusEdit::NodeClaim(edit)) => {
            step_of_conditions(edit.conditions.as_deref()?)
        }
        ObjectEdit::SetHashes(_)
        | ObjectEdit::SetTagged(_)
        | ObjectEdit::SetDeletionCost(_)
        | ObjectEdit::SetReplicaPeaks(_)
        | ObjectEdit::HandOver(_)
        | ObjectEdit::SetCapacityType(_)
        | ObjectEdit::SetDeletionReason(_)
        | ObjectEdit::SetFence(None)
        | ObjectEdit::SetInterruption { fence: None, .. }
        | ObjectEdit::Register(_)
        | ObjectEdit::Initialize
        | ObjectEdit::SetTaints(_)
        | ObjectEdit::SetStatus(_) => None,
    }
}

/// A status is written with all conditions, so a repeated write counts as the furthest step that it contains.
fn step_of_conditions(conditions: &[Condition]) -> Option<LifecycleStep> {
    let is = |type_: &str, status: ConditionStatus| {
        find(conditions, type_).is_some_and(|condition| condition.status == status)
    };
    [
        (
            "InstanceTerminating",
            ConditionStatus::True,
            LifecycleStep::WriteTerminating,
        ),
        (
            "Drained",
            ConditionStatus::True,
            LifecycleStep::WriteDrained,
        ),
        (
            "Drained",
            ConditionStatus::Unknown,
            LifecycleStep::WriteDraining,
        ),
        (
            "DisruptionReason",
            ConditionStatus::True,
            LifecycleStep::WriteDisruption,
        ),
        (
            "Initialized",
            ConditionStatus::True,
            LifecycleStep::WriteInitialized,
        ),
        (
            "Registered",
            ConditionStatus::True,
            LifecycleStep::WriteRegistered,
        ),
        (
            "Launched",
            ConditionStatus::True,
            LifecycleStep::WriteLaunched,
        ),
    ]
    .into_iter()
    .find(|(type_, status, _)| is(type_, *status))
    .map(|(.., step)| step)
}

fn step_of_node(edit: &ObjectEdit) -> Option<LifecycleStep> {
    match edit {
        ObjectEdit::Register(registration) => {
            let has = |label: &str| registration.labels.contains_key(label);
            if has(labels::REGISTERED) {
                Some(LifecycleStep::RegisterNode)
            } else {
                has(labels::INITIALIZED).then_some(LifecycleStep::InitializeNode)
            }
        }
        ObjectEdit::Initialize => Some(LifecycleStep::InitializeNode),
        ObjectEdit::SetTaints(edit) => match edit.exclusion {
            Some(LoadBalancerExclusion::Set) => Some(LifecycleStep::TaintNode),
            Some(LoadBalancerExclusion::Clear) | None => {
                let is_disrupted = edit.all.as_deref().is_some_and(has_disrupted);
                is_disrupted.then_some(LifecycleStep::MarkNode)
            }
        },
        ObjectEdit::SetFinalizers(finalizers) => {
            (!finalizers.includes_ours()).then_some(LifecycleStep::RemoveNodeFinalizer)
        }
        ObjectEdit::SetLaunchBatch { .. }
        | ObjectEdit::SetLabels(_)
        | ObjectEdit::SetInstanceMetadata(_)
        | ObjectEdit::SetHashes(_)
        | ObjectEdit::SetTagged(_)
        | ObjectEdit::SetDeletionCost(_)
        | ObjectEdit::SetReplicaPeaks(_)
        | ObjectEdit::HandOver(_)
        | ObjectEdit::SetCapacityType(_)
        | ObjectEdit::SetDeletionReason(_)
        | ObjectEdit::SetFence(_)
        | ObjectEdit::SetInterruption { .. }
        | ObjectEdit::SetDeadline { .. }
        | ObjectEdit::SetStatus(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        let names: std::collections::BTreeSet<&str> = LifecycleStep::ALL
            .into_iter()
            .map(LifecycleStep::name)
            .collect();
        assert_eq!(names.len(), LifecycleStep::ALL.len());
    }
}
