//! Why a node is not disrupted.

use std::fmt;

use jiff::Timestamp;
use serde::Serialize;

use super::UnprovenNode;
use crate::brake::Brake;
use mortise_apis::labels;
use mortise_apis::names::PoolName;
use mortise_apis::values::Quantity;
use mortise_apis::values::money::MicroUsd;
use mortise_apis::values::span_text;

/// Where it is said how many pods of a workload are moved in a day.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MoveBudgetSource {
    /// An annotation of its pods, with its value.
    Annotation(String),
    /// A NodePoolPolicy of this name.
    Policy(String),
}

/// Why a node is not disrupted, with the facts. Texts that Karpenter has are Karpenter's, because alerts may match them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case", tag = "reason")]
#[allow(
    missing_docs,
    reason = "the variant's sentence says what its fields are"
)]
pub enum DisruptionBlocker {
    /// The node has no NodeClaim.
    Unmanaged,
    /// The NodeClaim has no Node.
    NoNode,
    /// The node is not initialized.
    Uninitialized,
    /// The node is being deleted, or marked for deletion.
    NodeDeleting,
    /// Too many other nodes are not ready.
    Braked { unready: usize, nodes: usize },
    /// The node has no label of a NodePool.
    NoPoolLabel,
    /// The NodePool of the node does not exist.
    PoolNotFound { pool: PoolName },
    /// The instance types of the NodePool are not known yet.
    CatalogUnknown { pool: PoolName },
    /// The catalog of the NodePool does not contain the node's instance type.
    InstanceTypeNotFound { instance_type: String },
    /// The node lacks a label that consolidation needs.
    LabelMissing { label: &'static str },
    /// The NodePool is never consolidated.
    ConsolidationDisabled { pool: PoolName },
    /// The NodePool has the policy `WhenEmpty`, and the node is not empty.
    NodeNotEmpty { pool: PoolName },
    /// The pods of the node request this percentage of its CPU or memory, and its NodePoolPolicy leaves nodes from a minimum on.
    UsedWellEnough {
        policy: String,
        percent: i64,
        minimum: i64,
    },
    /// The disruption saves too little per hour for each pod that it moves.
    SavesTooLittle {
        policy: String,
        saved: MicroUsd,
        pods: usize,
        least: MicroUsd,
    },
    /// The disruption saves too little for evicting this number of pods of workloads that churn, such as this one.
    PaysForTooLittle {
        saved: MicroUsd,
        pods: usize,
        workload: String,
    },
    /// This number of pods of the workload would be moved, as many are younger than a day or leaving, and fewer are allowed in a day.
    MovesUsedUp {
        workload: String,
        source: MoveBudgetSource,
        allowed: Option<usize>,
        recent: usize,
        pods: usize,
    },
    /// Less on-demand capacity than the NodePoolPolicy asks for would be left, both in thousandths of a CPU.
    OnDemandShare {
        policy: String,
        wanted: i64,
        left: i64,
    },
    /// The NodePoolPolicy replaces drifted nodes in waves: this number at a time now, and as many are under way or have not been
    /// ready for this time in milliseconds.
    DriftWave {
        policy: String,
        limit: i64,
        under_way: i64,
        ready_for_ms: i64,
        waits_for: Option<UnprovenNode>,
    },
    /// This number of the NodePool's nodes drifted with the upgrade to this version, and they wait until a time, or for a person.
    UpgradeDrift {
        pool: PoolName,
        version: String,
        drifted: usize,
        nodes: usize,
        until: Option<Timestamp>,
    },
    /// The node has no pods, but room for this number of virtual pods of capacity buffers.
    BufferRoom { node: String, pods: usize },
    /// The cheaper instance types do not satisfy minValues of these labels.
    PriceMinValues { labels: Vec<String> },
    /// Spot nodes are not replaced with spot nodes.
    SpotToSpotDisabled,
    /// A spot replacement needs this many cheaper instance types.
    SpotToSpotTypes { required: usize, count: usize },
    /// No other node and no single instance type has the free capacity for the pods.
    NoSingleInstanceType,
    /// The score of the policy `Balanced` is below its threshold; price now and then.
    BelowThreshold {
        pool: PoolName,
        percent: i64,
        old: MicroUsd,
        new: MicroUsd,
    },
    /// The static NodePool has more nodes than replicas.
    SurplusReplicas { pool: PoolName, replicas: i64 },
    /// The static NodePool can launch no replacement.
    NoReplacement { pool: PoolName, why: String },
}

impl fmt::Display for DisruptionBlocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unmanaged => f.write_str("Node isn't managed by karpenter"),
            Self::NoNode => f.write_str("Nodeclaim does not have an associated node"),
            Self::Uninitialized => f.write_str("Node isn't initialized"),
            Self::NodeDeleting => f.write_str("Node is deleting or marked for deletion"),
            Self::Braked { unready, nodes } => Brake {
                unready: *unready,
                nodes: *nodes,
            }
            .fmt(f),
            Self::NoPoolLabel => write!(
                f,
                "Node doesn't have required label (label={})",
                labels::NODEPOOL
            ),
            Self::PoolNotFound { pool } => write!(f, "NodePool not found (NodePool={pool})"),
            Self::CatalogUnknown { pool } => {
                write!(f, "Instance types of NodePool {pool} are not known yet")
            }
            Self::InstanceTypeNotFound { instance_type } => {
                write!(f, "Instance Type \"{instance_type}\" not found")
            }
            Self::LabelMissing { label } => write!(f, "Node does not have label \"{label}\""),
            Self::ConsolidationDisabled { pool } => {
                write!(f, "NodePool \"{pool}\" has consolidation disabled")
            }
            Self::NodeNotEmpty { pool } => write!(
                f,
                "NodePool \"{pool}\" has consolidation policy WhenEmpty, but node is not empty"
            ),
            Self::UsedWellEnough { .. }
            | Self::SavesTooLittle { .. }
            | Self::OnDemandShare { .. } => self.fmt_of_policy(f),
            Self::DriftWave { .. } | Self::UpgradeDrift { .. } => self.fmt_of_drift(f),
            Self::PaysForTooLittle { .. } | Self::MovesUsedUp { .. } => self.fmt_of_moves(f),
            Self::BufferRoom { node, .. } => write!(f, "Node \"{node}\" has buffer pods"),
            Self::PriceMinValues { labels } => write!(
                f,
                "Filtering by price: minValues requirement is not met for label(s) (label(s)=[{}])",
                labels.join(" ")
            ),
            Self::SpotToSpotDisabled => f.write_str(
                "SpotToSpotConsolidation is disabled, can't replace a spot node with a spot node",
            ),
            Self::SpotToSpotTypes { required, count } => write!(
                f,
                "SpotToSpotConsolidation requires {required} cheaper instance type options than the current candidate to consolidate, got {count}"
            ),
            Self::NoSingleInstanceType => {
                f.write_str("its pods fit on no other node, and on no single instance type")
            }
            Self::BelowThreshold {
                percent, old, new, ..
            } => write!(
                f,
                "balanced score {percent} % of 50 % needed, {old} now, {new} then"
            ),
            Self::SurplusReplicas { pool, replicas } => {
                write!(
                    f,
                    "NodePool \"{pool}\" has more than its {replicas} replicas"
                )
            }
            Self::NoReplacement { pool, why } => write!(f, "NodePool \"{pool}\": {why}"),
        }
    }
}

