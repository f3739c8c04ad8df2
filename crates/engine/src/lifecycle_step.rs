//! The steps of a node's life, as the effects that take it from one to the next.
//!
//! Whoever wants to stand between two steps (a failpoint, a simulation that kills the service, a count of writes) names
//! them by this one table.
//!
//! ```text
//! create-claim ─ add-claim-finalizer ─ launch ─ label-claim ─ write-launched ─ register-node ─ write-registered
//!   ─ initialize-node ─ write-initialized ─ ... ─ fence-claim ─ write-disruption ─ mark-node ─ delete-claim
//!   ─ set-deadline ─ taint-node ─ delete-node ─ write-draining ─ evict ─ delete-pod ─ write-drained
//!   ─ terminate ─ write-terminating ─ remove-node-finalizer ─ remove-claim-finalizer
//! ```
//!
//! A life leaves out what a faster one does not need: a claim may become initialized by one write, from nothing.

use serde_json::Value;

use crate::effect::{Effect, Patch};
use mortise_apis::labels;
use mortise_apis::names::ObjectRef;

/// A step. Its variants are in the order of a life that goes through all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LifecycleStep {
    /// A NodeClaim is created.
    CreateClaim,
    /// The claim gets its finalizer.
    AddClaimFinalizer,
    /// The cloud makes the machine.
    Launch,
    /// The claim gets the machine's labels.
    LabelClaim,
    /// The claim's status names the machine.
    WriteLaunched,
    /// The Node becomes what its claim says.
    RegisterNode,
    /// The claim's status says `Registered`.
    WriteRegistered,
    /// The Node gets its label `initialized`.
    InitializeNode,
    /// The claim's status says `Initialized`.
    WriteInitialized,
    /// The claim is fenced because the cloud takes its machine back.
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
    /// The cloud ends the machine.
    Terminate,
    /// The claim's status says that the machine is ending.
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

    /// The step that an effect takes; `None` when it moves no node's life on. A status is written with all its conditions,
    /// so a repeated write counts as the furthest step that it tells of.
    #[must_use]
    pub fn of(effect: &Effect) -> Option<Self> {
        match effect {
            Effect::CreateClaim(_) => Some(Self::CreateClaim),
            Effect::Launch(_) => Some(Self::Launch),
            Effect::Terminate { .. } => Some(Self::Terminate),
            Effect::Evict { .. } => Some(Self::Evict),
            Effect::Delete { target, .. } => match target {
                ObjectRef::Claim(_) => Some(Self::DeleteClaim),
                ObjectRef::Node(_) => Some(Self::DeleteNode),
                ObjectRef::Pod(_) => Some(Self::DeletePod),
                ObjectRef::Pool(_) | ObjectRef::NodeClass(_) | ObjectRef::Overlay(_) => None,
            },
            Effect::Patch(patch) => match patch.target {
                ObjectRef::Claim(_) if patch.status => Self::of_status(patch),
                ObjectRef::Claim(_) => Self::of_claim(patch),
                ObjectRef::Node(_) if !patch.status => Self::of_node(patch),
                _ => None,
            },
            Effect::ListInstances
            | Effect::ListPods(_)
            | Effect::FindInstance { .. }
            | Effect::Resolve(_)
            | Effect::CheckDrift { .. }
            | Effect::Acknowledge { .. }
            | Effect::Event(_) => None,
        }
    }

    fn of_status(patch: &Patch) -> Option<Self> {
        let conditions = patch.merge.pointer("/status/conditions")?.as_array()?;
        let is = |type_: &str, status: &str| {
            conditions
                .iter()
                .any(|each| each["type"] == type_ && each["status"] == status)
        };
        let told = [
            ("InstanceTerminating", "True", Self::WriteTerminating),
            ("Drained", "True", Self::WriteDrained),
            ("Drained", "Unknown", Self::WriteDraining),
            ("DisruptionReason", "True", Self::WriteDisruption),
            ("Initialized", "True", Self::WriteInitialized),
            ("Registered", "True", Self::WriteRegistered),
            ("Launched", "True", Self::WriteLaunched),
        ];
        told.into_iter()
            .find(|(type_, status, _)| is(type_, status))
            .map(|(.., step)| step)
    }

    fn of_claim(patch: &Patch) -> Option<Self> {
        if let Some(finalizers) = patch.merge.pointer("/metadata/finalizers") {
            return Some(if is_ours_in(finalizers) {
                Self::AddClaimFinalizer
            } else {
                Self::RemoveClaimFinalizer
            });
        }
        let annotation = |key: &str| {
            patch
                .merge
                .pointer("/metadata/annotations")
                .and_then(|all| all.get(key))
                .is_some_and(|value| !value.is_null())
        };
        if annotation(labels::TERMINATION_TIMESTAMP) {
            Some(Self::SetDeadline)
        } else if annotation(labels::FENCE) {
            Some(Self::FenceClaim)
        } else {
            let labels = patch.merge.pointer("/metadata/labels");
            labels.map(|_| Self::LabelClaim)
        }
    }

    fn of_node(patch: &Patch) -> Option<Self> {
        let label = |key: &str| {
            patch
                .merge
                .pointer("/metadata/labels")
                .is_some_and(|all| all.get(key).is_some())
        };
        if label(labels::REGISTERED) {
            return Some(Self::RegisterNode);
        }
        if label(labels::INITIALIZED) {
            return Some(Self::InitializeNode);
        }
        let excluded = patch.merge.pointer("/metadata/labels");
        let excluded = excluded.and_then(|all| all.get(labels::EXCLUDE_LB));
        if excluded.is_some_and(|value| !value.is_null()) {
            return Some(Self::TaintNode);
        }
        if let Some(finalizers) = patch.merge.pointer("/metadata/finalizers") {
            return (!is_ours_in(finalizers)).then_some(Self::RemoveNodeFinalizer);
        }
        let taints = patch.merge.pointer("/spec/taints")?.as_array()?;
        taints
            .iter()
            .any(|taint| taint["key"] == labels::DISRUPTED_TAINT)
            .then_some(Self::MarkNode)
    }
}

