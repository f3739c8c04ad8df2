//! Why a node does not run a pod, and why a nomination to it ends.

use std::fmt;

use serde::Serialize;

use mortise_state::ledger::FenceReason;
use mortise_state::pods::HostPort;

/// Why a nomination is no longer valid.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NominationFailure {
    /// The node is deleted, or being deleted.
    NodeGone,
    /// kube-scheduler rejected the pod on the node.
    Rejected,
    /// Topology spread, affinity or anti-affinity.
    Topology,
    /// The node, as it registered, cannot run the pod.
    Misfit(FitError),
    /// Pods with earlier nominations use the capacity, ports or volumes.
    CapacityTaken,
    /// The gang of the pod lacks places.
    GangIncomplete,
    /// Devices that the pod claims are not available; what is missing.
    Devices(String),
}

impl fmt::Display for NominationFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NodeGone => "the node is deleted, or being deleted",
            Self::Rejected => "kube-scheduler rejected the pod on the node",
            Self::Topology => "topology spread, affinity or anti-affinity is not satisfied",
            Self::Misfit(misfit) => return misfit.fmt(f),
            Self::CapacityTaken => "pods with earlier nominations use the capacity",
            Self::GangIncomplete => "its gang does not get all the places that it needs",
            Self::Devices(missing) => return write!(f, "devices: {missing}"),
        })
    }
}

/// Why a node accepts no pods at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum UnschedulableNode {
    /// Its Node or NodeClaim is being deleted, or the cloud terminates its instance.
    Deleting,
    /// It is fenced before a disruption.
    Fenced(FenceReason),
}

/// Why a pod does not fit on a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FitError {
    /// The node accepts no pods.
    Closed(UnschedulableNode),
    /// The pod does not tolerate a taint, given as `key=value:effect`.
    Taint(String),
    /// A host port is used, or nominated.
    HostPort {
        /// The requested port.
        asked: HostPort,
        /// The conflicting port.
        taken: HostPort,
    },
    /// Too little of a resource is free; amounts in the units of [`mortise_apis::resources::Resources`].
    Resource {
        /// Resource name.
        resource: String,
        /// Requested amount.
        asked: i64,
        /// Free amount, net of nominations; may be negative.
        free: i64,
    },
    /// The labels do not satisfy the pod's requirements: the conflict, with Karpenter's text.
    Labels(String),
}

impl fmt::Display for FitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed(UnschedulableNode::Deleting) => f.write_str("the node is being deleted"),
            Self::Closed(UnschedulableNode::Fenced(reason)) => {
                write!(f, "the node is fenced: {}", reason.label())
            }
            Self::Taint(taint) => write!(f, "did not tolerate taint {taint}"),
            Self::HostPort { asked, taken } => {
                write!(f, "host port {asked} conflicts with {taken}")
            }
            Self::Resource {
                resource,
                asked,
                free,
            } => {
                write!(f, "insufficient {resource}: {asked} requested, {free} free")
            }
            Self::Labels(clash) => write!(f, "incompatible requirements, {clash}"),
        }
    }
}
