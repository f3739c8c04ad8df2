//! The texts of reasons.

use std::fmt;

use super::Reason;
use crate::drain_blocker::DrainBlocker;
use mortise_apis::labels;
use mortise_apis::names::{ClaimName, NodeName, PodKey, PoolName};
use mortise_apis::resources::quantity;
use mortise_apis::values::money::MicroUsd;

const STATIC_CAPACITY_OFF: &str = "spec.replicas has no effect: the feature gate StaticCapacity is off (--feature-gates StaticCapacity=true)";

const DEVICE_CLAIMS_IGNORED: &str = "device claims (spec.resourceClaims) are ignored; --ignore-dra-requests=false takes them into account";

const UNKNOWN_PRICE: &str = "its price is unknown";

const NEEDS_PLANNED_PLACEMENT: &str = "its pods have room only where they are planned, and kube-scheduler, which asks no extender, may place them otherwise";

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OnNode { node, .. } => write!(f, "on node {node}"),
            Self::OnClaim { claim, .. } => write!(f, "on the node of claim {claim}"),
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
            Self::PaidInAdvance { policy, commitment } => write!(
                f,
                "paid for by commitment {commitment} of NodePoolPolicy {policy}"
            ),
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
            Self::Interrupted { .. } => f.write_str("the cloud provider interrupts the instance"),
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
            Self::MultiplePdbs { pod, .. } => {
                write!(f, "several disruption budgets select pod {pod}")
            }
            Self::DoNotDisruptPod { pod, .. } => write!(f, "pod {pod} must not be disrupted"),
            Self::DoNotDisruptNode { .. } => f.write_str("the node must not be disrupted"),
            Self::Paused(pause) => pause.fmt(f),
            Self::Budget { pool, allowed } => write!(f, "budget of pool {pool} allows {allowed}"),
            Self::PodNominated { pod } => write!(f, "nominated to pod {pod}"),
            Self::CooldownActive { until } => write!(f, "in cooldown until {until}"),
            Self::OthersConsolidatableSoon { until } => write!(
                f,
                "waits until {until} for nodes that become consolidatable by then"
            ),
            Self::NeedsPlannedPlacement => f.write_str(NEEDS_PLANNED_PLACEMENT),
            Self::UnknownPrice | Self::UnknownReplacementPrice => f.write_str(UNKNOWN_PRICE),
            Self::NotCheaper { old, new } => write!(f, "not cheaper: {old} now, {new} then"),
            Self::NeedsMoreNodes { count } => write!(f, "{count} new nodes would be needed"),
            Self::PodsUnschedulable { pods, .. } => write!(f, "unschedulable: {}", list(pods)),
            Self::Limit { pool, message } => write!(f, "limit of pool {pool}: {message}"),
            Self::DrainBlocked(blocker) => fmt_drain(f, blocker),
            Self::PremiseChanged { what } => write!(f, "no longer true: {what}"),
            Self::Failed { error } => write!(f, "failed: {error}"),
            Self::ConditionIs {
                condition,
                status,
                why,
            } => write!(f, "{condition} is {status}: {why}"),
            Self::GangWaits(blocker) => blocker.fmt(f),
            Self::DeviceClaimsIgnored => f.write_str(DEVICE_CLAIMS_IGNORED),
            Self::MinValuesNotMet { labels } => fmt_min_values(f, labels),
            Self::NotDisrupted(blocker) => blocker.fmt(f),
            other => fmt_announced(other, f),
        }
    }
}

/// Reasons that events show as well.
fn fmt_announced(reason: &Reason, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match reason {
        Reason::NoInstanceTypes { min_values } => {
            f.write_str(
                "NodePool requirements filtered out all compatible available instance types",
            )?;
            f.write_str(if *min_values {
                " due to minValues incompatibility"
            } else {
                ""
            })
        }
        Reason::PodIgnored { why } | Reason::NoStaticPlan { why } => f.write_str(why),
        Reason::SchedulerHasNode => {
            f.write_str("kube-scheduler is about to bind it: it called the extender")
        }
        Reason::PoolCannotLaunch { pool } => write!(f, "NodePool {pool} cannot launch NodeClaims"),
        Reason::LaunchTimedOut {
            condition,
            status,
            why,
        } => {
            write!(f, "{condition} is {status}: {}", why.label())
        }
        Reason::Transition {
            condition,
            from,
            to,
            why,
        } => {
            write!(f, "{condition} changed from {from} to {to}: {why}")
        }
        Reason::Finalized => f.write_str("it was deleted and is gone"),
        Reason::ForDisruption { disruption } => write!(f, "for disruption reason {disruption}"),
        Reason::Command {
            nodes,
            more,
            replacements,
            decided,
        } => {
            fmt_command(f, nodes, (*more, *replacements))?;
            write!(f, ", decided at {decided}")
        }
        Reason::CommandOfNode {
            node,
            nodes,
            replacements,
            savings,
        } => {
            f.write_str(&command_of_node(node, *nodes, *replacements))?;
            f.write_str(&savings.map_or_else(String::new, savings_text))
        }
        Reason::RejectedFor { word } => write!(f, "rejected for {word}"),
        Reason::Approved { score, .. } => f.write_str(&score.approval()),
        Reason::ReplacementNotReady => f.write_str("the replacement is not ready"),
        Reason::Notice { kind } => f.write_str(kind.label()),
        other => fmt_of_nodes(other, f),
    }
}

