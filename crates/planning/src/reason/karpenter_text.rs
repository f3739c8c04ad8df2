//! What Karpenter says for a reason in events and labels. Alerts match both.

use super::text::{command_of_node, savings_text};
use super::{DisruptionBlocker, Reason, UnschedulableCause};
use mortise_apis::names::NamespacedName;

impl Reason {
    /// The text for events: Karpenter's where Karpenter has one, otherwise that of the reason.
    #[must_use]
    pub fn karpenter_text(&self) -> String {
        let summary = self.summary();
        match self {
            Self::DoNotDisruptPod { pod, .. } => format!("{summary} (Pod={pod})"),
            Self::Pdb { pdb } => format!("{summary} (PodDisruptionBudget=[{pdb}])"),
            Self::MultiplePdbs { pdbs, .. } => {
                let names: Vec<String> = pdbs.iter().map(NamespacedName::to_string).collect();
                format!("{summary} (PodDisruptionBudget(s)=[{}])", names.join(" "))
            }
            Self::PodsUnschedulable { why, .. } => {
                let each = why
                    .iter()
                    .map(|each| format!(" {} => {}", each.pod, each.why));
                format!("Not all pods would schedule,{}", each.collect::<String>())
            }
            Self::NotDisrupted(DisruptionBlocker::BelowThreshold { percent, .. }) => format!(
                "{summary} (score {}.{:02} < threshold 0.50)",
                percent / 100,
                percent % 100
            ),
            Self::NotDisrupted(DisruptionBlocker::NoSingleInstanceType) => summary,
            Self::NotDisrupted(blocker) => blocker.to_string(),
            _ => summary,
        }
    }

    /// The text for events without the names and figures that change from one evaluation to the next: events with the same
    /// summary are about the same blocker.
    #[must_use]
    pub fn summary(&self) -> String {
        match self {
            Self::PodNominated { .. } => "Node is nominated for a pending pod".to_owned(),
            Self::DoNotDisruptNode { by } => format!(
                "Disruption is blocked through the \"{}\" annotation",
                by.key()
            ),
            Self::DoNotDisruptPod { by, .. } => format!("Pod has \"{}\" annotation", by.key()),
            Self::Pdb { .. } => "Pdb prevents pod evictions".to_owned(),
            Self::MultiplePdbs { .. } => "Eviction does not support multiple PDBs".to_owned(),
            Self::NotCheaper { .. }
            | Self::UnknownReplacementPrice
            | Self::NotDisrupted(DisruptionBlocker::NoSingleInstanceType) => {
                "Can't replace with a cheaper node".to_owned()
            }
            Self::UnknownPrice => "Price of the node is not known".to_owned(),
            Self::NeedsMoreNodes { count } => {
                format!("Can't remove without creating {count} candidates")
            }
            Self::Limit { pool, message } => format!("NodePool \"{pool}\": {message}"),
            Self::PodsUnschedulable { why, .. } => {
                let first = why.first().map(|each| match &each.why {
                    UnschedulableCause::Refused {
                        blocker: Some(blocker),
                        ..
                    } => {
                        format!(" {} => {}", each.pod, blocker.label())
                    }
                    other => format!(" {} => {other}", each.pod),
                });
                format!("Not all pods would schedule,{}", first.unwrap_or_default())
            }
            Self::NotDisrupted(blocker) => blocker.summary(),
            other => other.to_string(),
        }
    }

    /// What Karpenter says of a command that it rejects for the reason of this word; `None` if this is no command.
    #[must_use]
    pub fn rejected_command(&self, word: &str) -> Option<String> {
        let Self::CommandOfNode {
            node,
            nodes,
            replacements,
            savings,
        } = self
        else {
            return None;
        };
        let command = command_of_node(node, *nodes, *replacements);
        let savings = savings.map_or_else(String::new, savings_text);
        Some(format!("{command}, reason: {word}{savings}"))
    }

    /// The label of Karpenter's metrics for the reason of a disruption; `None` for reasons of other decisions.
    #[must_use]
    pub const fn karpenter_label(&self) -> Option<&'static str> {
        Some(match self {
            Self::Empty => "empty",
            Self::Underutilized => "underutilized",
            Self::Drifted { .. } => "drifted",
            Self::Expired => "expired",
            Self::Interrupted { kind } => kind.label(),
            Self::Unhealthy { .. } => "unhealthy",
            Self::InstanceGone { .. } => "garbage_collected",
            Self::LaunchTimedOut { why, .. } => why.label(),
            _ => return None,
        })
    }

    /// Whether the disruption reduces cost: the consolidation policy of the NodePool led to it.
    #[must_use]
    pub const fn is_consolidation(&self) -> bool {
        matches!(self, Self::Empty | Self::Underutilized)
    }
}
