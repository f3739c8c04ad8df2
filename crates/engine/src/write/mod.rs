//! Writes of fields of existing objects. A write stays typed until it is sent: what it does is asked of [`ObjectEdit`], never
//! read from JSON.
//!
//! **Invariant.** Each write is safe to repeat: lists (conditions, finalizers, taints) carry the resource version that they
//! were computed from, maps and single values do not and cannot overwrite other keys.
//!
//! **Must never** be rendered anywhere but in [`render`], and rendered requests must never be parsed.

mod capacity_type_labels;
mod deletion_reason;
mod edit;
mod finalizers;
mod instance_metadata;
pub mod lifecycle_step;
mod node_taints;
mod registration;
pub mod render;
mod status;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use mortise_apis::k8s::ProvisioningRequest;
use mortise_apis::karpenter::capacitybuffer::{CapacityBuffer, CapacityBufferStatus, ReplicaPeaks};
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::karpenter::nodeoverlay::NodeOverlay;
use mortise_apis::karpenter::nodepool::NodePool;
use mortise_apis::names::{ClaimName, NamespacedName, NodeClassKey, ObjectRef, PodKey, Uid};
use mortise_apis::node_pool_policy::{NodePoolPolicy, NodePoolPolicyStatus};
use mortise_apis::schema::finalizers::has_finalizer;
use mortise_apis::{Condition, k8s, labels};
use mortise_cloudprovider::PlannedInterruption;
use mortise_state::ledger::FenceReason;
use serde_json::Value;

pub use capacity_type_labels::CapacityTypeLabels;
pub use deletion_reason::DeletionReason;
pub use edit::{EditKind, ObjectEdit, WritePriority};
pub use finalizers::Finalizers;
pub use instance_metadata::InstanceMetadata;
pub use node_taints::{LoadBalancerExclusion, NodeTaints};
pub use registration::Registration;
pub use render::PatchBody;
pub use status::{
    InstanceStatus, NodeClaimStatusEdit, NodePoolStatusEdit, NodePoolUsage, StatusEdit,
};

/// One edit of one object.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectWrite {
    /// The object.
    pub target: ObjectRef,
    /// The write fails with a conflict if the object has another version. Required where a list is replaced.
    pub resource_version: Option<String>,
    /// What changes.
    pub edit: ObjectEdit,
}

/// The Node as effects refer to it.
#[must_use]
pub fn node_ref(node: &k8s::Node) -> ObjectRef {
    ObjectRef::Node(node.metadata.name.as_deref().unwrap_or_default().into())
}

impl ObjectWrite {
    /// An edit of a list: conflicts unless the object is the one that was read.
    fn versioned(target: ObjectRef, meta: &ObjectMeta, edit: ObjectEdit) -> Self {
        Self {
            target,
            resource_version: meta.resource_version.clone(),
            edit,
        }
    }

    /// An edit of maps and single values.
    const fn unversioned(target: ObjectRef, edit: ObjectEdit) -> Self {
        Self {
            target,
            resource_version: None,
            edit,
        }
    }

    /// Adds a finalizer.
    #[must_use]
    pub fn add_finalizer(target: ObjectRef, meta: &ObjectMeta, finalizer: &str) -> Self {
        let finalizers = Finalizers::with(meta, finalizer);
        Self::versioned(target, meta, ObjectEdit::SetFinalizers(finalizers))
    }

    /// Removes a finalizer.
    #[must_use]
    pub fn remove_finalizer(target: ObjectRef, meta: &ObjectMeta, finalizer: &str) -> Self {
        let finalizers = Finalizers::without(meta, finalizer);
        Self::versioned(target, meta, ObjectEdit::SetFinalizers(finalizers))
    }

    /// Records on a NodeClaim which call is about to launch its instance together with others, and adds our finalizer if it is
    /// missing.
    #[must_use]
    pub fn set_launch_batch(claim: &NodeClaim, token: Arc<str>) -> Self {
        let meta = &claim.metadata;
        let finalizer = labels::TERMINATION_FINALIZER;
        let finalizers =
            (!has_finalizer(meta, finalizer)).then(|| Finalizers::with(meta, finalizer));
        let edit = ObjectEdit::SetLaunchBatch { token, finalizers };
        Self::versioned(ObjectRef::Claim(claim.name()), meta, edit)
    }

