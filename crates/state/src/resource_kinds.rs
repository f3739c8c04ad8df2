//! Input of the index: events of watched objects.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use mortise_apis::k8s::{self, SelectingKind};
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::karpenter::nodeoverlay::NodeOverlay;
use mortise_apis::karpenter::nodepool::NodePool;
use mortise_apis::names::{ClaimName, NamespacedName, NodeClassKey, NodeName, PodKey, PoolName};
use mortise_apis::node_class::NodeClassObject;

/// A watched object.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "each variant is the kind of its name")]
pub enum Object {
    Pod(Box<k8s::Pod>),
    Node(Box<k8s::Node>),
    Claim(Box<NodeClaim>),
    Pool(Box<NodePool>),
    NodeClass(NodeClassObject),
    Overlay(Box<NodeOverlay>),
    Pdb(Box<k8s::PodDisruptionBudget>),
    DaemonSet(Box<k8s::DaemonSet>),
    VolumeClaim(Box<k8s::PersistentVolumeClaim>),
    Volume(Box<k8s::PersistentVolume>),
    StorageClass(Box<k8s::StorageClass>),
    CsiNode(Box<k8s::CsiNode>),
    Attachment(Box<k8s::VolumeAttachment>),
    ResourceClaim(Box<k8s::ResourceClaim>),
    ResourceClaimTemplate(Box<k8s::ResourceClaimTemplate>),
    DeviceClass(Box<k8s::DeviceClass>),
    ResourceSlice(Box<k8s::ResourceSlice>),
    Namespace(Box<k8s::Namespace>),
    Selecting(SelectingKind, Box<k8s::Selecting>),
}

/// A watched kind. Node classes are one kind here; a restart of one provider's watch lists only that provider's.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "each variant is the kind of its name")]
pub enum ObjectKind {
    Pod,
    Node,
    Claim,
    Pool,
    NodeClass { group: Arc<str>, kind: Arc<str> },
    Overlay,
    Pdb,
    DaemonSet,
    VolumeClaim,
    Volume,
    StorageClass,
    CsiNode,
    Attachment,
    ResourceClaim,
    ResourceClaimTemplate,
    DeviceClass,
    ResourceSlice,
    Namespace,
    Selecting(SelectingKind),
}

impl fmt::Display for ObjectKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pod => "Pod",
            Self::Node => "Node",
            Self::Claim => "NodeClaim",
            Self::Pool => "NodePool",
            Self::NodeClass { kind, .. } => kind,
            Self::Overlay => "NodeOverlay",
            Self::Pdb => "PodDisruptionBudget",
            Self::DaemonSet => "DaemonSet",
            Self::VolumeClaim => "PersistentVolumeClaim",
            Self::Volume => "PersistentVolume",
            Self::StorageClass => "StorageClass",
            Self::CsiNode => "CSINode",
            Self::Attachment => "VolumeAttachment",
            Self::ResourceClaim => "ResourceClaim",
            Self::ResourceClaimTemplate => "ResourceClaimTemplate",
            Self::DeviceClass => "DeviceClass",
            Self::ResourceSlice => "ResourceSlice",
            Self::Namespace => "Namespace",
            Self::Selecting(kind) => kind.kind(),
        })
    }
}

/// Key of a watched object: enough to delete it, even if the object itself cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(
    missing_docs,
    reason = "each variant is the key of the kind of its name"
)]
pub enum ObjectKey {
    Pod(PodKey),
    Node(NodeName),
    Claim(ClaimName),
    Pool(PoolName),
    NodeClass(NodeClassKey),
    Overlay(Arc<str>),
    Pdb(NamespacedName),
    DaemonSet(NamespacedName),
    VolumeClaim(NamespacedName),
    Volume(Arc<str>),
    StorageClass(Arc<str>),
    CsiNode(NodeName),
    Attachment(Arc<str>),
    ResourceClaim(NamespacedName),
    ResourceClaimTemplate(NamespacedName),
    DeviceClass(Arc<str>),
    ResourceSlice(Arc<str>),
    Namespace(Arc<str>),
    Selecting(SelectingKind, NamespacedName),
}

impl ObjectKey {
    /// The key's kind.
    #[must_use]
    pub fn kind(&self) -> ObjectKind {
        match self {
            Self::Pod(_) => ObjectKind::Pod,
            Self::Node(_) => ObjectKind::Node,
            Self::Claim(_) => ObjectKind::Claim,
            Self::Pool(_) => ObjectKind::Pool,
            Self::NodeClass(key) => ObjectKind::NodeClass {
                group: Arc::clone(&key.group),
                kind: Arc::clone(&key.kind),
            },
            Self::Overlay(_) => ObjectKind::Overlay,
            Self::Pdb(_) => ObjectKind::Pdb,
            Self::DaemonSet(_) => ObjectKind::DaemonSet,
            Self::VolumeClaim(_) => ObjectKind::VolumeClaim,
            Self::Volume(_) => ObjectKind::Volume,
            Self::StorageClass(_) => ObjectKind::StorageClass,
            Self::CsiNode(_) => ObjectKind::CsiNode,
            Self::Attachment(_) => ObjectKind::Attachment,
            Self::ResourceClaim(_) => ObjectKind::ResourceClaim,
            Self::ResourceClaimTemplate(_) => ObjectKind::ResourceClaimTemplate,
            Self::DeviceClass(_) => ObjectKind::DeviceClass,
            Self::ResourceSlice(_) => ObjectKind::ResourceSlice,
            Self::Namespace(_) => ObjectKind::Namespace,
            Self::Selecting(kind, _) => ObjectKind::Selecting(*kind),
        }
    }
}

