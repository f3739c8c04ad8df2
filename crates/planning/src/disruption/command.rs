//! Disruption commands: nodes to remove, relocations of their pods, and the state of execution.

use std::sync::Arc;

use jiff::Timestamp;

use super::candidate::{Candidate, DisruptionClass};
use crate::reason::Reason;
use crate::scheduling::{Placement, PlannedClaim};
use mortise_apis::names::{ClaimName, NodeName, PoolName, Uid};
use mortise_apis::values::money::MicroUsd;
use mortise_state::snapshot::NodeKey;

/// Why nodes are disrupted, as budgets, conditions and metrics spell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DisruptionReason {
    /// No pod would have to move.
    Empty,
    /// The node differs from its NodePool or node class.
    Drifted,
    /// It costs more than its pods need.
    Underutilized,
}

impl DisruptionReason {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Empty, Self::Drifted, Self::Underutilized];

    /// The word in budgets and conditions.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::Drifted => "Drifted",
            Self::Underutilized => "Underutilized",
        }
    }
}

/// How the nodes were found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Method {
    /// They have no pods.
    Emptiness,
    /// They are drifted.
    Drift,
    /// The pods of several nodes fit on existing nodes, or on one new node.
    Multi,
    /// The pods of one node do.
    Single,
    /// The pods of some nodes fit on existing nodes and several new ones.
    Repack,
}

impl Method {
    /// The disruption class of the method's candidates.
    #[must_use]
    pub const fn candidate_class(self) -> DisruptionClass {
        match self {
            Self::Drift => DisruptionClass::Eventual,
            Self::Emptiness | Self::Multi | Self::Single | Self::Repack => {
                DisruptionClass::Graceful
            }
        }
    }

    /// The reason that goes with it.
    pub const fn reason(self) -> DisruptionReason {
        match self {
            Self::Emptiness => DisruptionReason::Empty,
            Self::Drift => DisruptionReason::Drifted,
            Self::Multi | Self::Single | Self::Repack => DisruptionReason::Underutilized,
        }
    }

    /// The labels of metrics for the reason and the consolidation type.
    pub const fn metric_labels(self) -> (&'static str, &'static str) {
        match self {
            Self::Emptiness => ("empty", "empty"),
            Self::Drift => ("drifted", ""),
            Self::Multi | Self::Repack => ("underutilized", "multi"),
            Self::Single => ("underutilized", "single"),
        }
    }

    /// It moves pods to save money.
    pub const fn is_consolidation(self) -> bool {
        matches!(self, Self::Multi | Self::Single | Self::Repack)
    }
}

/// A node that a command removes.
#[derive(Clone, Debug)]
pub struct DisruptedNode {
    /// The node.
    pub key: NodeKey,
    /// Name of its Node.
    pub node: NodeName,
    /// Name of its claim.
    pub claim: ClaimName,
    /// UID of its claim.
    pub uid: Option<Uid>,
    /// Its pool.
    pub pool: PoolName,
    /// Why exactly, for drift.
    pub detail: Option<String>,
}

impl From<&Candidate> for DisruptedNode {
    fn from(candidate: &Candidate) -> Self {
        Self {
            key: candidate.key().clone(),
            node: candidate.node_name.clone(),
            claim: candidate.claim_name.clone(),
            uid: candidate.claim.uid(),
            pool: candidate.pool_name.clone(),
            detail: candidate.drifted().map(|(_, why)| why.to_owned()),
        }
    }
}

/// Where the pods of the nodes are relocated, and the prices.
#[derive(Clone, Debug, Default)]
pub struct RelocationPlan {
    /// NodeClaims to create.
    pub claims: Vec<PlannedClaim>,
    /// Pods that are relocated to existing nodes.
    pub placements: Vec<Placement>,
    /// Price of the removed nodes; `None` when one is unknown.
    pub old: Option<MicroUsd>,
    /// Cheapest price of the new nodes; `None` when one is unknown.
    pub new: Option<MicroUsd>,
}

