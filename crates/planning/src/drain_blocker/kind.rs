//! The kinds of things that hold a drain up, as metrics and records spell them.

use serde::Serialize;

macro_rules! shapes {
    ($($(#[$doc:meta])+ $name:ident = $label:literal,)+) => {
        /// What holds a drain up.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[serde(rename_all = "snake_case")]
        pub enum DrainBlockerKind {
            $($(#[$doc])+ $name,)+
        }

        impl DrainBlockerKind {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// Word for metrics.
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
    /// The budget asks for as many pods as there are.
    PdbNeverAllows = "pdb_never_allows",
    /// Pods of the budget are not ready.
    PdbPodsNotReady = "pdb_pods_not_ready",
    /// The pod itself is not ready, and its budget protects it all the same.
    PdbPodNotReady = "pdb_pod_not_ready",
    /// Pods of the budget have no node.
    PdbPodsPending = "pdb_pods_pending",
    /// Nobody has counted the budget's pods.
    PdbNotComputed = "pdb_not_computed",
    /// The budget's pods cannot be counted: their owner is missing or does not scale.
    PdbNotCountable = "pdb_not_countable",
    /// Other evictions have used the budget up.
    PdbExhausted = "pdb_exhausted",
    /// Several budgets select the pod.
    MultiplePdbs = "multiple_pdbs",
    /// A pod's annotation protects it for ever.
    DoNotDisrupt = "do_not_disrupt",
    /// A pod's annotation protects it for a while.
    DoNotDisruptUntil = "do_not_disrupt_until",
    /// A pod takes its time to end.
    InGracePeriod = "in_grace_period",
    /// A finalizer keeps a pod that has ended.
    PodFinalizer = "pod_finalizer",
    /// A pod's kubelet does not answer.
    KubeletNotResponding = "kubelet_not_responding",
    /// A pod does not end although its kubelet answers.
    PodStuck = "pod_stuck",
    /// A webhook or policy denies the eviction.
    EvictionDenied = "eviction_denied",
    /// We lack the right to evict.
    EvictionForbidden = "eviction_forbidden",
    /// The API server does not answer evictions.
    EvictionUnavailable = "eviction_unavailable",
    /// A volume is attached and nobody detaches it.
    VolumeAttached = "volume_attached",
    /// A volume is being detached.
    VolumeDetaching = "volume_detaching",
    /// A volume cannot be detached.
    VolumeDetachFailed = "volume_detach_failed",
    /// The cloud does not end the machine.
    InstanceTerminationFailed = "instance_termination_failed",
    /// The cloud takes its time to end the machine.
    InstanceTerminating = "instance_terminating",
    /// Somebody else's finalizer keeps the Node.
    NodeFinalizer = "node_finalizer",
    /// Somebody else's finalizer keeps the claim.
    ClaimFinalizer = "claim_finalizer",
    /// The API server does not take our writes.
    ApiWriteRejected = "api_write_rejected",
}

impl DrainBlockerKind {
    /// Whether objects tell of it. If not, an answer did, to the process that drains.
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

    /// The event that tells of it.
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
