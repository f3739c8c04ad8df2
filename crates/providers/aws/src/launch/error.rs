//! How a launch, or one attempt of it, ends without an instance.
//!
//! A claim's condition has the reason and the words that users' dashboards and runbooks know; what AWS said goes to the log.

use std::fmt::Display;

use mortise_cloudprovider::LaunchError;

use crate::failure::{self, Failure, FailureKind};

/// Begins the message of a launch whose templates could not be made.
const TEMPLATES: &str = "Error getting launch template configs: ";
/// Begins the message of a launch whose request was refused.
const REQUEST: &str = "Error creating fleet request: ";
/// Begins the message of a launch whose templates vanished twice.
const GONE: &str = "Launch templates not found when creating fleet request: ";

/// A launch that failed for a reason that has a name.
pub(crate) fn create_error(reason: &str, message: impl Into<String>) -> LaunchError {
    LaunchError::Create {
        reason: reason.to_owned(),
        message: message.into(),
    }
}

/// Nothing has capacity, and no offering in particular is to blame.
pub(crate) fn no_capacity(message: impl Into<String>) -> LaunchError {
    LaunchError::InsufficientCapacity {
        message: message.into(),
        unavailable: Vec::new(),
        again_ms: None,
        missing: None,
    }
}

/// A lack of capacity says when the first of what is unavailable is asked for again.
pub(crate) fn with_end(error: LaunchError, again_ms: Option<i64>) -> LaunchError {
    match error {
        LaunchError::InsufficientCapacity {
            message,
            unavailable,
            missing,
            ..
        } => LaunchError::InsufficientCapacity {
            message,
            unavailable,
            again_ms,
            missing,
        },
        other => other,
    }
}

/// No template can be made, because of what the class selects.
pub(crate) fn no_template(detail: impl Display) -> LaunchError {
    template_error("", &detail)
}

/// No template can be made: `known` is what AWS would say of it, `detail` what we know.
pub(crate) fn template_error(known: &str, detail: &impl Display) -> LaunchError {
    tracing::warn!(error = %detail, "failed to make launch template");
    named(TEMPLATES, known)
}

/// A call for a template failed.
pub(crate) fn failed_template_call(failure: Failure) -> LaunchError {
    failed_call(TEMPLATES, failure)
}

/// The fleet request failed as a whole.
pub(crate) fn failed_request(failure: Failure) -> LaunchError {
    failed_call(REQUEST, failure)
}

/// What the fleet said of its offerings, as the reason of the launch.
pub(crate) fn failed_offerings(texts: &str) -> LaunchError {
    tracing::warn!(error = texts, "failed to launch instance");
    named("", texts)
}

/// A call that AWS refused has a reason. One that may have taken effect, or was never allowed to, is tried again.
fn failed_call(stage: &str, failure: Failure) -> LaunchError {
    if failure.kind != FailureKind::Service || failure.label() == "credentials" {
        return LaunchError::Other(failure.into());
    }
    tracing::warn!(error = %failure, "failed to launch instance");
    named(stage, &format!("{}: {}", failure.code, failure.message))
}

fn named(stage: &str, text: &str) -> LaunchError {
    let (reason, message) = failure::launch_reason(text);
    create_error(reason, format!("{stage}{message}"))
}

/// How one attempt ended without an instance.
#[derive(Debug)]
pub(crate) enum AttemptError {
    /// A launch template does not exist any more: the next attempt creates it again. What EC2 said.
    TemplateGone(String),
    /// For good, or for this time.
    Ended(LaunchError),
}

impl From<LaunchError> for AttemptError {
    fn from(error: LaunchError) -> Self {
        Self::Ended(error)
    }
}

impl From<AttemptError> for LaunchError {
    fn from(error: AttemptError) -> Self {
        match error {
            AttemptError::TemplateGone(text) => named(GONE, &text),
            AttemptError::Ended(error) => error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_lack_of_capacity_ends_by_itself() {
        let ends = |error| match with_end(error, Some(180_001)) {
            LaunchError::InsufficientCapacity { again_ms, .. } => again_ms,
            _ => None,
        };
        assert_eq!(ends(no_capacity("none left")), Some(180_001));
        assert_eq!(ends(create_error("LaunchFailed", "denied")), None);
    }
}
