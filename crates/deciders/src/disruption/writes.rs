//! The writes of a command on Nodes and claims, and how to see on the objects that they have happened.

use jiff::Timestamp;

use mortise_apis::karpenter::nodeclaim::DISRUPTION_REASON;
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::names::ObjectRef;
use mortise_apis::schema::conditions::{Conditions, NODE_CLAIM, find};
use mortise_apis::{k8s, labels, taints};
use mortise_engine::effect::Effect;
use mortise_engine::write::{EditKind, NodeClaimStatusEdit, ObjectWrite};
use mortise_planning::disruption::command::DisruptionReason;
use mortise_state::ledger::FenceReason;

/// What is written. With the object, the key under which a write is in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CommandWrite {
    /// The fence annotation of a claim, which an older version left.
    Fence,
    /// The taint of a Node.
    Taint,
    /// The condition of a claim, which fences its node.
    Condition,
    /// The deletion of a claim.
    Delete,
}

impl CommandWrite {
    /// The write of a command that an effect is, with its object.
    pub(super) fn from_effect(effect: &Effect) -> Option<(ObjectRef, Self)> {
        match effect {
            Effect::Write(write) => {
                let kind = match write.edit.kind() {
                    EditKind::Taints => Self::Taint,
                    EditKind::Status => Self::Condition,
                    EditKind::Fence => Self::Fence,
                    _ => return None,
                };
                Some((write.target.clone(), kind))
            }
            Effect::Delete { target, .. } => Some((target.clone(), Self::Delete)),
            _ => None,
        }
    }
}

/// The claim carries the fence of an older version.
pub(super) fn is_fenced(claim: &NodeClaim) -> bool {
    claim.annotation(labels::FENCE) == Some(FenceReason::Disruption.label())
}

/// The Node carries the taint.
pub(super) fn is_tainted(node: &k8s::Node) -> bool {
    let taint = taints::disrupted();
    node.has_taint(&taint.key, &taint.effect)
}

/// The claim carries the condition, for this reason if one is given.
pub(super) fn is_marked(claim: &NodeClaim, reason: Option<DisruptionReason>) -> bool {
    match reason {
        Some(reason) => {
            claim.is_true(DISRUPTION_REASON)
                && find(&claim.status.conditions, DISRUPTION_REASON)
                    .is_some_and(|condition| condition.reason == reason.as_str())
        }
        None => find(&claim.status.conditions, DISRUPTION_REASON).is_some(),
    }
}

/// Writes or removes the condition.
pub(super) fn condition(
    claim: &NodeClaim,
    reason: Option<DisruptionReason>,
    now: Timestamp,
) -> ObjectWrite {
    let mut list = claim.status.conditions.clone();
    let mut conditions = Conditions::new(NODE_CLAIM, &claim.metadata, &mut list, now);
    match reason {
        Some(reason) => {
            conditions.set_true_with_reason(DISRUPTION_REASON, reason.as_str(), reason.as_str());
        }
        None => {
            conditions.clear(DISRUPTION_REASON);
        }
    }
    let edit = NodeClaimStatusEdit {
        conditions: Some(list),
        ..NodeClaimStatusEdit::default()
    };
    ObjectWrite::claim_status(claim, edit)
}
