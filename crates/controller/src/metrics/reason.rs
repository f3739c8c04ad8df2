//! Reasons of decisions as Karpenter's metric labels.

use mortise_planning::reason::Reason;

/// Reason and cause of a disruption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DisruptionLabels {
    pub(super) reason: &'static str,
    /// It reduces cost: the NodePool's consolidation policy led to it.
    pub(super) is_consolidation: bool,
}

/// The reason of a decision that removes nodes; `None` if no reason states it.
pub(super) fn disruption(reasons: &[Reason]) -> Option<DisruptionLabels> {
    reasons.iter().find_map(|reason| {
        let (reason, is_consolidation) = match reason {
            Reason::Empty => ("empty", true),
            Reason::Underutilized => ("underutilized", true),
            Reason::Drifted { .. } => ("drifted", false),
            Reason::Expired => ("expired", false),
            Reason::Interrupted => ("spot_interrupted", false),
            Reason::Unhealthy { .. } => ("unhealthy", false),
            Reason::InstanceGone { .. } => ("garbage_collected", false),
            Reason::ConditionIs { why, .. } => (timeout_reason(why)?, false),
            _ => return None,
        };
        Some(DisruptionLabels {
            reason,
            is_consolidation,
        })
    })
}

/// The condition that a repair acts on.
pub(super) fn unhealthy(reasons: &[Reason]) -> Option<&str> {
    reasons.iter().find_map(|reason| match reason {
        Reason::Unhealthy { condition, .. } => Some(condition.as_str()),
        _ => None,
    })
}

/// Why a NodeClaim timed out before it had a node; `None` for anything that is retried.
fn timeout_reason(why: &str) -> Option<&'static str> {
    let words = [
        "insufficient_capacity",
        "nodeclass_not_ready",
        "launch_timeout",
        "registration_timeout",
        "initialization_timeout",
    ];
    words.into_iter().find(|word| *word == why)
}

/// Why a NodeClaim is created by a decision that replaces nodes.
pub(crate) fn replacement(reasons: &[Reason]) -> &'static str {
    disruption(reasons).map_or("underutilized", |why| why.reason)
}

/// Whether all pods of a node have been drained.
pub(super) fn is_drained(reasons: &[Reason]) -> bool {
    reasons.iter().any(|reason| matches!(reason, Reason::ConditionIs { condition, status, .. } if condition == "Drained" && status == "True"))
}

#[cfg(test)]
mod tests {
    use mortise_apis::values::money::MicroUsd;

    use super::*;

    #[test]
    fn reasons_have_karpenters_labels() {
        let reasons = [
            Reason::Price {
                old: Some(MicroUsd(5)),
                new: Some(MicroUsd(3)),
            },
            Reason::Underutilized,
        ];
        assert_eq!(
            disruption(&reasons),
            Some(DisruptionLabels {
                reason: "underutilized",
                is_consolidation: true
            })
        );
        assert_eq!(disruption(&[Reason::NoPools]), None);
        assert_eq!(
            replacement(&[Reason::Drifted {
                why: "hash".to_owned()
            }]),
            "drifted"
        );
        assert!(is_drained(&[Reason::ConditionIs {
            condition: "Drained".to_owned(),
            status: "True".to_owned(),
            why: String::new()
        }]));
    }
}