impl RelocationPlan {
    /// Savings per hour; `None` when a price is unknown.
    pub fn savings(&self) -> Option<MicroUsd> {
        Some(self.old? - self.new?)
    }
}

/// State of the execution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandPhase {
    /// Decided; validated again at this time.
    Held(Timestamp),
    /// The condition that states the reason, which fences the nodes, is being written to the NodeClaims.
    Fencing(Timestamp),
    /// The nodes accept no new pods; pods that were being bound may still arrive until this time.
    Grace(Timestamp),
    /// The Nodes are being tainted.
    Marking(Timestamp),
    /// The Nodes have been tainted since this time; replacements are being launched. kube-scheduler may still bind pods that it had
    /// placed before it saw the taint.
    Launching(Timestamp),
    /// Claims are being deleted; termination does the rest.
    Deleting,
}

impl CommandPhase {
    /// Whether its nodes are marked for deletion, or may be.
    pub const fn is_marked(&self) -> bool {
        matches!(self, Self::Marking(_) | Self::Launching(_) | Self::Deleting)
    }

    /// Whether the ledger holds the nominations of the relocated pods.
    pub const fn is_nominated(&self) -> bool {
        matches!(self, Self::Launching(_) | Self::Deleting)
    }
}

/// What a disruption command does, as labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CommandKind {
    /// Whether it launches nodes; otherwise it only deletes nodes.
    pub replaces: bool,
    /// `empty`, `drifted` or `underutilized`.
    pub reason: &'static str,
    /// `empty`, `multi` or `single`; empty for drift.
    pub consolidation_type: &'static str,
}

impl CommandKind {
    /// `replace` or `delete`.
    #[must_use]
    pub const fn decision(self) -> &'static str {
        if self.replaces { "replace" } else { "delete" }
    }
}

/// A command.
#[derive(Clone, Debug)]
pub struct DisruptionCommand {
    /// Number, in the order of decision.
    pub id: u64,
    /// How it was found.
    pub method: Method,
    /// Nodes to remove. Never empty.
    pub targets: Vec<DisruptedNode>,
    /// Relocations of their pods.
    pub moves: Arc<RelocationPlan>,
    /// When it was decided.
    pub decided: Timestamp,
    /// Its phase.
    pub phase: CommandPhase,
    /// Names of the replacements, once asked for, and whether each was seen.
    pub replacements: Vec<ReplacementClaim>,
}

/// A NodeClaim that replaces removed nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplacementClaim {
    /// Name of its claim.
    pub claim: ClaimName,
    /// Whether the NodeClaim was observed.
    pub seen: bool,
}

impl DisruptionCommand {
    /// Whether it removes the node.
    pub fn has(&self, key: &NodeKey) -> bool {
        self.targets.iter().any(|target| target.key == *key)
    }

    /// Why the nodes are removed.
    pub const fn reason(&self) -> DisruptionReason {
        self.method.reason()
    }

    /// What it does, for metrics.
    pub fn kind(&self) -> CommandKind {
        let (reason, consolidation_type) = self.method.metric_labels();
        CommandKind {
            replaces: !self.moves.claims.is_empty(),
            reason,
            consolidation_type,
        }
    }

    /// What it does, as a reason: each of its nodes gets it, so not all are named.
    #[must_use]
    pub fn as_reason(&self) -> Reason {
        let named = self.targets.iter().take(NAMED);
        Reason::Command {
            nodes: named.map(|each| each.node.clone()).collect(),
            more: self.targets.len().saturating_sub(NAMED),
            replacements: self.moves.claims.len(),
            decided: self.decided,
        }
    }

    /// What it does to one of its nodes, as a reason.
    #[must_use]
    pub fn reason_for(&self, target: &DisruptedNode) -> Reason {
        Reason::CommandOfNode {
            node: target.node.clone(),
            nodes: self.targets.len(),
            replacements: self.moves.claims.len(),
            savings: self.moves.savings(),
        }
    }
}

/// Most nodes of a command that a reason names.
const NAMED: usize = 5;
