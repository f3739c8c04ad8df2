//! Slim views of built-in kinds: only the fields that scheduling, disruption, draining and the extender read.
//!
//! A watch of 100,000 pods must fit in memory, so environment variables, commands, mounts and everything else that
//! decides nothing is dropped while reading. Values of environment variables and Secrets can therefore never leave
//! through a debug page either.

pub mod devices;
pub mod node;
pub mod pod;
pub mod pod_group;
pub mod provisioning_request;
pub mod storage;
pub mod workload;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};

use crate::schema::object::is_default;

pub use devices::{DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice};
pub use node::{Node, NodeSpec, NodeStatus};
pub use pod::{Pod, PodCondition, PodSpec, PodStatus};
pub use pod_group::{CoschedulingPodGroup, PodGroup, VolcanoPodGroup};
pub use provisioning_request::{ProvisioningClass, ProvisioningRequest, RequestPhase};
pub use storage::{
    CsiNode, PersistentVolume, PersistentVolumeClaim, StorageClass, VolumeAttachment,
};
pub use workload::{
    DaemonSet, Deployment, DeploymentSpec, Namespace, PodDisruptionBudget, PodTemplate, ReplicaSet,
    ReplicationController, ScalableSpec, SelectingKind, SelectingSpec, Service, StatefulSet,
    StoredPodTemplate,
};

/// Resource name to amount, as objects write it.
pub type ResourceList =
    std::collections::BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>;

/// A condition of a Node or PodDisruptionBudget, without its message.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectCondition {
    /// Type, such as `Ready`.
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Why, in one word; empty when not given.
    #[serde(skip_serializing_if = "is_default")]
    pub reason: String,
    /// Time of the last status change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
}

/// The condition of a type, if there is one.
#[must_use]
pub fn find_condition<'a>(
    conditions: &'a [ObjectCondition],
    type_: &str,
) -> Option<&'a ObjectCondition> {
    conditions.iter().find(|each| each.type_ == type_)
}

#[cfg(test)]
mod tests {
    use kube_core::Resource;
    use serde_json::json;

    use super::*;

    #[test]
    fn kinds_are_served_at_their_paths() {
        let in_a_namespace = Some("ns");
        let paths = [
            Pod::url_path(&(), in_a_namespace),
            Node::url_path(&(), None),
            PodDisruptionBudget::url_path(&(), in_a_namespace),
            DaemonSet::url_path(&(), in_a_namespace),
            PersistentVolumeClaim::url_path(&(), in_a_namespace),
            PersistentVolume::url_path(&(), None),
            StorageClass::url_path(&(), None),
            CsiNode::url_path(&(), None),
            VolumeAttachment::url_path(&(), None),
            Namespace::url_path(&(), None),
            ResourceClaim::url_path(&(), in_a_namespace),
            ResourceSlice::url_path(&(), None),
        ];
        assert_eq!(
            paths,
            [
                "/api/v1/namespaces/ns/pods",
                "/api/v1/nodes",
                "/apis/policy/v1/namespaces/ns/poddisruptionbudgets",
                "/apis/apps/v1/namespaces/ns/daemonsets",
                "/api/v1/namespaces/ns/persistentvolumeclaims",
                "/api/v1/persistentvolumes",
                "/apis/storage.k8s.io/v1/storageclasses",
                "/apis/storage.k8s.io/v1/csinodes",
                "/apis/storage.k8s.io/v1/volumeattachments",
                "/api/v1/namespaces",
                "/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims",
                "/apis/resource.k8s.io/v1/resourceslices",
            ]
        );
    }

    #[test]
    fn a_pod_keeps_what_decides_and_nothing_else() {
        let decides = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": { "name": "p", "namespace": "ns", "labels": { "app": "a" } },
            "spec": {
                "nodeName": "n",
                "nodeSelector": { "zone": "a" },
                "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{ "matchExpressions": [{ "key": "k", "operator": "In", "values": ["v"] }] }],
                } } },
                "tolerations": [{ "operator": "Exists" }],
                "topologySpreadConstraints": [
                    { "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {} },
                ],
                "containers": [{
                    "name": "c",
                    "resources": { "requests": { "cpu": "1" }, "limits": { "cpu": "2" }, "claims": [{ "name": "gpu" }] },
                    "ports": [{ "containerPort": 80, "hostPort": 8080, "hostIP": "10.0.0.1", "protocol": "UDP" }],
                }],
                "initContainers": [{ "name": "i", "restartPolicy": "Always" }],
                "overhead": { "memory": "1Mi" },
                "resources": { "requests": { "cpu": "3" } },
                "priority": 7,
                "priorityClassName": "high",
                "preemptionPolicy": "Never",
                "volumes": [
                    { "name": "a", "persistentVolumeClaim": { "claimName": "claim" } },
                    { "name": "b", "ephemeral": { "volumeClaimTemplate": {
                        "metadata": { "labels": { "l": "v" } },
                        "spec": { "storageClassName": "fast" },
                    } } },
                    { "name": "d", "csi": { "driver": "secrets" } },
                ],
                "schedulerName": "default-scheduler",
                "hostNetwork": true,
                "terminationGracePeriodSeconds": 30,
                "schedulingGates": [{ "name": "gate" }],
                "resourceClaims": [{ "name": "gpu", "resourceClaimTemplateName": "gpus" }],
                "schedulingGroup": { "podGroupName": "workers" },
            },
            "status": {
                "phase": "Pending",
                "conditions": [{
                    "type": "PodScheduled",
                    "status": "False",
                    "reason": "Unschedulable", "message": "0/3 nodes are available",
                    "lastTransitionTime": "2024-01-02T03:04:05Z",
                }],
                "nominatedNodeName": "m",
                "startTime": "2024-01-02T03:04:05Z",
                "containerStatuses": [{
                    "name": "c",
                    "allocatedResources": { "cpu": "1" },
                    "resources": { "requests": { "cpu": "1" } },
                }],
                "resize": "InProgress",
                "resourceClaimStatuses": [{ "name": "gpu", "resourceClaimName": "p-gpu" }],
            },
        });
        let mut full = decides.clone();
        full["metadata"]["managedFields"] =
            json!([{ "manager": "kubectl", "operation": "Update" }]);
        full["spec"]["serviceAccountName"] = json!("someone");
        full["spec"]["containers"][0]["env"] = json!([{ "name": "PASSWORD", "value": "secret" }]);
        full["spec"]["containers"][0]["image"] = json!("image");
        full["spec"]["volumes"][0]["secret"] = json!({ "secretName": "secret" });
        full["status"]["hostIP"] = json!("10.0.0.2");
        let pod: Pod = serde_json::from_value(full).unwrap();
        assert_eq!(serde_json::to_value(&pod).unwrap(), decides);
    }

    #[test]
    fn null_lists_are_empty() {
        let csi: CsiNode =
            serde_json::from_value(json!({ "metadata": null, "spec": { "drivers": null } }))
                .unwrap();
        assert_eq!(csi, CsiNode::default());
        let pod: Pod = serde_json::from_value(json!({ "spec": { "containers": null } })).unwrap();
        assert_eq!(pod, Pod::default());
        let daemons: DaemonSet = serde_json::from_value(json!({
            "spec": { "template": { "metadata": { "creationTimestamp": null }, "spec": { "containers": [{ "resources": {} }] } } },
        }))
        .unwrap();
        assert_eq!(daemons.spec.template.spec.containers.len(), 1);
    }
}
