//! Pod, as far as it is read.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Affinity, Toleration, TopologySpreadConstraint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};

use crate::k8s::ResourceList;
use crate::k8s::storage::PersistentVolumeClaimTemplate;
use crate::schema::object::{is_default, null_as_default, object};

object! {
    /// A pod.
    pub struct Pod("", "v1", "Pod", "pods", NamespaceResourceScope) {
        /// What is wanted.
        pub spec as "spec": PodSpec,
        /// What is.
        pub status as "status": PodStatus,
    }
}

/// What a pod needs of a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    /// The node it is bound to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// Labels that the node must have.
    #[serde(skip_serializing_if = "is_default")]
    pub node_selector: BTreeMap<String, String>,
    /// Required and preferred nodes and neighbours.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,
    /// Taints it can stand.
    #[serde(skip_serializing_if = "is_default")]
    pub tolerations: Vec<Toleration>,
    /// How its kind is spread over domains.
    #[serde(skip_serializing_if = "is_default")]
    pub topology_spread_constraints: Vec<TopologySpreadConstraint>,
    /// Containers.
    #[serde(
        skip_serializing_if = "is_default",
        deserialize_with = "null_as_default"
    )]
    pub containers: Vec<Container>,
    /// Init containers; those with restart policy `Always` are sidecars.
    #[serde(skip_serializing_if = "is_default")]
    pub init_containers: Vec<Container>,
    /// What the runtime class adds to the requests.
    #[serde(skip_serializing_if = "is_default")]
    pub overhead: ResourceList,
    /// Requests and limits of the pod as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<ContainerResources>,
    /// Priority as a number; the API server resolves it from the class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// Name of the priority class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority_class_name: Option<String>,
    /// `Never` or `PreemptLowerPriority`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preemption_policy: Option<String>,
    /// Volumes, as far as they tie the pod to storage.
    #[serde(skip_serializing_if = "is_default")]
    pub volumes: Vec<Volume>,
    /// The scheduler that is to place it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduler_name: Option<String>,
    /// Whether it uses the node's network.
    #[serde(skip_serializing_if = "is_default")]
    pub host_network: bool,
    /// Seconds it may take to end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub termination_grace_period_seconds: Option<i64>,
    /// Seconds it may run at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active_deadline_seconds: Option<i64>,
    /// Gates that keep it from being scheduled.
    #[serde(skip_serializing_if = "is_default")]
    pub scheduling_gates: Vec<LocalObjectReference>,
    /// Claims for devices.
    #[serde(skip_serializing_if = "is_default")]
    pub resource_claims: Vec<PodResourceClaim>,
    /// The group that it is scheduled with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduling_group: Option<SchedulingGroup>,
}

/// The group that a pod is scheduled with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SchedulingGroup {
    /// Name of its PodGroup, in the namespace of the pod; empty when not given.
    #[serde(skip_serializing_if = "is_default")]
    pub pod_group_name: String,
}

/// Something that has only a name.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct LocalObjectReference {
    /// The name.
    pub name: String,
}

/// A container: its name, what it asks for, and the ports it takes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Container {
    /// Name within the pod.
    pub name: String,
    /// Requests and limits.
    #[serde(
        skip_serializing_if = "is_default",
        deserialize_with = "null_as_default"
    )]
    pub resources: ContainerResources,
    /// Ports.
    #[serde(skip_serializing_if = "is_default")]
    pub ports: Vec<ContainerPort>,
    /// `Always` makes an init container a sidecar.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restart_policy: Option<String>,
}

/// Requests and limits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerResources {
    /// What is set aside.
    #[serde(
        skip_serializing_if = "is_default",
        deserialize_with = "null_as_default"
    )]
    pub requests: ResourceList,
    /// What may be used at most.
    #[serde(
        skip_serializing_if = "is_default",
        deserialize_with = "null_as_default"
    )]
    pub limits: ResourceList,
    /// Device claims of the pod that this container uses.
    #[serde(skip_serializing_if = "is_default")]
    pub claims: Vec<LocalObjectReference>,
}