fn is_ours_in(finalizers: &Value) -> bool {
    let mut all = finalizers.as_array().into_iter().flatten();
    all.any(|each| each == labels::TERMINATION_FINALIZER)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn patch(target: ObjectRef, status: bool, merge: Value) -> Option<LifecycleStep> {
        LifecycleStep::of(&Effect::Patch(Patch {
            target,
            status,
            resource_version: None,
            merge,
        }))
    }

    #[test]
    fn a_status_counts_as_the_furthest_step_it_tells_of() {
        let of = |conditions: &[(&str, &str)]| {
            let list: Vec<Value> = conditions
                .iter()
                .map(|(type_, status)| json!({ "type": type_, "status": status }))
                .collect();
            let merge = json!({ "status": { "conditions": list } });
            patch(ObjectRef::Claim("c".into()), true, merge)
        };
        let launched = ("Launched", "True");
        let drained = ("Drained", "True");
        assert_eq!(of(&[("Launched", "Unknown")]), None);
        assert_eq!(of(&[launched]), Some(LifecycleStep::WriteLaunched));
        assert_eq!(
            of(&[launched, ("Registered", "True"), ("Drained", "Unknown")]),
            Some(LifecycleStep::WriteDraining)
        );
        assert_eq!(of(&[launched, drained]), Some(LifecycleStep::WriteDrained));
        assert_eq!(
            of(&[drained, ("InstanceTerminating", "True")]),
            Some(LifecycleStep::WriteTerminating)
        );
    }

    #[test]
    fn finalizers_come_and_go() {
        let claim = || ObjectRef::Claim("c".into());
        let node = || ObjectRef::Node("n".into());
        let ours =
            json!({ "metadata": { "finalizers": ["other", labels::TERMINATION_FINALIZER] } });
        let theirs = json!({ "metadata": { "finalizers": ["other"] } });
        assert_eq!(
            patch(claim(), false, ours.clone()),
            Some(LifecycleStep::AddClaimFinalizer)
        );
        assert_eq!(
            patch(claim(), false, theirs.clone()),
            Some(LifecycleStep::RemoveClaimFinalizer)
        );
        assert_eq!(
            patch(node(), false, ours),
            None,
            "with the rest of a registration"
        );
        assert_eq!(
            patch(node(), false, theirs),
            Some(LifecycleStep::RemoveNodeFinalizer)
        );
        let unfenced = json!({ "metadata": { "annotations": { labels::FENCE: null } } });
        assert_eq!(patch(claim(), false, unfenced), None);
    }

    #[test]
    fn names_are_unique() {
        let names: std::collections::BTreeSet<&str> = LifecycleStep::ALL
            .into_iter()
            .map(LifecycleStep::name)
            .collect();
        assert_eq!(names.len(), LifecycleStep::ALL.len());
    }
}