impl Object {
    /// Key of the object. An object without a name gets an empty one, which no API server sends.
    #[must_use]
    pub fn key(&self) -> ObjectKey {
        let meta = self.meta();
        let name = meta
            .and_then(|meta| meta.name.as_deref())
            .unwrap_or_default();
        let namespaced = || {
            NamespacedName::new(
                meta.and_then(|meta| meta.namespace.as_deref())
                    .unwrap_or_default(),
                name,
            )
        };
        match self {
            Self::Pod(_) => ObjectKey::Pod(namespaced()),
            Self::Node(_) => ObjectKey::Node(name.into()),
            Self::Claim(_) => ObjectKey::Claim(name.into()),
            Self::Pool(_) => ObjectKey::Pool(name.into()),
            Self::NodeClass(class) => ObjectKey::NodeClass(class.key.clone()),
            Self::Overlay(_) => ObjectKey::Overlay(name.into()),
            Self::Pdb(_) => ObjectKey::Pdb(namespaced()),
            Self::DaemonSet(_) => ObjectKey::DaemonSet(namespaced()),
            Self::VolumeClaim(_) => ObjectKey::VolumeClaim(namespaced()),
            Self::Volume(_) => ObjectKey::Volume(name.into()),
            Self::StorageClass(_) => ObjectKey::StorageClass(name.into()),
            Self::CsiNode(_) => ObjectKey::CsiNode(name.into()),
            Self::Attachment(_) => ObjectKey::Attachment(name.into()),
            Self::ResourceClaim(_) => ObjectKey::ResourceClaim(namespaced()),
            Self::ResourceClaimTemplate(_) => ObjectKey::ResourceClaimTemplate(namespaced()),
            Self::DeviceClass(_) => ObjectKey::DeviceClass(name.into()),
            Self::ResourceSlice(_) => ObjectKey::ResourceSlice(name.into()),
            Self::Namespace(_) => ObjectKey::Namespace(name.into()),
            Self::Selecting(kind, _) => ObjectKey::Selecting(*kind, namespaced()),
        }
    }

    /// Version of the object, as etcd counts them; `None` if it has none or it is not a number.
    #[must_use]
    pub fn version(&self) -> Option<u64> {
        match self {
            Self::NodeClass(class) => class
                .object
                .pointer("/metadata/resourceVersion")?
                .as_str()?
                .parse()
                .ok(),
            _ => self.meta()?.resource_version.as_deref()?.parse().ok(),
        }
    }

    fn meta(&self) -> Option<&k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta> {
        Some(match self {
            Self::Pod(object) => &object.metadata,
            Self::Node(object) => &object.metadata,
            Self::Claim(object) => &object.metadata,
            Self::Pool(object) => &object.metadata,
            Self::NodeClass(_) => return None,
            Self::Overlay(object) => &object.metadata,
            Self::Pdb(object) => &object.metadata,
            Self::DaemonSet(object) => &object.metadata,
            Self::VolumeClaim(object) => &object.metadata,
            Self::Volume(object) => &object.metadata,
            Self::StorageClass(object) => &object.metadata,
            Self::CsiNode(object) => &object.metadata,
            Self::Attachment(object) => &object.metadata,
            Self::ResourceClaim(object) => &object.metadata,
            Self::ResourceClaimTemplate(object) => &object.metadata,
            Self::DeviceClass(object) => &object.metadata,
            Self::ResourceSlice(object) => &object.metadata,
            Self::Namespace(object) => &object.metadata,
            Self::Selecting(_, object) => &object.metadata,
        })
    }
}

/// Source of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventSource {
    /// A watch: in order.
    Watch,
    /// The response to an own write: it may arrive after the watch has shown something newer, even the deletion.
    Write,
}

/// Event of a watched object.
#[derive(Clone, Debug)]
pub enum ObjectEvent {
    /// The object exists, with this content.
    Applied(Object, EventSource),
    /// The object was deleted, as of this version; `None`: regardless of the known version.
    Deleted(ObjectKey, Option<u64>),
    /// An object of this key exists and cannot be parsed. Its last parsed version stays known.
    Unreadable(ObjectKey),
    /// A list of a kind was read completely, and its objects were applied. A known object of the kind that is not among the
    /// keys and not newer than the list was deleted.
    Listed {
        /// The kind.
        kind: ObjectKind,
        /// Keys of every object in the list, including those that could not be parsed.
        keys: BTreeSet<ObjectKey>,
        /// Version of the list, as etcd counts them: it shows every object as of then. `None` if it is not a number: no object
        /// is newer.
        version: Option<u64>,
    },
}
