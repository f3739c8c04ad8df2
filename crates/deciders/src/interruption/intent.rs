//! What a notice asks for on one NodeClaim.

use jiff::Timestamp;
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::karpenter::nodepool::NodePool;
use mortise_apis::labels;
use mortise_apis::nearest::nearest;
use mortise_cloudprovider::{InterruptionKind, PlannedInterruption};
use mortise_planning::reason::Reason;
use mortise_planning::settings::RebalancePolicy;
use mortise_state::ledger::FenceReason;

use super::timing::Schedule;

/// What is to be written on a NodeClaim. Of several intents the greatest one holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Intent {
    /// The announcement is stored, with a fence if there is one; what follows is read from the object.
    Store {
        /// What was announced.
        plan: PlannedInterruption,
        /// Keeps further pods off.
        fence: Option<FenceReason>,
    },
    /// The NodeClaim is deleted.
    Delete {
        /// Why.
        kind: InterruptionKind,
        /// From then on its pods are deleted without asking; set by a forceful kind.
        deadline: Option<Timestamp>,
    },
}

impl Intent {
    /// What an announcement asks for; `None`: nothing, but an event.
    pub(super) fn new(
        plan: PlannedInterruption,
        claim: &NodeClaim,
        policy: RebalancePolicy,
        now: Timestamp,
    ) -> Option<Self> {
        let is_advice = plan.kind == InterruptionKind::RebalanceRecommendation;
        let fence = match policy {
            RebalancePolicy::Ignore if is_advice => return None,
            RebalancePolicy::Cordon if is_advice => FenceReason::Rebalance,
            _ => FenceReason::Interruption,
        };
        let schedule = Schedule::new(plan, claim)
            .filter(|schedule| schedule.drain_by.is_none_or(|drain_by| drain_by > now));
        let Some(schedule) = schedule else {
            return Some(Self::Delete {
                kind: plan.kind,
                deadline: plan.kind.is_forceful().then_some(now),
            });
        };
        let fence = (schedule.begin <= now).then_some(fence);
        Some(Self::Store { plan, fence })
    }

    /// Whether it changes more than another one.
    pub(super) fn exceeds(self, other: Self) -> bool {
        match (self, other) {
            (
                Self::Delete { deadline, .. },
                Self::Delete {
                    deadline: known, ..
                },
            ) => deadline.is_some() && known.is_none(),
            (Self::Delete { .. }, Self::Store { .. }) => true,
            (
                Self::Store { plan, fence },
                Self::Store {
                    plan: known,
                    fence: fenced,
                },
            ) => is_earlier(plan, known) || fence > fenced,
            (Self::Store { .. }, Self::Delete { .. }) => false,
        }
    }
}

/// Whether one announcement begins before another one. One without a time is advice, and the least.
fn is_earlier(one: PlannedInterruption, other: PlannedInterruption) -> bool {
    match (one.starts, other.starts) {
        (Some(one), Some(other)) => one < other,
        (one, other) => one.is_some() && other.is_none(),
    }
}

/// What was announced of a NodeClaim's instance, as stored on it.
pub(super) fn stored(claim: &NodeClaim) -> Option<PlannedInterruption> {
    PlannedInterruption::parse(claim.annotation(labels::INTERRUPTION)?)
}

/// The fence of a NodeClaim, as stored on it.
pub(super) fn stored_fence(claim: &NodeClaim) -> Option<FenceReason> {
    FenceReason::parse(claim.annotation(labels::FENCE)?)
}

/// Whether a NodeClaim has what is to be stored already, or something more urgent.
pub(super) fn is_stored(
    claim: &NodeClaim,
    plan: PlannedInterruption,
    fence: Option<FenceReason>,
) -> bool {
    let is_fenced = fence.is_none_or(|fence| match stored_fence(claim) {
        Some(FenceReason::Interruption) => true,
        known => known == Some(fence),
    });
    is_fenced && stored(claim).is_some_and(|known| !is_earlier(plan, known))
}

/// What a NodePool does after a rebalance recommendation. A word that is not known counts as not said, and is returned as a fault.
pub(super) fn policy_of(
    pool: Option<&NodePool>,
    default: RebalancePolicy,
) -> (RebalancePolicy, Option<Reason>) {
    let annotations = pool.and_then(|pool| pool.metadata.annotations.as_ref());
    let Some(word) = annotations.and_then(|all| all.get(labels::REBALANCE_RECOMMENDATION)) else {
        return (default, None);
    };
    match RebalancePolicy::parse(word) {
        Some(policy) => (policy, None),
        None => {
            let fault = Reason::InvalidAnnotation {
                annotation: labels::REBALANCE_RECOMMENDATION,
                value: word.clone(),
                must_be: "ignore, cordon or replace-first",
                did_you_mean: nearest(word, RebalancePolicy::WORDS),
            };
            (default, Some(fault))
        }
    }
}