/// Reasons of single nodes, instances and their pods.
fn fmt_of_nodes(reason: &Reason, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match reason {
        Reason::InstanceOfDeletedClaim { instance } => {
            write!(
                f,
                "instance {instance} was launched for a deleted NodeClaim"
            )
        }
        Reason::NodesNotRegistering { failures, probe } => {
            let at = probe.strftime("%Y-%m-%dT%H:%M:%SZ");
            write!(
                f,
                "{failures} consecutive nodes did not register; next probe launch at {at}"
            )
        }
        Reason::Replicas {
            pool,
            wanted,
            there,
        } => write!(f, "NodePool {pool} requires {wanted} nodes and has {there}"),
        Reason::LaunchesPaused {
            pool,
            failures,
            until,
        } => write!(
            f,
            "{failures} consecutive nodes of NodePool {pool} did not register: launches are paused until {until}, then one probe is launched"
        ),
        Reason::LaunchesResumed => f.write_str("launches are no longer paused"),
        Reason::UnregisteredTaintMissing { node } => write!(
            f,
            "node node/{node} registered without taint {}, pods may have been bound too early",
            labels::UNREGISTERED_TAINT
        ),
        Reason::Inconsistent { problem } => f.write_str(problem),
        Reason::TooManyUnhealthy {
            unhealthy,
            nodes,
            limit,
            ..
        } => {
            write!(
                f,
                "{unhealthy} of {nodes} nodes are unhealthy, at most {limit} are allowed"
            )
        }
        Reason::InvalidAnnotation {
            annotation,
            value,
            must_be,
            did_you_mean,
        } => {
            write!(f, "annotation {annotation}: {value:?} must be {must_be}")?;
            did_you_mean
                .as_ref()
                .map_or(Ok(()), |word| write!(f, " (did you mean {word}?)"))
        }
        Reason::StaticCapacityOff => f.write_str(STATIC_CAPACITY_OFF),
        Reason::ZoneShifted { zone, id, until } => write!(
            f,
            "zone {zone} ({id}) is shifted away until {}, no node is launched into it",
            until.strftime("%Y-%m-%dT%H:%M:%SZ")
        ),
        Reason::ZoneShiftEnded { zone, id } => {
            write!(f, "zone {zone} ({id}) is no longer shifted away")
        }
        Reason::PrerequisiteMissing { what } => write!(f, "{what}"),
        Reason::BootTaint { taint, seconds } => write!(
            f,
            "Nodes join with taint {taint}, which was removed within {seconds} s; pods are planned for such nodes from now on. Declare it in spec.template.spec.startupTaints"
        ),
        Reason::InstanceTagged => f.write_str("the instance has its tags"),
        Reason::UsedBy { claims } => {
            let names: Vec<&str> = claims.iter().map(ClaimName::as_str).collect();
            write!(f, "used by {}", names.join(", "))
        }
        Reason::InvalidProtection { value } => write!(
            f,
            "annotation {}={value:?} has no effect: it must be \"true\", or a duration above zero such as \"30m\"",
            labels::DO_NOT_DISRUPT
        ),
        Reason::ProtectedUntil { until } => {
            write!(
                f,
                "not disrupted before {}",
                until.strftime("%Y-%m-%dT%H:%M:%SZ")
            )
        }
        Reason::ProtectionElapsed { duration } => {
            write!(f, "may be disrupted: {duration} since its start are over")
        }
        other => fmt_of_drains(other, f),
    }
}

/// Reasons of drains.
fn fmt_of_drains(reason: &Reason, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match reason {
        Reason::TerminationDeadline { deadline } => {
            write!(f, "its pods are deleted at {deadline:.0}")
        }
        Reason::HandedOver { deployment, until } => {
            write!(
                f,
                "deployment {deployment} starts another pod for it, until {until:.0}"
            )
        }
        Reason::PodsWaiting { count } => write!(f, "{count} pods are waiting to be evicted"),
        Reason::VolumesAttached { volumes } => write!(f, "attached: {}", volumes.join(", ")),
        Reason::GracePeriodEnded => f.write_str("the termination grace period of its node ended"),
        Reason::Eviction { pod } => write!(f, "eviction of pod {pod}"),
        Reason::EvictionRejected { pod, error } => write!(f, "pod {pod}: {error}"),
        _ => Ok(()),
    }
}

fn fmt_command(
    f: &mut fmt::Formatter<'_>,
    nodes: &[NodeName],
    (more, replacements): (usize, usize),
) -> fmt::Result {
    // Each of its nodes gets this text: all names would be the square of their number.
    let named: Vec<&str> = nodes.iter().map(NodeName::as_str).collect();
    let mut names = named.join(", ");
    if more > 0 {
        names.push_str(&format!(" and {more} more"));
    }
    match replacements {
        0 => write!(f, "delete: [{names}]"),
        count => write!(f, "replace: [{names}] -> [{count} replacement]"),
    }
}

/// What a command does to one of its nodes, with Karpenter's text.
pub(super) fn command_of_node(node: &NodeName, nodes: usize, replacements: usize) -> String {
    let verb = if replacements == 0 {
        "delete"
    } else {
        "replace"
    };
    match (nodes, replacements) {
        (1, 0) => format!("{verb}: [{node}]"),
        (1, count) => format!("{verb}: [{node}] -> [{count} replacement]"),
        (count, _) => format!("{verb}: [{node}] (part of {count}-node consolidation)"),
    }
}

pub(super) fn savings_text(savings: MicroUsd) -> String {
    format!(" (savings: ${:.2})", savings.dollars())
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
