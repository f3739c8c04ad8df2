//! Reasons of decisions, with the facts.

mod disruption_blocker;
mod fit_error;
mod pool_blocker;

use std::fmt;

use jiff::Timestamp;
use serde::Serialize;

pub use disruption_blocker::DisruptionBlocker;
pub use fit_error::{FitError, NominationFailure, UnschedulableNode};
pub use pool_blocker::PoolBlocker;

use crate::drain_blocker::DrainBlocker;
use mortise_apis::names::{
    ClaimName, NamespacedName, NodeName, ObjectRef, PodKey, PoolName, ProviderId,
};
use mortise_apis::resources::quantity;
use mortise_apis::values::money::MicroUsd;
use mortise_state::watch_age::OldWatch;

/// The reason of a decision. Closed: a new reason does not compile until it has a label and a text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "reason")]
#[allow(
    missing_docs,
    reason = "the variant's sentence says what its fields are"
)]
pub enum Reason {
    /// Placed on this node.
    OnNode { node: NodeName },
    /// Placed on the node of this NodeClaim.
    OnClaim { claim: ClaimName },
    /// The nomination to this node is no longer valid.
    NominationInvalid {
        node: String,
        why: NominationFailure,
    },
    /// The pod is nominated to this ready node, and kube-scheduler has not bound it there; kube-scheduler's message.
    NotTakenOn { node: String, message: String },
    /// kube-scheduler rejected the pod on these ready nodes that it was nominated to; the newest message.
    RejectedOn { nodes: Vec<String>, message: String },
    /// Nominations to these unused nodes failed; the last failure, and when the next node may be launched.
    LaunchBackoff {
        nodes: Vec<String>,
        why: NominationFailure,
        until: Timestamp,
    },
    /// For these pods.
    ForPods { pods: Vec<PodKey>, more: usize },
    /// Launched by this NodePool.
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
    /// A NodePool cannot run the pod: the constraint, with Karpenter's text, and the decisive fact (may be empty).
    PoolRefused {
        pool: PoolName,
        blocker: PoolBlocker,
        constraint: String,
        detail: String,
    },
    /// No usable NodePool.
    NoPools,
    /// The nearest instance type lacks this much, in the units of [`mortise_apis::resources::Resources`].
    NearestTypeShortfall {
        instance_type: String,
        resource: String,
        by: i64,
    },
    /// No pod would have to be relocated.
    Empty,
    /// It costs more than its pods need.
    Underutilized,
    /// It differs from its NodePool or node class.
    Drifted { why: String },
    /// It is too old.
    Expired,
    /// The cloud interrupts the instance.
    Interrupted,
    /// A condition of the node has been bad for too long.
    Unhealthy {
        condition: String,
        status: String,
        since: Timestamp,
    },
    /// It is not needed, or its deletion was requested.
    Deleted,
    /// Forcefully deleted: by which decider, and why.
    ClaimDeleted { by: String },
    /// The cloud has no such instance.
    InstanceGone { instance: ProviderId },
    /// The instance has no NodeClaim.
    NoClaim { instance: ProviderId },
    /// Irreversible actions are suspended while a watch is outdated.
    Outdated(OldWatch),
    /// Its node exists and is ready.
    NodeIsReady,
    /// An object that matters cannot be read.
    Unreadable { object: ObjectRef },
    /// A PodDisruptionBudget allows no eviction now.
    Pdb { pdb: NamespacedName },
    /// Several PodDisruptionBudgets select one pod.
    MultiplePdbs { pod: PodKey },
    /// A pod may not be disrupted.
    DoNotDisruptPod { pod: PodKey },
    /// The node may not be disrupted.
    DoNotDisruptNode,
    /// The pool's budget allows no more.
    Budget { pool: PoolName, allowed: i64 },
    /// The node is nominated to a pod.
    PodNominated { pod: PodKey },
    /// It changed (or its pods changed) too recently.
    CooldownActive { until: Timestamp },
    /// Its price is not known.
    UnknownPrice,
    /// No cheaper way was found.
    NotCheaper { old: MicroUsd, new: MicroUsd },
    /// More than one new node would be needed.
    NeedsMoreNodes { count: usize },
    /// These pods would be unschedulable.
    PodsUnschedulable { pods: Vec<PodKey> },
    /// A limit of the NodePool would be exceeded.
    Limit { pool: PoolName, message: String },
    /// Required and existing nodes of a static NodePool.
    Replicas {
        pool: PoolName,
        wanted: i64,
        there: i64,
    },
    /// Consecutive nodes of the NodePool that did not register: launches are paused until this time.
    LaunchesPaused {
        pool: PoolName,
        failures: u32,
        until: Timestamp,
    },
    /// A drain blocker: kind, object, owner, start, facts, and what would clear it.
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
    /// Pods with device claims are not scheduled, because device claims are ignored.
    DeviceClaimsIgnored,
    /// The instance types of a planned NodeClaim do not satisfy minValues of these labels.
    MinValuesNotMet { labels: Vec<String> },
    /// Facts as text, of outcomes that have no variant.
    Note { text: String },
    /// The node is not disrupted.
    #[serde(untagged)]
    NotDisrupted(DisruptionBlocker),
}

