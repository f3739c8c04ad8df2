//! The kinds of drain blockers, as metrics and records spell them.

use serde::Serialize;

macro_rules! shapes {
    ($($(#[$doc:meta])+ $name:ident = $label:literal,)+) => {
        /// Kind of a drain blocker.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[serde(rename_all = "snake_case")]
        pub enum DrainBlockerKind {
            $($(#[$doc])+ $name,)+
        }

        impl DrainBlockerKind {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// Label for metrics.
            #[must_use]
            pub const fn label(self) -> &'static str {
                match self {
                    $(Self::$name => $label,)+
                }
            }
        }
    };
}

shapes! {
    /// The budget requires as many pods as exist.
    PdbNeverAllows = "pdb_never_allows",
    /// Pods of the budget are not ready.
    PdbPodsNotReady = "pdb_pods_not_ready",
    /// The pod itself is not ready, and its budget protects it nevertheless.
    PdbPodNotReady = "pdb_pod_not_ready",
    /// Pods of the budget are not bound.
    PdbPodsPending = "pdb_pods_pending",
    /// The budget has no current status.
    PdbNotComputed = "pdb_not_computed",
    /// The budget's pods cannot be counted: their owner is missing or does not scale.
    PdbNotCountable = "pdb_not_countable",
    /// Other evictions have used the budget up.
    PdbExhausted = "pdb_exhausted",
    /// Several budgets select the pod.
    MultiplePdbs = "multiple_pdbs",
    /// A pod's annotation protects it indefinitely.
    DoNotDisrupt = "do_not_disrupt",
    /// A pod's annotation protects it for a while.
    DoNotDisruptUntil = "do_not_disrupt_until",
    /// A pause of the node, its NodePool, those of a policy or the cluster.
    DisruptionPaused = "disruption_paused",
    /// A pod waits until its Deployment has started another one.
    HandingOver = "handing_over",
    /// A pod terminates slowly.
    InGracePeriod = "in_grace_period",
    /// A finalizer keeps a pod that has terminated.
    PodFinalizer = "pod_finalizer",
    /// A pod's kubelet does not respond.
    KubeletNotResponding = "kubelet_not_responding",
    /// A pod does not terminate although its kubelet responds.
    PodStuck = "pod_stuck",
    /// A webhook or policy denies the eviction.
    EvictionDenied = "eviction_denied",
    /// Mortise lacks the permission to evict.
    EvictionForbidden = "eviction_forbidden",
    /// The API server does not respond to evictions.
    EvictionUnavailable = "eviction_unavailable",
    /// A volume is attached and its driver does not detach it.
    VolumeAttached = "volume_attached",
    /// A volume is being detached.
    VolumeDetaching = "volume_detaching",
    /// A volume cannot be detached.
    VolumeDetachFailed = "volume_detach_failed",
    /// The cloud does not terminate the instance.
    InstanceTerminationFailed = "instance_termination_failed",
    /// The cloud is terminating the instance.
    InstanceTerminating = "instance_terminating",
    /// Another controller's finalizer keeps the Node.
    NodeFinalizer = "node_finalizer",
    /// Another controller's finalizer keeps the NodeClaim.
    ClaimFinalizer = "claim_finalizer",
    /// The API server rejects mortise's writes.
    ApiWriteRejected = "api_write_rejected",
}

impl DrainBlockerKind {
    /// Whether objects show it. Otherwise only the draining process knows it, from a response.
    #[must_use]
    pub const fn shows_in_objects(self) -> bool {
        !matches!(
            self,
            Self::EvictionDenied
                | Self::EvictionForbidden
                | Self::EvictionUnavailable
                | Self::InstanceTerminationFailed
                | Self::ApiWriteRejected
        )
    }

    /// The event that reports it.
    pub const fn event(self) -> &'static str {
        match self {
            Self::PdbNeverAllows
            | Self::PdbPodsNotReady
            | Self::PdbPodNotReady
            | Self::PdbPodsPending
            | Self::PdbNotComputed
            | Self::PdbNotCountable
            | Self::PdbExhausted
            | Self::MultiplePdbs
            | Self::DoNotDisrupt
            | Self::DoNotDisruptUntil
            | Self::DisruptionPaused
            | Self::HandingOver
            | Self::InGracePeriod
            | Self::PodFinalizer
            | Self::KubeletNotResponding
            | Self::PodStuck
            | Self::EvictionDenied
            | Self::EvictionForbidden
            | Self::EvictionUnavailable => "FailedDraining",
            Self::VolumeAttached | Self::VolumeDetaching | Self::VolumeDetachFailed => {
                "AwaitingVolumeDetachment"
            }
            Self::InstanceTerminationFailed
            | Self::InstanceTerminating
            | Self::NodeFinalizer
            | Self::ClaimFinalizer
            | Self::ApiWriteRejected => "FailedTermination",
        }
    }
}
