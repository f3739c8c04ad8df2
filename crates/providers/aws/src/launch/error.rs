//! How a launch, or one attempt of it, ends without an instance.

use mortise_cloudprovider::LaunchError;

use crate::failure::{self, Failure};

/// A launch that failed for a reason that has a name.
pub(crate) fn create_error(reason: &str, message: impl Into<String>) -> LaunchError {
    LaunchError::Create {
        reason: reason.to_owned(),
        message: message.into(),
    }
}

/// A failed call as the end of a launch: with a reason when it will fail again, as an error to repeat otherwise.
pub(crate) fn failed_call(failure: Failure) -> LaunchError {
    if failure.passes() || failure.label() == "credentials" {
        return LaunchError::Other(failure.into());
    }
    let (reason, message) = failure::launch_reason(&failure.code, &failure.message);
    create_error(reason, format!("{message}; {}", failure.action))
}

/// How one attempt ended without an instance.
#[derive(Debug)]
pub(crate) enum AttemptError {
    /// A launch template does not exist any more: the next attempt creates it again.
    TemplateGone,
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
            AttemptError::TemplateGone => create_error(
                "LaunchTemplateNotFound",
                "Launch template used for instance launch wasn't found",
            ),
            AttemptError::Ended(error) => error,
        }
    }
}
