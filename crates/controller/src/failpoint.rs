//! Named points at which a test lets the process die, exactly there and nowhere else.
//!
//! `MORTISE_FAILPOINT=NAME` arms one point for the life of the process; reaching it aborts without any clean-up, as
//! `kill -9` would. Unarmed, a point costs one relaxed atomic load.
//!
//! | Name | The process dies |
//! |---|---|
//! | `after-create-claim` | when the API server has stored a NodeClaim, before anybody here knows |
//! | `before-launch` | when a launch was decided, before the cloud is called |
//! | `after-launch` | when the cloud has made the machine, before anybody here knows |
//! | `before-status` | before a NodeClaim's `status.providerID` is written |

use std::sync::atomic::{AtomicU8, Ordering};

/// Environment variable that arms a point.
pub const VARIABLE: &str = "MORTISE_FAILPOINT";

static ARMED: AtomicU8 = AtomicU8::new(0);

/// A point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Failpoint {
    /// A NodeClaim was stored.
    AfterCreateClaim = 1,
    /// A launch is about to be asked for.
    BeforeLaunch = 2,
    /// A machine was made.
    AfterLaunch = 3,
    /// The machine's id is about to be written into the claim.
    BeforeStatus = 4,
}

impl Failpoint {
    /// Every point.
    pub const ALL: [Self; 4] = [
        Self::AfterCreateClaim,
        Self::BeforeLaunch,
        Self::AfterLaunch,
        Self::BeforeStatus,
    ];

    /// Name in the environment variable.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AfterCreateClaim => "after-create-claim",
            Self::BeforeLaunch => "before-launch",
            Self::AfterLaunch => "after-launch",
            Self::BeforeStatus => "before-status",
        }
    }

    /// Dies here if this point is armed.
    pub(crate) fn hit(self) {
        if ARMED.load(Ordering::Relaxed) == self as u8 {
            tracing::error!(failpoint = self.name(), "aborting at an armed failpoint");
            std::process::abort();
        }
    }
}

/// An unknown name in [`VARIABLE`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{VARIABLE}={0:?} is not one of after-create-claim, before-launch, after-launch, before-status"
)]
pub struct UnknownFailpoint(pub String);

/// Arms the point named in [`VARIABLE`], if it is set.
///
/// # Errors
/// The name is unknown.
pub(crate) fn arm_from_environment() -> Result<(), UnknownFailpoint> {
    let Some(name) = std::env::var_os(VARIABLE)
        .map(|name| name.to_string_lossy().into_owned())
        .filter(|name| !name.is_empty())
    else {
        return Ok(());
    };
    let point = parse(&name)?;
    tracing::warn!(
        failpoint = point.name(),
        "a failpoint is armed: this process will abort there"
    );
    ARMED.store(point as u8, Ordering::Relaxed);
    Ok(())
}

fn parse(name: &str) -> Result<Failpoint, UnknownFailpoint> {
    Failpoint::ALL
        .into_iter()
        .find(|each| each.name() == name)
        .ok_or_else(|| UnknownFailpoint(name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_and_others_are_refused() {
        for point in Failpoint::ALL {
            assert_eq!(parse(point.name()), Ok(point));
        }
        let error = parse("before-lunch").unwrap_err().to_string();
        assert!(
            error.contains("\"before-lunch\"") && error.contains("before-launch"),
            "{error}"
        );
        Failpoint::BeforeLaunch.hit();
    }
}