const DEVICE_CLAIMS_IGNORED: &str = "device claims (spec.resourceClaims) are ignored; --ignore-dra-requests=false takes them into account";

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
            Self::ForPods { pods, more } => fmt_for_pods(f, pods, *more),
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
            Self::Price { old, new } => fmt_prices(f, *old, *new),
            Self::PoolRefused {
                pool,
                constraint,
                detail,
                ..
            } => fmt_pool(f, pool, constraint, detail),
            Self::NoPools => f.write_str("there is no pool that is ready"),
            Self::NearestTypeShortfall {
                instance_type,
                resource,
                by,
            } => fmt_shortfall(f, instance_type, resource, *by),
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
            Self::DrainBlocked(blocker) => fmt_drain(f, blocker),
            Self::PremiseChanged { what } => write!(f, "no longer true: {what}"),
            Self::Failed { error } => write!(f, "failed: {error}"),
            Self::ConditionIs {
                condition,
                status,
                why,
            } => write!(f, "{condition} is {status}: {why}"),
            Self::DeviceClaimsIgnored => f.write_str(DEVICE_CLAIMS_IGNORED),
            Self::MinValuesNotMet { labels } => fmt_min_values(f, labels),
            Self::NotDisrupted(blocker) => blocker.fmt(f),
            Self::Note { text } => f.write_str(text),
        }
    }
}

impl From<DisruptionBlocker> for Reason {
    fn from(blocker: DisruptionBlocker) -> Self {
        Self::NotDisrupted(blocker)
    }
}

fn fmt_for_pods(f: &mut fmt::Formatter<'_>, pods: &[PodKey], more: usize) -> fmt::Result {
    write!(f, "for {}", list(pods))?;
    if more > 0 {
        write!(f, " and {more} more")?;
    }
    Ok(())
}

fn fmt_min_values(f: &mut fmt::Formatter<'_>, labels: &[String]) -> fmt::Result {
    write!(
        f,
        "pod didn\u{2019}t schedule because NodePool couldn\u{2019}t meet minValues requirements, minValues requirement is not met for label(s) (label(s)={labels:?})"
    )
}

fn fmt_shortfall(
    f: &mut fmt::Formatter<'_>,
    instance_type: &str,
    resource: &str,
    by: i64,
) -> fmt::Result {
    let by = quantity(resource, by);
    write!(f, "nearest type {instance_type} lacks {by} of {resource}")
}

fn fmt_prices(
    f: &mut fmt::Formatter<'_>,
    old: Option<MicroUsd>,
    new: Option<MicroUsd>,
) -> fmt::Result {
    let text = |price: Option<MicroUsd>| {
        price.map_or_else(|| "unknown".to_owned(), |price| price.to_string())
    };
    write!(f, "price {} -> {}", text(old), text(new))
}

fn fmt_pool(
    f: &mut fmt::Formatter<'_>,
    pool: &PoolName,
    constraint: &str,
    detail: &str,
) -> fmt::Result {
    let text = if detail.is_empty() {
        constraint
    } else {
        detail
    };
    write!(f, "pool {pool}: {text}")
}

fn fmt_drain(f: &mut fmt::Formatter<'_>, blocker: &DrainBlocker) -> fmt::Result {
    let DrainBlocker {
        since, unblocks, ..
    } = blocker;
    write!(f, "{blocker} (since {since}); {unblocks}")
}

fn list(pods: &[PodKey]) -> String {
    pods.iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(", ")
}
