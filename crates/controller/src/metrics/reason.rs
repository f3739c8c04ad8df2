//! Reasons of decisions as Karpenter's metric labels spell them.

use mortise_core::record::Reason;

/// Why nodes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Disruption {
    pub(super) reason: &'static str,
    /// `None` for reasons that are not voluntary.
    pub(super) consolidation_type: Option<&'static str>,
}

/// The reason of a decision that removes nodes; `None` when no reason says so.
pub(super) fn disruption(reasons: &[Reason]) -> Option<Disruption> {
    reasons.iter().find_map(|reason| {
        let (reason, consolidation_type) = match reason {
            Reason::Empty => ("empty", Some("empty")),
            Reason::Underutilized => ("underutilized", Some("multi")),
            Reason::Drifted { .. } => ("drifted", Some("")),
            Reason::Expired => ("expired", None),
            Reason::Interrupted => ("spot_interrupted", None),
            Reason::Unhealthy { .. } => ("unhealthy", None),
            Reason::MachineGone { .. } => ("garbage_collected", None),
            Reason::ConditionIs { why, .. } => (given_up(why)?, None),
            _ => return None,
        };
        Some(Disruption {
            reason,
            consolidation_type,
        })
    })
}

/// The condition that a repair is about.
pub(super) fn unhealthy(reasons: &[Reason]) -> Option<&str> {
    reasons.iter().find_map(|reason| match reason {
        Reason::Unhealthy { condition, .. } => Some(condition.as_str()),
        _ => None,
    })
}

/// Why a claim is given up before it has a node; `None` for whatever is tried again.
fn given_up(why: &str) -> Option<&'static str> {
    let words = [
        "insufficient_capacity",
        "nodeclass_not_ready",
        "launch_timeout",
        "registration_timeout",
        "initialization_timeout",
    ];
    words.into_iter().find(|word| *word == why)
}

/// Why a claim is made by a decision that replaces nodes.
pub(crate) fn replacement(reasons: &[Reason]) -> &'static str {
    disruption(reasons).map_or("underutilized", |why| why.reason)
}

/// The decision brings a new node.
pub(super) fn has_replacement(reasons: &[Reason]) -> bool {
    reasons.iter().any(|reason| match reason {
        Reason::OnClaim { .. } | Reason::Offering { .. } => true,
        Reason::Price { new: Some(new), .. } => new.0 > 0,
        _ => false,
    })
}

/// The pods of a node have all left.
pub(super) fn is_drained(reasons: &[Reason]) -> bool {
    reasons.iter().any(|reason| matches!(reason, Reason::ConditionIs { condition, status, .. } if condition == "Drained" && status == "True"))
}

#[cfg(test)]
mod tests {
    use mortise_core::money::MicroUsd;

    use super::*;

    #[test]
    fn reasons_have_upstream_words() {
        let reasons = [
            Reason::Price {
                old: Some(MicroUsd(5)),
                new: Some(MicroUsd(3)),
            },
            Reason::Underutilized,
        ];
        assert_eq!(
            disruption(&reasons),
            Some(Disruption {
                reason: "underutilized",
                consolidation_type: Some("multi")
            })
        );
        assert!(has_replacement(&reasons));
        assert!(!has_replacement(&[Reason::Price {
            old: Some(MicroUsd(5)),
            new: Some(MicroUsd(0))
        }]));
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
