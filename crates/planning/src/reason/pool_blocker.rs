//! What keeps a NodePool from running a pod.

use serde::Serialize;

/// Kind of a blocker that keeps a NodePool from running a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PoolBlocker {
    /// The pool or its node class is not ready.
    NotReady,
    /// Launches of the NodePool are paused because its nodes do not register.
    LaunchesPaused,
    /// The pool's own requirements leave no type.
    NoTypes,
    /// The NodePool may have no further node.
    NodeLimit,
    /// Another limit of the pool leaves no type.
    Limit,
    /// The NodePoolPolicy of the pool allows no further node now.
    Policy,
    /// A taint that the pod does not tolerate.
    Taint,
    /// The pod requires labels that nodes of the NodePool do not have.
    Labels,
    /// The pod requires a hostname.
    HostName,
    /// Its volumes are in other domains.
    Volumes,
    /// A topology spread constraint.
    Spread,
    /// Pod affinity.
    PodAffinity,
    /// Pod anti-affinity, its own or that of other pods.
    PodAntiAffinity,
    /// No instance type meets the requirements.
    Types,
    /// No type is large enough.
    Resources,
    /// A type would be large enough without the DaemonSets.
    DaemonSets,
    /// A DaemonSet uses the host port.
    HostPorts,
    /// The instance types are not offered in these zones and capacity types.
    Offerings,
    /// The offerings are unavailable now (insufficient capacity).
    SoldOut,
    /// Too few different values for `minValues`.
    MinValues,
    /// Only reserved capacity that other NodeClaims hold.
    Reserved,
    /// Device claims.
    Devices,
}

impl PoolBlocker {
    /// Label for summaries.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::NotReady => "not_ready",
            Self::LaunchesPaused => "launches_paused",
            Self::NoTypes => "no_types",
            Self::NodeLimit => "node_limit",
            Self::Limit => "limit",
            Self::Policy => "policy",
            Self::Taint => "taint",
            Self::Labels => "labels",
            Self::HostName => "host_name",
            Self::Volumes => "volumes",
            Self::Spread => "spread",
            Self::PodAffinity => "pod_affinity",
            Self::PodAntiAffinity => "pod_anti_affinity",
            Self::Types => "types",
            Self::Resources => "resources",
            Self::DaemonSets => "daemon_sets",
            Self::HostPorts => "host_ports",
            Self::Offerings => "offerings",
            Self::SoldOut => "sold_out",
            Self::MinValues => "min_values",
            Self::Reserved => "reserved",
            Self::Devices => "devices",
        }
    }
}