    /// Adds labels.
    #[must_use]
    pub const fn add_labels(target: ObjectRef, labels: BTreeMap<String, String>) -> Self {
        Self::unversioned(target, ObjectEdit::SetLabels(labels))
    }

    /// Writes hashes, by annotation.
    #[must_use]
    pub const fn set_hashes(target: ObjectRef, hashes: BTreeMap<String, String>) -> Self {
        Self::unversioned(target, ObjectEdit::SetHashes(hashes))
    }

    /// Records on a NodeClaim that its instance has all tags.
    #[must_use]
    pub fn set_tagged(claim: &NodeClaim, annotations: BTreeMap<String, String>) -> Self {
        let edit = ObjectEdit::SetTagged(annotations);
        Self::unversioned(ObjectRef::Claim(claim.name()), edit)
    }

    /// Corrects how an instance is paid for.
    #[must_use]
    pub const fn set_capacity_type(target: ObjectRef, labels: CapacityTypeLabels) -> Self {
        Self::unversioned(target, ObjectEdit::SetCapacityType(labels))
    }

    /// Gives a NodeClaim a hash of the current version, which is computed only if it is needed. `None` if it has that
    /// version or is being deleted. A drifted NodeClaim keeps its hash: with a new one it would no longer be drifted.
    pub fn upgrade_hash(
        claim: &NodeClaim,
        (version_key, version): (&str, &str),
        hash_key: &str,
        hash: impl FnOnce() -> String,
    ) -> Option<Self> {
        if claim.annotation(version_key) == Some(version)
            || claim.metadata.deletion_timestamp.is_some()
        {
            return None;
        }
        let mut hashes = BTreeMap::from([(version_key.to_owned(), version.to_owned())]);
        if !claim.is_true("Drifted") {
            hashes.insert(hash_key.to_owned(), hash());
        }
        Some(Self::set_hashes(ObjectRef::Claim(claim.name()), hashes))
    }

    /// Records on a NodeClaim who deletes it by force, and why. `None` if it is recorded already.
    #[must_use]
    pub fn record_deletion(claim: &NodeClaim, reason: DeletionReason) -> Option<Self> {
        if claim.annotation(labels::DELETION_REASON) == Some(&reason.to_string()) {
            return None;
        }
        let edit = ObjectEdit::SetDeletionReason(reason);
        Some(Self::unversioned(ObjectRef::Claim(claim.name()), edit))
    }

    /// Fences a NodeClaim, or removes its fence.
    #[must_use]
    pub const fn set_fence(claim: ClaimName, reason: Option<FenceReason>) -> Self {
        Self::unversioned(ObjectRef::Claim(claim), ObjectEdit::SetFence(reason))
    }

    /// Records on a NodeClaim what the cloud has announced, and with the same write what follows from that.
    #[must_use]
    pub const fn set_interruption(
        claim: ClaimName,
        plan: PlannedInterruption,
        fence: Option<FenceReason>,
        deadline: Option<Timestamp>,
    ) -> Self {
        let edit = ObjectEdit::SetInterruption {
            plan,
            fence,
            deadline,
        };
        Self::unversioned(ObjectRef::Claim(claim), edit)
    }

    /// Sets the time at which pods of a NodeClaim are deleted instead of evicted.
    #[must_use]
    pub fn set_deadline(claim: &NodeClaim, at: Timestamp, reason: Option<DeletionReason>) -> Self {
        let edit = ObjectEdit::SetDeadline { at, reason };
        Self::unversioned(ObjectRef::Claim(claim.name()), edit)
    }

    /// Records the instance of a NodeClaim.
    #[must_use]
    pub fn set_instance(claim: &NodeClaim, metadata: InstanceMetadata) -> Self {
        let edit = ObjectEdit::SetInstanceMetadata(metadata);
        Self::unversioned(ObjectRef::Claim(claim.name()), edit)
    }

    /// Changes the status of a NodeClaim.
    #[must_use]
    pub fn claim_status(claim: &NodeClaim, edit: NodeClaimStatusEdit) -> Self {
        let has_list = edit.conditions.is_some();
        let edit = StatusEdit::NodeClaim(edit);
        Self::status(
            ObjectRef::Claim(claim.name()),
            has_list.then_some(&claim.metadata),
            edit,
        )
    }

