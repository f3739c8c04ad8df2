//! Why a NodeClaim is not launched, as its record and its condition `Launched` say it.

use super::MESSAGE_CHARS;
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::names::ObjectRef;
use mortise_cloudprovider::Prerequisite;
use mortise_engine::decider::{Step, StepInput};
use mortise_engine::decider_id::DeciderId;
use mortise_engine::record::Verdict;
use mortise_planning::reason::{LaunchTimeout, Reason};

/// The claim is deleted without an instance.
pub(super) const fn not_launched(why: LaunchTimeout) -> Reason {
    Reason::LaunchTimedOut {
        condition: "Launched",
        status: "False",
        why,
    }
}

/// Its condition `Launched` has this status, for this reason.
pub(super) fn launched_is(status: &str, why: String) -> Reason {
    Reason::ConditionIs {
        condition: "Launched".to_owned(),
        status: status.to_owned(),
        why,
    }
}

/// A message that fits into a condition.
pub(super) fn cut(text: &str) -> String {
    text.chars().take(MESSAGE_CHARS).collect()
}

/// Says on the claim and its NodePool what the account has to have first.
pub(super) fn announce_missing(
    what: Prerequisite,
    claim: &NodeClaim,
    input: &StepInput<'_>,
    step: &mut Step,
) {
    let pool = claim.pool().map(ObjectRef::Pool);
    let objects = std::iter::once(ObjectRef::Claim(claim.name())).chain(pool);
    let reasons = vec![Reason::PrerequisiteMissing { what }];
    step.announce(
        input,
        DeciderId::Lifecycle,
        objects,
        Verdict::Observed,
        reasons,
    );
}
