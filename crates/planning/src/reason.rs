//! Why something was decided, with the facts.

use std::fmt;

use jiff::Timestamp;
use serde::Serialize;

use crate::drain_blocker::DrainBlocker;
use mortise_apis::names::{
    ClaimName, NamespacedName, NodeName, ObjectRef, PodKey, PoolName, ProviderId,
};
use mortise_apis::resources::quantity;
use mortise_apis::values::money::MicroUsd;
use mortise_state::ledger::FenceReason;
use mortise_state::pods::HostPort;
use mortise_state::watch_age::OldWatch;

/// What kind of thing keeps a pool from taking a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PoolBlocker {
    /// The pool or its node class is not ready.
    NotReady,
    /// Launches of the pool are held back because its machines do not register.
    LaunchesPaused,
    /// The pool's own requirements leave no type.
    NoTypes,
    /// The pool may have no further node.
    NodeLimit,
    /// Another limit of the pool leaves no type.
    Limit,
    /// A taint that the pod does not tolerate.
    Taint,
    /// The pod asks for labels that nodes of the pool do not have.
    Labels,
    /// The pod asks for a node by its name.
    HostName,
    /// Its volumes are elsewhere.
    Volumes,
    /// A topology spread constraint.
    Spread,
    /// Pod affinity.
    PodAffinity,
    /// Pod anti-affinity, its own or that of others against it.
    PodAntiAffinity,
    /// No type is what is asked.
    Types,
    /// No type is large enough.
    Resources,
    /// A type would be large enough without the DaemonSets.
    DaemonSets,
    /// A DaemonSet takes the host port.
    HostPorts,
    /// Nobody sells the types there in this way.
    Offerings,
    /// The cloud has none at present.
    SoldOut,
    /// Too few different values for `minValues`.
    MinValues,
    /// Only reserved capacity that others hold.
    Reserved,
    /// Claims for devices.
    Devices,
}

