//! Why a NodeClaim is not launched, as its record and its condition `Launched` say it.

use super::MESSAGE_CHARS;
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