    /// Changes the status of a NodePool.
    #[must_use]
    pub fn pool_status(pool: &NodePool, edit: NodePoolStatusEdit) -> Self {
        let has_list = edit.conditions.is_some();
        let edit = StatusEdit::NodePool(edit);
        Self::status(
            ObjectRef::Pool(pool.name()),
            has_list.then_some(&pool.metadata),
            edit,
        )
    }

    /// Merges the status that a provider computed into a node class.
    #[must_use]
    pub const fn class_status(class: NodeClassKey, merge: Value) -> Self {
        let edit = ObjectEdit::SetStatus(StatusEdit::NodeClass(merge));
        Self::unversioned(ObjectRef::NodeClass(class), edit)
    }

    /// Writes the conditions of a NodeOverlay.
    #[must_use]
    pub fn overlay_status(overlay: &NodeOverlay, conditions: Vec<Condition>) -> Self {
        let target = ObjectRef::Overlay(overlay.name());
        let edit = StatusEdit::NodeOverlay(conditions);
        Self::status(target, Some(&overlay.metadata), edit)
    }

    /// Writes the status of a NodePoolPolicy.
    #[must_use]
    pub fn policy_status(policy: &NodePoolPolicy, status: NodePoolPolicyStatus) -> Self {
        let target = ObjectRef::Policy(policy.name());
        let edit = StatusEdit::NodePoolPolicy(status);
        Self::status(target, Some(&policy.metadata), edit)
    }

    /// Writes the status of a CapacityBuffer.
    #[must_use]
    pub fn buffer_status(buffer: &CapacityBuffer, status: CapacityBufferStatus) -> Self {
        let target = ObjectRef::Buffer(buffer.key());
        let edit = StatusEdit::CapacityBuffer(status);
        Self::status(target, Some(&buffer.metadata), edit)
    }

    /// Records the most replicas of the workload of a CapacityBuffer in each hour.
    #[must_use]
    pub const fn set_replica_peaks(buffer: NamespacedName, peaks: ReplicaPeaks) -> Self {
        let edit = ObjectEdit::SetReplicaPeaks(peaks);
        Self::unversioned(ObjectRef::Buffer(buffer), edit)
    }

    /// Sets the deletion cost of a pod; `None` removes it.
    #[must_use]
    pub const fn set_deletion_cost(pod: PodKey, cost: Option<i32>) -> Self {
        let edit = ObjectEdit::SetDeletionCost(cost);
        Self::unversioned(ObjectRef::Pod(pod), edit)
    }

    /// Restarts a Deployment of this version so that the pod is replaced.
    #[must_use]
    pub fn hand_over(deployment: NamespacedName, version: Option<&str>, pod: Uid) -> Self {
        Self {
            target: ObjectRef::Deployment(deployment),
            resource_version: version.map(str::to_owned),
            edit: ObjectEdit::HandOver(pod),
        }
    }

    /// Writes the conditions of a ProvisioningRequest.
    #[must_use]
    pub fn request_status(request: &ProvisioningRequest, conditions: Vec<Condition>) -> Self {
        let target = ObjectRef::Request(request.key());
        let edit = StatusEdit::ProvisioningRequest(conditions);
        Self::status(target, Some(&request.metadata), edit)
    }

    fn status(target: ObjectRef, versioned: Option<&ObjectMeta>, edit: StatusEdit) -> Self {
        let edit = ObjectEdit::SetStatus(edit);
        match versioned {
            Some(meta) => Self::versioned(target, meta, edit),
            None => Self::unversioned(target, edit),
        }
    }

    /// Registers a Node.
    #[must_use]
    pub fn register(node: &k8s::Node, registration: Registration) -> Self {
        let edit = ObjectEdit::Register(registration);
        Self::versioned(node_ref(node), &node.metadata, edit)
    }

    /// Labels a Node as initialized.
    #[must_use]
    pub fn initialize(node: &k8s::Node) -> Self {
        Self::unversioned(node_ref(node), ObjectEdit::Initialize)
    }

    /// Adds or removes the disrupted taint of a Node.
    #[must_use]
    pub fn set_taints(node: &k8s::Node, taints: NodeTaints) -> Self {
        let edit = ObjectEdit::SetTaints(taints);
        Self::versioned(node_ref(node), &node.metadata, edit)
    }

    /// The request.
    #[must_use]
    pub fn render(&self) -> PatchBody {
        self.edit.render(self.resource_version.as_deref())
    }
}
