//! What an event changed in the objects whose changes are counted and reported: pods, nodes, NodeClaims, NodePools and
//! CapacityBuffers.

use std::sync::Arc;

use super::Index;
use crate::resource_kinds::ObjectKey;
use crate::snapshot::Pod;
use mortise_apis::k8s;
use mortise_apis::karpenter::capacitybuffer::CapacityBuffer;
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::karpenter::nodepool::NodePool;

/// An object before and after an event; absent if it did not exist, or is not part of the cluster state.
#[derive(Clone, Debug)]
pub struct Diff<T> {
    /// The object before the event.
    pub before: Option<Arc<T>>,
    /// The object after the event.
    pub after: Option<Arc<T>>,
}

/// Change of an object.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "each variant is the kind of its name")]
pub enum ObjectChange {
    Pod(Diff<Pod>),
    Node(Diff<k8s::Node>),
    Claim(Diff<NodeClaim>),
    Pool(Diff<NodePool>),
    Buffer(Diff<CapacityBuffer>),
    /// An object of another kind, or one that became readable or unreadable.
    Other(ObjectKey),
}

impl<T> Diff<T> {
    /// Makes a change, and looks at an object before and after it.
    fn observe(
        index: &mut Index,
        change: impl FnOnce(&mut Index),
        object: impl Fn(&Index) -> Option<&Arc<T>>,
    ) -> Self {
        let before = object(index).cloned();
        change(index);
        Self {
            before,
            after: object(index).cloned(),
        }
    }
}

impl ObjectChange {
    /// Changes the object of a key, and returns what changed.
    pub(super) fn observe(
        index: &mut Index,
        key: ObjectKey,
        change: impl FnOnce(&mut Index, &ObjectKey),
    ) -> Self {
        let change = |index: &mut Index| change(index, &key);
        match &key {
            ObjectKey::Pod(pod) => Self::Pod(Diff::observe(index, change, |index| index.pod(pod))),
            ObjectKey::Node(node) => {
                Self::Node(Diff::observe(index, change, |index| index.node(node)))
            }
            ObjectKey::Claim(claim) => {
                Self::Claim(Diff::observe(index, change, |index| index.claim(claim)))
            }
            ObjectKey::Pool(pool) => {
                Self::Pool(Diff::observe(index, change, |index| index.pool(pool)))
            }
            ObjectKey::Buffer(buffer) => {
                Self::Buffer(Diff::observe(index, change, |index| index.buffer(buffer)))
            }
            _ => {
                change(index);
                Self::Other(key)
            }
        }
    }
}
