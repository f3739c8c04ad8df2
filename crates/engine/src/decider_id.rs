//! The names of the deciders.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Who decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeciderId {
    /// Node classes: status, finalizer, catalogue.
    NodeClass,
    /// Pools: readiness, counters, hash, validation.
    NodePool,
    /// Overlays: whether they are in force.
    NodeOverlay,
    /// Policies of NodePools: whether they are in force.
    NodePoolPolicy,
    /// Capacity buffers: whether they have room.
    CapacityBuffer,
    /// Requests for room: whether there is some.
    ProvisioningRequest,
    /// Notices of the cloud.
    Interruption,
    /// Claims: launch, registration, initialization, liveness.
    Lifecycle,
    /// Claims and nodes that go: drain, volumes, instance, finalizers.
    Termination,
    /// Claims: conditions `Drifted`, `Consolidatable`.
    Conditions,
    /// Claims that are too old.
    Expiration,
    /// Instances: tags that wait for the node.
    InstanceTagging,
    /// Claims without instances, instances without claims.
    GarbageCollection,
    /// Nodes whose conditions are bad.
    Repair,
    /// Pools with a fixed number of nodes.
    StaticCapacity,
    /// Pending pods.
    Provisioning,
    /// Nodes that are empty, drifted or too expensive.
    Disruption,
    /// Pods of workloads that shrink: which of them go first.
    DeletionCost,
    /// None of them: the index saw an object change.
    Index,
}

impl DeciderId {
    /// Word for logs and metrics.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::NodeClass => "node_class",
            Self::NodePool => "node_pool",
            Self::NodeOverlay => "node_overlay",
            Self::NodePoolPolicy => "node_pool_policy",
            Self::CapacityBuffer => "capacity_buffer",
            Self::ProvisioningRequest => "provisioning_request",
            Self::Interruption => "interruption",
            Self::Lifecycle => "lifecycle",
            Self::Termination => "termination",
            Self::Conditions => "conditions",
            Self::Expiration => "expiration",
            Self::InstanceTagging => "instance_tagging",
            Self::GarbageCollection => "garbage_collection",
            Self::Repair => "repair",
            Self::StaticCapacity => "static_capacity",
            Self::Provisioning => "provisioning",
            Self::Disruption => "disruption",
            Self::DeletionCost => "deletion_cost",
            Self::Index => "index",
        }
    }
}

impl fmt::Display for DeciderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}
