//! Storage kinds, as far as they are read.

use k8s_openapi::api::core::v1::{NodeSelector, TopologySelectorTerm};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

use crate::schema::object::{is_default, null_as_default, object};

object! {
    /// A claim for storage.
    pub struct PersistentVolumeClaim(
        "", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", NamespaceResourceScope
    ) {
        /// What is wanted.
        pub spec as "spec": PersistentVolumeClaimSpec,
        /// What is.
        pub status as "status": PhaseStatus,
    }
}

/// What a claim asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PersistentVolumeClaimSpec {
    /// The volume it is bound to, or asks for by name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_name: Option<String>,
    /// The storage class; an empty text means none, absent means the default class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_class_name: Option<String>,
}

/// The claim that an ephemeral volume makes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PersistentVolumeClaimTemplate {
    /// Labels and annotations of the claim.
    #[serde(
        skip_serializing_if = "is_default",
        deserialize_with = "null_as_default"
    )]
    pub metadata: ObjectMeta,
    /// What it asks for.
    pub spec: PersistentVolumeClaimSpec,
}

/// A status of which only the phase matters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PhaseStatus {
    /// The phase; empty when not set yet.
    #[serde(skip_serializing_if = "is_default")]
    pub phase: String,
}

object! {
    /// A piece of storage.
    pub struct PersistentVolume("", "v1", "PersistentVolume", "persistentvolumes", ClusterResourceScope) {
        /// What is wanted.
        pub spec as "spec": PersistentVolumeSpec,
        /// What is.
        pub status as "status": PhaseStatus,
    }
}

/// Where the storage is, and who provides it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PersistentVolumeSpec {
    /// Nodes that can reach it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_affinity: Option<VolumeNodeAffinity>,
    /// Name of its storage class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_class_name: Option<String>,
    /// The claim that it is bound to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim_ref: Option<ClaimRef>,
    /// Provided by a CSI driver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub csi: Option<CsiSource>,
    /// An EBS volume of the driver that was built into Kubernetes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aws_elastic_block_store: Option<InTreeSource>,
    /// A GCE disk of the driver that was built into Kubernetes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gce_persistent_disk: Option<InTreeSource>,
    /// An Azure disk of the driver that was built into Kubernetes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub azure_disk: Option<InTreeSource>,
    /// An Azure file share of the driver that was built into Kubernetes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub azure_file: Option<InTreeSource>,
    /// A Cinder volume of the driver that was built into Kubernetes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cinder: Option<InTreeSource>,
    /// A vSphere disk of the driver that was built into Kubernetes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vsphere_volume: Option<InTreeSource>,
    /// A Portworx volume of the driver that was built into Kubernetes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub portworx_volume: Option<InTreeSource>,
    /// A directory of one node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_path: Option<InTreeSource>,
    /// A disk of one node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local: Option<InTreeSource>,
}

/// Nodes that can reach a volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeNodeAffinity {
    /// Terms of which one must hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub required: Option<NodeSelector>,
}

/// The claim that a volume is bound to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimRef {
    /// Namespace of the claim.
    #[serde(skip_serializing_if = "is_default")]
    pub namespace: String,
    /// Name of the claim.
    #[serde(skip_serializing_if = "is_default")]
    pub name: String,
    /// UID of the claim.
    #[serde(skip_serializing_if = "is_default")]
    pub uid: String,
}

/// A volume of a CSI driver.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CsiSource {
    /// Name of the driver.
    pub driver: String,
    /// The driver's id of the volume.
    #[serde(skip_serializing_if = "is_default")]
    pub volume_handle: String,
}

/// Marks which built-in driver a volume belongs to; its settings decide nothing here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct InTreeSource {}

object! {
    /// How storage of a class is made.
    pub struct StorageClass("storage.k8s.io", "v1", "StorageClass", "storageclasses", ClusterResourceScope) {
        /// Name of the driver.
        pub provisioner as "provisioner": String,
        /// `Immediate` or `WaitForFirstConsumer`; absent counts as `Immediate`.
        pub volume_binding_mode as "volumeBindingMode": Option<String>,
        /// Where the storage can be; empty means anywhere.
        pub allowed_topologies as "allowedTopologies": Vec<TopologySelectorTerm>,
    }
}

object! {
    /// The CSI drivers of one node.
    pub struct CsiNode("storage.k8s.io", "v1", "CSINode", "csinodes", ClusterResourceScope) {
        /// The drivers.
        pub spec as "spec": CsiNodeSpec,
    }
}

/// The CSI drivers of one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CsiNodeSpec {
    /// One entry per driver that is registered.
    #[serde(deserialize_with = "null_as_default")]
    pub drivers: Vec<CsiNodeDriver>,
}

/// One CSI driver on one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CsiNodeDriver {
    /// Name of the driver.
    pub name: String,
    /// How many volumes the node can have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocatable: Option<VolumeNodeResources>,
}

/// How many volumes a node can have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct VolumeNodeResources {
    /// The number; absent means no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<i32>,
}

object! {
    /// A volume that is, or shall be, attached to a node.
    pub struct VolumeAttachment(
        "storage.k8s.io", "v1", "VolumeAttachment", "volumeattachments", ClusterResourceScope
    ) {
        /// Which volume, and where.
        pub spec as "spec": VolumeAttachmentSpec,
        /// What became of it.
        pub status as "status": VolumeAttachmentStatus,
    }
}

/// What became of an attachment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeAttachmentStatus {
    /// Why the driver could not detach the volume the last time it tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detach_error: Option<VolumeError>,
}

/// What a driver said.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct VolumeError {
    /// Its words.
    #[serde(skip_serializing_if = "is_default")]
    pub message: String,
}

/// Which volume is attached where.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeAttachmentSpec {
    /// Name of the driver.
    #[serde(skip_serializing_if = "is_default")]
    pub attacher: String,
    /// Name of the node.
    pub node_name: String,
    /// The volume.
    pub source: VolumeAttachmentSource,
}

/// The volume of an attachment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeAttachmentSource {
    /// Name of the PersistentVolume; absent for volumes written out in a pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistent_volume_name: Option<String>,
}