impl DisruptionBlocker {
    /// What a NodePoolPolicy forbids.
    fn fmt_of_policy(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UsedWellEnough {
                policy,
                percent,
                minimum,
            } => write!(
                f,
                "NodePoolPolicy \"{policy}\" leaves nodes from {minimum} % of use on, and pods request {percent} % of its CPU or memory"
            ),
            Self::SavesTooLittle {
                policy,
                saved,
                pods,
                least,
            } => write!(
                f,
                "{saved} would be saved by moving {pods} pods, and NodePoolPolicy \"{policy}\" asks for {least} per pod"
            ),
            Self::OnDemandShare {
                policy,
                wanted,
                left,
            } => write!(
                f,
                "NodePoolPolicy \"{policy}\" asks for {} on-demand CPUs, and {} would be left",
                Quantity::from_milli(*wanted),
                Quantity::from_milli(*left)
            ),
            _ => Ok(()),
        }
    }

    /// Moves that are not worth it, or too many.
    fn fmt_of_moves(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PaysForTooLittle {
                saved,
                pods,
                workload,
            } => write!(
                f,
                "{saved} would be saved by evicting {pods} pods of workloads whose pods come and go, such as {workload}: not for long enough to pay for it"
            ),
            Self::MovesUsedUp {
                workload,
                source: MoveBudgetSource::Annotation(value),
                allowed: None,
                ..
            } => write!(
                f,
                "{} of pods of {workload} is {value:?}, which is not a number: none of them is moved",
                labels::MAX_MOVES_PER_DAY
            ),
            Self::MovesUsedUp {
                workload,
                source,
                allowed,
                recent,
                pods,
            } => {
                write!(
                    f,
                    "{pods} pods of {workload} would be moved, {recent} of its pods are younger than a day or about to go, and "
                )?;
                let allowed = allowed.unwrap_or_default();
                match source {
                    MoveBudgetSource::Annotation(value) => {
                        write!(f, "{} is {value}", labels::MAX_MOVES_PER_DAY)
                    }
                    MoveBudgetSource::Policy(name) => {
                        write!(f, "NodePoolPolicy \"{name}\" allows {allowed}")
                    }
                }
            }
            _ => Ok(()),
        }
    }

    /// What keeps drifted nodes.
    fn fmt_of_drift(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DriftWave {
                policy,
                limit,
                under_way,
                ready_for_ms,
                waits_for,
            } => {
                write!(
                    f,
                    "NodePoolPolicy \"{policy}\" replaces drifted nodes in waves: {limit} at a time now, and {under_way} under way or not ready for {} yet",
                    span_text(*ready_for_ms)
                )?;
                waits_for
                    .as_ref()
                    .map_or(Ok(()), |node| write!(f, " ({node})"))
            }
            Self::UpgradeDrift {
                pool,
                version,
                until: Some(until),
                ..
            } => write!(
                f,
                "nodes of NodePool \"{pool}\" that drift right after the upgrade to mortise {version} wait until {until}"
            ),
            Self::UpgradeDrift {
                pool,
                version,
                drifted,
                nodes,
                until: None,
            } => write!(
                f,
                "{drifted} of {nodes} nodes of NodePool \"{pool}\" drifted right after the upgrade to mortise {version}: they wait until its annotation {} is removed",
                labels::UPGRADED_AT
            ),
            _ => Ok(()),
        }
    }

    /// The text without names and figures in brackets.
    pub(super) fn summary(&self) -> String {
        match self {
            Self::Braked { .. } => "too many nodes are not ready".to_owned(),
            Self::NoPoolLabel => "Node doesn't have required label".to_owned(),
            Self::PoolNotFound { .. } => "NodePool not found".to_owned(),
            Self::PriceMinValues { .. } => {
                "Filtering by price: minValues requirement is not met for label(s)".to_owned()
            }
            Self::UsedWellEnough {
                policy, minimum, ..
            } => {
                format!("NodePoolPolicy \"{policy}\" leaves nodes from {minimum} % of use on")
            }
            Self::SavesTooLittle { policy, .. } => {
                format!("NodePoolPolicy \"{policy}\": savings are not worth the moves")
            }
            Self::PaysForTooLittle { .. } => {
                "savings would not last long enough to pay for the evictions".to_owned()
            }
            Self::MovesUsedUp { workload, .. } => {
                format!("{workload} has had its moves of a day")
            }
            Self::OnDemandShare { policy, .. } => {
                format!("NodePoolPolicy \"{policy}\": too little on-demand capacity would be left")
            }
            // Said again when it waits for something else.
            Self::DriftWave {
                policy, waits_for, ..
            } => {
                let waits_for = waits_for.as_ref().map(|node| node.why.summary());
                let waits_for = waits_for.unwrap_or("replacements are about to be launched");
                format!("NodePoolPolicy \"{policy}\" replaces drifted nodes in waves: {waits_for}")
            }
            Self::UpgradeDrift {
                pool, until: None, ..
            } => format!(
                "NodePool \"{pool}\": nodes that drifted right after the upgrade wait until the annotation {} is removed",
                labels::UPGRADED_AT
            ),
            Self::BelowThreshold { pool, .. } => {
                format!("NodePool \"{pool}\": savings are not worth the disruption")
            }
            other => other.to_string(),
        }
    }
}
