//! The writes of a command on Nodes and claims, and how to see on the objects that they have happened.

use jiff::Timestamp;
use serde_json::{Value, json};

use mortise_apis::karpenter::nodeclaim::DISRUPTION_REASON;
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::names::{ClaimName, NodeName, ObjectRef};
use mortise_apis::schema::conditions::{Conditions, NODE_CLAIM, find};
use mortise_apis::{k8s, labels, taints};
use mortise_engine::effect::{Effect, Patch};
use mortise_planning::disruption::command::DisruptionReason;
use mortise_state::ledger::FenceReason;

/// What is written. With the object, the key under which a write is in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CommandWrite {
    /// The fence annotation of a claim, which an older version left.
    Fence,
    /// The taint of a Node.
    Taint,
    /// The condition of a claim, which fences its machine.
    Condition,
    /// The deletion of a claim.
    Delete,
}

/// Which of our writes an effect is.
pub(super) fn kind_of(effect: &Effect) -> Option<(ObjectRef, CommandWrite)> {
    match effect {
        Effect::Patch(patch) => {
            let write = match (&patch.target, patch.status) {
                (ObjectRef::Node(_), false) => CommandWrite::Taint,
                (ObjectRef::Claim(_), true) => CommandWrite::Condition,
                (ObjectRef::Claim(_), false) => CommandWrite::Fence,
                _ => return None,
            };
            Some((patch.target.clone(), write))
        }
        Effect::Delete { target, .. } => Some((target.clone(), CommandWrite::Delete)),
        _ => None,
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

/// Removes the fence of an older version.
pub(super) fn unfence(claim: &ClaimName) -> Effect {
    Effect::Patch(Patch {
        target: ObjectRef::Claim(claim.clone()),
        status: false,
        resource_version: None,
        merge: json!({ "metadata": { "annotations": { labels::FENCE: null } } }),
    })
}

/// What becomes of the taint of a Node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taint {
    /// It waits with its pods for machines that replace it.
    On,
    /// It goes as soon as its pods have gone: load balancers leave it with the same write.
    Leaving,
    /// It stays after all.
    Off,
}

/// Writes or removes the taint. A merge patch replaces the list, so it holds for one version of the Node only.
pub(super) fn taint(node: &k8s::Node, name: &NodeName, what: Taint) -> Effect {
    let mut all: Vec<_> = node
        .spec
        .taints
        .iter()
        .filter(|taint| taint.key != labels::DISRUPTED_TAINT)
        .cloned()
        .collect();
    if what != Taint::Off {
        all.push(taints::disrupted());
    }
    let mut merge = json!({ "spec": { "taints": all } });
    let excluded = node.label(labels::EXCLUDE_LB) == Some(labels::EXCLUDE_LB_VALUE);
    let label = match what {
        Taint::Leaving if !excluded => Some(Value::from(labels::EXCLUDE_LB_VALUE)),
        Taint::Off if excluded => Some(Value::Null),
        Taint::On | Taint::Leaving | Taint::Off => None,
    };
    if let Some(label) = label {
        merge["metadata"] = json!({ "labels": { labels::EXCLUDE_LB: label } });
    }
    Effect::Patch(Patch {
        target: ObjectRef::Node(name.clone()),
        status: false,
        resource_version: node.metadata.resource_version.clone(),
        merge,
    })
}

/// Writes or removes the condition.
pub(super) fn condition(
    claim: &NodeClaim,
    reason: Option<DisruptionReason>,
    now: Timestamp,
) -> Effect {
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
    Effect::Patch(Patch {
        target: ObjectRef::Claim(claim.name()),
        status: true,
        resource_version: claim.metadata.resource_version.clone(),
        merge: json!({ "status": { "conditions": list } }),
    })
}