/// A port of a container. Only those with a host port tie the pod to a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerPort {
    /// Port within the pod.
    #[serde(skip_serializing_if = "is_default")]
    pub container_port: i32,
    /// Port on the node, 0 for none.
    #[serde(skip_serializing_if = "is_default")]
    pub host_port: i32,
    /// Address on the node, empty for all.
    #[serde(rename = "hostIP", skip_serializing_if = "is_default")]
    pub host_ip: String,
    /// Protocol; empty counts as TCP.
    #[serde(skip_serializing_if = "is_default")]
    pub protocol: String,
}

/// A volume. The fields tell where its storage comes from; all absent means it needs nothing of the node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Volume {
    /// Name within the pod.
    pub name: String,
    /// Refers to a PersistentVolumeClaim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim: Option<ClaimVolume>,
    /// Makes a PersistentVolumeClaim that lives as long as the pod, named `<pod>-<volume>`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ephemeral: Option<EphemeralVolume>,
    /// A volume that a CSI driver makes for the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub csi: Option<CsiVolume>,
}

/// Refers to a PersistentVolumeClaim of the pod's namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimVolume {
    /// Name of the claim.
    pub claim_name: String,
}

/// A PersistentVolumeClaim that is made for the pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EphemeralVolume {
    /// What the claim will look like.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_claim_template: Option<PersistentVolumeClaimTemplate>,
}

/// A volume that a CSI driver makes for the pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CsiVolume {
    /// Name of the driver.
    pub driver: String,
}

/// A claim for devices.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodResourceClaim {
    /// Name within the pod.
    pub name: String,
    /// An existing ResourceClaim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_claim_name: Option<String>,
    /// A template from which a ResourceClaim is made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_claim_template_name: Option<String>,
}

/// A condition of a pod: unlike those of other objects, its message is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodCondition {
    /// Type, such as `PodScheduled`.
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Why, in one word; empty when not given.
    #[serde(skip_serializing_if = "is_default")]
    pub reason: String,
    /// Why, in a sentence; empty when not given.
    #[serde(skip_serializing_if = "is_default")]
    pub message: String,
    /// Time of the last status change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
}

/// What a pod is doing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    /// `Pending`, `ContainerStates`, `Succeeded`, `Failed` or `Unknown`; empty when not set yet.
    #[serde(skip_serializing_if = "is_default")]
    pub phase: String,
    /// Conditions.
    #[serde(skip_serializing_if = "is_default")]
    pub conditions: Vec<PodCondition>,
    /// The node on which room is being made for it by preemption.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nominated_node_name: Option<String>,
    /// When the kubelet took it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    /// Containers as they run.
    #[serde(skip_serializing_if = "is_default")]
    pub container_statuses: Vec<ContainerStatus>,
    /// Init containers as they run.
    #[serde(skip_serializing_if = "is_default")]
    pub init_container_statuses: Vec<ContainerStatus>,
    /// Requests and limits of the pod as a whole that are in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<ContainerResources>,
    /// Requests of the pod as a whole that the node has granted.
    #[serde(skip_serializing_if = "is_default")]
    pub allocated_resources: ResourceList,
    /// State of a resize, as API servers before 1.33 write it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resize: Option<String>,
    /// ResourceClaims that were made from templates.
    #[serde(skip_serializing_if = "is_default")]
    pub resource_claim_statuses: Vec<PodResourceClaimStatus>,
}

/// The resources of a running container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerStatus {
    /// Name within the pod.
    pub name: String,
    /// Requests that the node has granted.
    #[serde(skip_serializing_if = "is_default")]
    pub allocated_resources: ResourceList,
    /// Requests and limits in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<ContainerResources>,
}

/// The ResourceClaim that stands behind a claim of the pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodResourceClaimStatus {
    /// Name within the pod.
    pub name: String,
    /// Name of the ResourceClaim; absent when none is needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_claim_name: Option<String>,
}