impl PoolBlocker {
    /// Word for summaries.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::NotReady => "not_ready",
            Self::LaunchesPaused => "launches_paused",
            Self::NoTypes => "no_types",
            Self::NodeLimit => "node_limit",
            Self::Limit => "limit",
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

/// Why, with the facts. Closed: a new reason does not compile until it has a word and a text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "reason")]
#[allow(
    missing_docs,
    reason = "the variant's sentence says what its fields are"
)]
pub enum Reason {
    /// Goes to this node.
    OnNode { node: NodeName },
    /// Goes to the node of this claim.
    OnClaim { claim: ClaimName },
    /// The nomination to this node is no longer valid.
    NominationInvalid {
        node: String,
        why: NominationFailure,
    },
    /// It is expected on this ready node, and kube-scheduler has not put it there; in its words.
    NotTakenOn { node: String, message: String },
    /// kube-scheduler refused it on these ready nodes, where it was expected; its newest words.
    RejectedOn { nodes: Vec<String>, message: String },
    /// Nominations to these unused nodes failed; the last failure, and when the next node may be launched.
    LaunchBackoff {
        nodes: Vec<String>,
        why: NominationFailure,
        until: Timestamp,
    },
    /// For these pods.
    ForPods { pods: Vec<PodKey>, more: usize },
    /// Made by this pool.
    FromPool { pool: PoolName },
    /// As this offering, at this price.
    Offering {
        instance_type: String,
        zone: String,
        capacity_type: String,
        price: Option<MicroUsd>,
    },
    /// Cheapest price of a plan.
    Price {
        old: Option<MicroUsd>,
        new: Option<MicroUsd>,
    },
    /// A pool cannot take the pod: the constraint, in upstream's words, and what it comes down to, in ours (may be empty).
    PoolRefused {
        pool: PoolName,
        blocker: PoolBlocker,
        constraint: String,
        detail: String,
    },
    /// No usable pool at all.
    NoPools,
    /// The nearest instance type misses by this much, in the units of [`mortise_apis::resources::Resources`].
    NearestTypeShortfall {
        instance_type: String,
        resource: String,
        by: i64,
    },
    /// No node is left without pods: nothing to move.
    Empty,
    /// It costs more than its pods need.
    Underutilized,
    /// It differs from what its pool or class asks for.
    Drifted { why: String },
    /// It is too old.
    Expired,
    /// The cloud will take it back.
    Interrupted,
    /// A condition of the node has been bad for too long.
    Unhealthy {
        condition: String,
        status: String,
        since: Timestamp,
    },
    /// Nobody needs it, or somebody asked for it to go.
    Deleted,
    /// It goes by force: which decider ended it, and why.
    ClaimDeleted { by: String },
    /// The cloud does not have its machine any more.
    InstanceGone { instance: ProviderId },
    /// No claim speaks for this machine.
    NoClaim { instance: ProviderId },
    /// Nothing that cannot be taken back is done on what an old watch says.
    Outdated(OldWatch),
    /// Its node is there and ready, whatever else is missing.
    NodeIsReady,
    /// An object that matters cannot be read.
    Unreadable { object: ObjectRef },
    /// A disruption budget of pods allows no eviction now.
    Pdb { pdb: NamespacedName },
    /// Several disruption budgets select one pod.
    MultiplePdbs { pod: PodKey },
    /// A pod may not be disrupted.
    DoNotDisruptPod { pod: PodKey },
    /// The node may not be disrupted.
    DoNotDisruptNode,
    /// The pool's budget allows no more.
    Budget { pool: PoolName, allowed: i64 },
    /// The node is promised to a pod.
    PodNominated { pod: PodKey },
    /// It changed (or its pods changed) too recently.
    CooldownActive { until: Timestamp },
    /// Its price is not known.
    UnknownPrice,
    /// No cheaper way was found.
    NotCheaper { old: MicroUsd, new: MicroUsd },
    /// More than one new node would be needed.
    NeedsMoreNodes { count: usize },
    /// These pods would have no place.
    PodsUnschedulable { pods: Vec<PodKey> },
    /// A pool's limit would not hold.
    Limit { pool: PoolName, message: String },
    /// The pool is to have so many nodes, and has so many.
    Replicas {
        pool: PoolName,
        wanted: i64,
        there: i64,
    },
    /// So many machines of the pool in a row did not register: none is launched until then.
    LaunchesPaused {
        pool: PoolName,
        failures: u32,
        until: Timestamp,
    },
    /// Something holds a drain up: what, whose, since when, the facts, and what would clear it.
    DrainBlocked(DrainBlocker),
    /// A premise of the command no longer holds.
    PremiseChanged { what: String },
    /// The cloud or the API server failed.
    Failed { error: String },
    /// A condition has this value for this reason.
    ConditionIs {
        condition: String,
        status: String,
        why: String,
    },
    /// Facts in words, where no closed reason says it better.
    Note { text: String },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OnNode { node } => write!(f, "on node {node}"),
            Self::OnClaim { claim } => write!(f, "on the node of claim {claim}"),
            Self::NominationInvalid { node, why } => {
                write!(f, "nomination to node {node} is no longer valid: {why}")
            }
            Self::NotTakenOn { node, message } => write!(
                f,
                "node {node} is ready and nominated, but kube-scheduler has not bound it there: {message}"
            ),
            Self::LaunchBackoff { nodes, why, until } => write!(
                f,
                "nominated to {}, which are unused (last failure: {why}); the next node is launched after {until:.0}",
                nodes.join(", ")
            ),
            Self::RejectedOn { nodes, message } => write!(
                f,
                "kube-scheduler rejected it on {}, where it should fit, so no further node is launched for it: {message}",
                nodes.join(", ")
            ),
            Self::ForPods { pods, more } => {
                write!(f, "for {}", list(pods))?;
                if *more > 0 {
                    write!(f, " and {more} more")
                } else {
                    Ok(())
                }
            }
            Self::FromPool { pool } => write!(f, "from pool {pool}"),
            Self::Offering {
                instance_type,
                zone,
                capacity_type,
                price,
            } => {
                write!(f, "{instance_type} in {zone}, {capacity_type}")?;
                price.map_or(Ok(()), |price| write!(f, ", {price}"))
            }
            Self::Price { old, new } => {
                let text = |price: &Option<MicroUsd>| {
                    price.map_or_else(|| "unknown".to_owned(), |price| price.to_string())
                };
                write!(f, "price {} -> {}", text(old), text(new))
            }
            Self::PoolRefused {
                pool,
                constraint,
                detail,
                ..
            } => {
                let text = if detail.is_empty() {
                    constraint
                } else {
                    detail
                };
                write!(f, "pool {pool}: {text}")
            }
            Self::NoPools => f.write_str("there is no pool that is ready"),
            Self::NearestTypeShortfall {
                instance_type,
                resource,
                by,
            } => {
                let by = quantity(resource, *by);
                write!(f, "nearest type {instance_type} lacks {by} of {resource}")
            }
            Self::Empty => f.write_str("no pod would have to move"),
            Self::Underutilized => f.write_str("its pods fit on fewer or cheaper nodes"),
            Self::Drifted { why } => write!(f, "drifted: {why}"),
            Self::Expired => f.write_str("older than expireAfter"),
            Self::Interrupted => f.write_str("the cloud provider interrupts the instance"),
            Self::Unhealthy {
                condition,
                status,
                since,
            } => write!(f, "condition {condition} has been {status} since {since}"),
            Self::Deleted => f.write_str("deleted"),
            Self::ClaimDeleted { by } => f.write_str(by),
            Self::InstanceGone { instance } => write!(f, "instance {instance} does not exist"),
            Self::NoClaim { instance } => write!(f, "instance {instance} has no NodeClaim"),
            Self::Outdated(old) => old.fmt(f),
            Self::NodeIsReady => f.write_str("its node is ready"),
            Self::Unreadable { object } => write!(f, "{object} cannot be read"),
            Self::Pdb { pdb } => write!(f, "disruption budget {pdb} allows no eviction"),
            Self::MultiplePdbs { pod } => write!(f, "several disruption budgets select pod {pod}"),
            Self::DoNotDisruptPod { pod } => write!(f, "pod {pod} must not be disrupted"),
            Self::DoNotDisruptNode => f.write_str("the node must not be disrupted"),
            Self::Budget { pool, allowed } => write!(f, "budget of pool {pool} allows {allowed}"),
            Self::PodNominated { pod } => write!(f, "nominated to pod {pod}"),
            Self::CooldownActive { until } => write!(f, "in cooldown until {until}"),
            Self::UnknownPrice => f.write_str("its price is unknown"),
            Self::NotCheaper { old, new } => write!(f, "not cheaper: {old} now, {new} then"),
            Self::NeedsMoreNodes { count } => write!(f, "{count} new nodes would be needed"),
            Self::PodsUnschedulable { pods } => write!(f, "unschedulable: {}", list(pods)),
            Self::Limit { pool, message } => write!(f, "limit of pool {pool}: {message}"),
            Self::Replicas {
                pool,
                wanted,
                there,
            } => write!(f, "NodePool {pool} requires {wanted} nodes and has {there}"),
            Self::LaunchesPaused {
                pool,
                failures,
                until,
            } => write!(
                f,
                "{failures} consecutive nodes of NodePool {pool} did not register: launches are paused until {until}, then one probe is launched"
            ),
            Self::DrainBlocked(obstacle) => {
                let DrainBlocker {
                    since, unblocks, ..
                } = obstacle;
                write!(f, "{obstacle} (since {since}); {unblocks}")
            }
            Self::PremiseChanged { what } => write!(f, "no longer true: {what}"),
            Self::Failed { error } => write!(f, "failed: {error}"),
            Self::ConditionIs {
                condition,
                status,
                why,
            } => write!(f, "{condition} is {status}: {why}"),
            Self::Note { text } => f.write_str(text),
        }
    }
}

fn list(pods: &[PodKey]) -> String {
    pods.iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(", ")
}

/// Why a nomination is no longer valid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
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
            Self::Devices(missing) => return write!(f, "devices: {missing}"),
        })
    }
}

/// Why a machine takes no pods at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum UnschedulableNode {
    /// Its Node or claim is being deleted, or the cloud ends it.
    Deleting,
    /// It will go.
    Fenced(FenceReason),
}

/// Why a pod may not be on a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FitError {
    /// The machine takes no pods.
    Closed(UnschedulableNode),
    /// The pod does not tolerate a taint, given as `key=value:effect`.
    Taint(String),
    /// A host port is taken, or will be.
    HostPort {
        /// The port asked for.
        asked: HostPort,
        /// The port in its way.
        taken: HostPort,
    },
    /// There is too little of a resource; amounts in the units of [`mortise_apis::resources::Resources`].
    Resource {
        /// Resource name.
        resource: String,
        /// What the pod takes.
        asked: i64,
        /// What is free once promises are kept; may be negative.
        free: i64,
    },
    /// The labels are not what the pod asks for: what clashes, in upstream's words.
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
