//! The table of watched kinds. Everything that depends on which kinds there are is generated from it: objects, their keys and
//! kinds, parsing, paths, permissions to read, and what the index does with an object.
//!
//! A row is `Name: type, key, watched if, storage;`.
//!
//! - The type is declared with `object!`, which states group, version, plural and scope. The parameters of a kind that several
//!   node classes share are fields of its key.
//! - `as_is(field)`: the index keeps the object in this map of the snapshot. `ingested`: the type implements `Ingested` in
//!   `index/kinds/`.
//! - The order is that of kinds and keys in every ordered collection. Lists start in reverse order: pods, which are the most,
//!   last.

/// Calls a macro with every row of the table.
macro_rules! watched_kinds {
    ($callback:ident) => {
        $callback! {
            Pod: k8s::Pod, PodKey, Always, ingested;
            Node: k8s::Node, NodeName, Always, ingested;
            Claim: NodeClaim, ClaimName, Always, ingested;
            Pool: NodePool, PoolName, Always, ingested;
            NodeClass { group, kind }: NodeClassObject, NodeClassKey, Always, ingested;
            Overlay: NodeOverlay, Arc<str>, NodeOverlays, ingested;
            Policy: NodePoolPolicy, Arc<str>, Policies, as_is(policies);
            Pdb: k8s::PodDisruptionBudget, NamespacedName, Always, as_is(pdbs);
            DaemonSet: k8s::DaemonSet, NamespacedName, Always, as_is(daemon_sets);
            VolumeClaim: k8s::PersistentVolumeClaim, NamespacedName, Always, as_is(volume_claims);
            Volume: k8s::PersistentVolume, Arc<str>, Always, as_is(volumes);
            StorageClass: k8s::StorageClass, Arc<str>, Always, as_is(storage_classes);
            CsiNode: k8s::CsiNode, NodeName, Always, as_is(csi_nodes);
            Attachment: k8s::VolumeAttachment, Arc<str>, Always, as_is(attachments);
            ResourceClaim: k8s::ResourceClaim, NamespacedName, Devices, as_is(devices.claims);
            ResourceClaimTemplate: k8s::ResourceClaimTemplate, NamespacedName, Devices, as_is(devices.templates);
            DeviceClass: k8s::DeviceClass, Arc<str>, Devices, as_is(devices.classes);
            ResourceSlice: k8s::ResourceSlice, Arc<str>, Devices, ingested;
            PodGroup: k8s::PodGroup, NamespacedName, PodGroups, as_is(gangs.groups);
            CoschedulingPodGroup: k8s::CoschedulingPodGroup, NamespacedName, PodGroups, as_is(gangs.coscheduling);
            VolcanoPodGroup: k8s::VolcanoPodGroup, NamespacedName, PodGroups, as_is(gangs.volcano);
            Request: k8s::ProvisioningRequest, NamespacedName, Requests, ingested;
            Namespace: k8s::Namespace, Arc<str>, Always, as_is(namespaces);
            Service: k8s::Service, NamespacedName, SpreadDefaults, ingested;
            ReplicationController: k8s::ReplicationController, NamespacedName, SpreadDefaults, ingested;
            ReplicaSet: k8s::ReplicaSet, NamespacedName, SpreadDefaultsOrBuffers, ingested;
            StatefulSet: k8s::StatefulSet, NamespacedName, SpreadDefaultsOrBuffers, ingested;
            Deployment: k8s::Deployment, NamespacedName, BuffersOrHandOver, ingested;
            PodTemplate: k8s::StoredPodTemplate, NamespacedName, BuffersOrRequests, ingested;
            Buffer: CapacityBuffer, NamespacedName, Buffers, ingested;
        }
    };
}
pub(crate) use watched_kinds;
