//! What an event changed in the objects whose changes are counted and reported: pods, nodes, NodeClaims and NodePools.

use std::sync::Arc;

use super::Index;
use crate::resource_kinds::ObjectKey;
use crate::snapshot::Pod;
use mortise_apis::k8s;
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
    /// An object of another kind, or one that became readable or unreadable.
    Other(ObjectKey),
}

/// The object of a key, as the index has it.
enum KnownObject {
    Pod(Option<Arc<Pod>>),
    Node(Option<Arc<k8s::Node>>),
    Claim(Option<Arc<NodeClaim>>),
    Pool(Option<Arc<NodePool>>),
    Other,
}

impl KnownObject {
    fn from_index(index: &Index, key: &ObjectKey) -> Self {
        match key {
            ObjectKey::Pod(key) => Self::Pod(index.pod(key).cloned()),
            ObjectKey::Node(name) => Self::Node(index.node(name).cloned()),
            ObjectKey::Claim(name) => Self::Claim(index.claim(name).cloned()),
            ObjectKey::Pool(name) => Self::Pool(index.pool(name).cloned()),
            _ => Self::Other,
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
        let before = KnownObject::from_index(index, &key);
        change(index, &key);
        match (before, KnownObject::from_index(index, &key)) {
            (KnownObject::Pod(before), KnownObject::Pod(after)) => {
                Self::Pod(Diff { before, after })
            }
            (KnownObject::Node(before), KnownObject::Node(after)) => {
                Self::Node(Diff { before, after })
            }
            (KnownObject::Claim(before), KnownObject::Claim(after)) => {
                Self::Claim(Diff { before, after })
            }
            (KnownObject::Pool(before), KnownObject::Pool(after)) => {
                Self::Pool(Diff { before, after })
            }
            _ => Self::Other(key),
        }
    }
}
