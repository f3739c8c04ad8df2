//! What was decided about machines: the moves, and how far their execution is.

use std::fmt::{self, Write as _};

use jiff::Timestamp;

use super::candidate::Candidate;
use crate::metric_event::CommandKind;
use crate::money::MicroUsd;
use crate::names::{ClaimName, NodeName, PoolName, Uid};
use crate::scheduling::{Placement, PlannedClaim};
use crate::snapshot::NodeKey;

/// Why machines are disrupted, as budgets, conditions and metrics spell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum DisruptionReason {
    /// No pod would have to move.
    Empty,
    /// The machine differs from what its pool or class asks for.
    Drifted,
    /// It costs more than its pods need.
    Underutilized,
}

impl DisruptionReason {
    /// All of them.
    pub(super) const ALL: [Self; 3] = [Self::Empty, Self::Drifted, Self::Underutilized];

    /// The word in budgets and conditions.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::Drifted => "Drifted",
            Self::Underutilized => "Underutilized",
        }
    }
}

/// How the machines were found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Method {
    /// They have no pods.
    Emptiness,
    /// They are drifted.
    Drift,
    /// Several of them fit on what is there, or on one new machine.
    Multi,
    /// One of them does.
    Single,
}

impl Method {
    /// The reason that goes with it.
    pub(super) const fn reason(self) -> DisruptionReason {
        match self {
            Self::Emptiness => DisruptionReason::Empty,
            Self::Drift => DisruptionReason::Drifted,
            Self::Multi | Self::Single => DisruptionReason::Underutilized,
        }
    }

    /// The word for the reason and for the way of consolidation, as metrics spell them.
    pub(super) const fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Emptiness => ("empty", "empty"),
            Self::Drift => ("drifted", ""),
            Self::Multi => ("underutilized", "multi"),
            Self::Single => ("underutilized", "single"),
        }
    }

    /// It moves pods to save money.
    pub(super) const fn is_consolidation(self) -> bool {
        matches!(self, Self::Multi | Self::Single)
    }
}

/// A machine that a command removes.
#[derive(Clone, Debug)]
pub(super) struct DisruptedNode {
    /// The machine.
    pub(super) key: NodeKey,
    /// Name of its Node.
    pub(super) node: NodeName,
    /// Name of its claim.
    pub(super) claim: ClaimName,
    /// UID of its claim.
    pub(super) uid: Option<Uid>,
    /// Its pool.
    pub(super) pool: PoolName,
    /// Why exactly, for drift.
    pub(super) detail: Option<String>,
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

/// Where the pods of the machines go, and at what price.
#[derive(Clone, Debug, Default)]
pub(super) struct RelocationPlan {
    /// Machines to be made.
    pub(super) claims: Vec<PlannedClaim>,
    /// Pods that go to machines that are there.
    pub(super) placements: Vec<Placement>,
    /// Price of the machines that go; `None` when one is unknown.
    pub(super) old: Option<MicroUsd>,
    /// Cheapest price of the machines that come; `None` when one is unknown.
    pub(super) new: Option<MicroUsd>,
}

impl RelocationPlan {
    /// What is saved per hour; `None` when a price is unknown.
    pub(super) fn savings(&self) -> Option<MicroUsd> {
        Some(self.old? - self.new?)
    }
}

/// How far the execution is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CommandPhase {
    /// Decided; looked at again at this time.
    Held(Timestamp),
    /// The claims are being given the condition that says why, which fences their machines.
    Fencing(Timestamp),
    /// No new pods come; pods that were on their way may still arrive until this time.
    Grace(Timestamp),
    /// The Nodes are being tainted.
    Marking(Timestamp),
    /// Replacements are coming, until this time at the latest.
    Launching(Timestamp),
    /// Claims are being deleted; termination does the rest.
    Deleting,
}

impl CommandPhase {
    /// Its machines are marked for going, or may be.
    pub(super) const fn is_marked(&self) -> bool {
        matches!(self, Self::Marking(_) | Self::Launching(_) | Self::Deleting)
    }

    /// Room for the moves stands in the ledger.
    pub(super) const fn is_promised(&self) -> bool {
        matches!(self, Self::Launching(_) | Self::Deleting)
    }
}

/// A command.
#[derive(Clone, Debug)]
pub(super) struct DisruptionCommand {
    /// Number, in the order of decision.
    pub(super) id: u64,
    /// How it was found.
    pub(super) method: Method,
    /// Machines that go. Never empty.
    pub(super) targets: Vec<DisruptedNode>,
    /// Where their pods go.
    pub(super) moves: RelocationPlan,
    /// When it was decided.
    pub(super) decided: Timestamp,
    /// How far it is.
    pub(super) phase: CommandPhase,
    /// Names of the replacements, once asked for, and whether each was seen.
    pub(super) replacements: Vec<ReplacementClaim>,
}

/// A machine that was asked for in place of others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ReplacementClaim {
    /// Name of its claim.
    pub(super) claim: ClaimName,
    /// The claim was there once.
    pub(super) seen: bool,
}

impl DisruptionCommand {
    /// Whether the machine goes.
    pub(super) fn has(&self, key: &NodeKey) -> bool {
        self.targets.iter().any(|target| target.key == *key)
    }

    /// Why the machines go.
    pub(super) const fn reason(&self) -> DisruptionReason {
        self.method.reason()
    }

    /// What it does, for metrics.
    pub(super) const fn kind(&self) -> CommandKind {
        let (reason, consolidation_type) = self.method.words();
        CommandKind {
            replaces: !self.moves.claims.is_empty(),
            reason,
            consolidation_type,
        }
    }

    /// What it does to one of its machines, in upstream's words.
    pub(super) fn text_for(&self, target: &DisruptedNode) -> String {
        let verb = if self.moves.claims.is_empty() {
            "delete"
        } else {
            "replace"
        };
        match (self.targets.len(), self.moves.claims.len()) {
            (1, 0) => format!("{verb}: [{}]", target.node),
            (1, count) => format!("{verb}: [{}] -> [{count} replacement]", target.node),
            (count, _) => format!(
                "{verb}: [{}] (part of {count}-node consolidation)",
                target.node
            ),
        }
    }
}

/// Most machines of a command that are named where it is spoken of.
const NAMED: usize = 5;

impl fmt::Display for DisruptionCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Each of its machines is told this text: all names would be the square of their number.
        let named = self.targets.iter().take(NAMED);
        let named: Vec<&str> = named.map(|each| each.node.as_str()).collect();
        let mut names = named.join(", ");
        if let Some(more @ 1..) = self.targets.len().checked_sub(NAMED) {
            write!(names, " and {more} more")?;
        }
        match self.moves.claims.len() {
            0 => write!(f, "delete: [{names}]"),
            count => write!(f, "replace: [{names}] -> [{count} replacement]"),
        }
    }
}
