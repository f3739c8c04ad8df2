//! Named points at which a test makes the process abort.
//!
//! `MORTISE_FAILPOINT=before-STEP` or `after-STEP` arms one point for the life of the process; reaching it aborts without any
//! clean-up, as `kill -9` would. A step is one of [`LifecycleStep`]: `before-` is after the decision and before the request,
//! `after-` is after the request and before its outcome is processed. Unarmed, a point costs one relaxed atomic load.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

use mortise_apis::nearest::nearest;
use mortise_engine::effect::Effect;
use mortise_engine::write::lifecycle_step::LifecycleStep;

/// Environment variable that arms a point.
pub const VARIABLE: &str = "MORTISE_FAILPOINT";

/// 0, or one more than the point's place in the list of all.
static ARMED: AtomicU8 = AtomicU8::new(0);
/// The effect of an armed `after-` point is under way.
static HOLDING: AtomicBool = AtomicBool::new(false);
/// How often effects that wait for it look.
const HELD: Duration = Duration::from_millis(5);

/// On which side of an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailpointSide {
    /// Nothing has been sent.
    Before,
    /// The request was sent, and its outcome is not processed yet.
    After,
}

/// A point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failpoint {
    /// Before or after.
    pub moment: FailpointSide,
    /// Which effect.
    pub step: LifecycleStep,
}

impl fmt::Display for Failpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let moment = match self.moment {
            FailpointSide::Before => "before",
            FailpointSide::After => "after",
        };
        write!(f, "{moment}-{}", self.step.name())
    }
}

impl Failpoint {
    /// Every point, in the order of a node's life.
    pub fn all() -> impl Iterator<Item = Self> {
        LifecycleStep::ALL.into_iter().flat_map(|step| {
            [FailpointSide::Before, FailpointSide::After].map(|moment| Self { moment, step })
        })
    }

    fn code(self) -> u8 {
        let place = Self::all().position(|each| each == self);
        place
            .and_then(|place| u8::try_from(place + 1).ok())
            .unwrap_or(0)
    }
}

/// The point on this side of the effect is armed.
fn is_armed(moment: FailpointSide, effect: &Effect) -> bool {
    let armed = ARMED.load(Ordering::Relaxed);
    armed != 0
        && effect
            .lifecycle_step()
            .is_some_and(|step| Failpoint { moment, step }.code() == armed)
}

/// Dies here if the point on this side of the effect is armed.
fn hit(moment: FailpointSide, effect: &Effect) {
    if is_armed(moment, effect) {
        let name = effect.lifecycle_step().map(LifecycleStep::name);
        tracing::error!(?moment, step = name, "aborting at failpoint");
        std::process::abort();
    }
}

/// An effect is about to be sent. While the effect of an armed `after-` point is under way, everything else waits: a watch
/// may show its result before its answer is here, and what follows from it belongs to the next life of the process.
pub(crate) async fn begin(effect: &Effect) {
    if ARMED.load(Ordering::Relaxed) == 0 {
        return;
    }
    hit(FailpointSide::Before, effect);
    if is_armed(FailpointSide::After, effect) {
        HOLDING.store(true, Ordering::SeqCst);
        return;
    }
    while HOLDING.load(Ordering::SeqCst) {
        tokio::time::sleep(HELD).await;
    }
}

/// An effect has been answered.
pub(crate) fn end(effect: &Effect, is_done: bool) {
    if is_done {
        hit(FailpointSide::After, effect);
    }
    if is_armed(FailpointSide::After, effect) {
        HOLDING.store(false, Ordering::SeqCst);
    }
}

/// An unknown name in [`VARIABLE`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{VARIABLE}={name:?} is no failpoint{hint}: they are before-STEP and after-STEP, with STEP one of {steps}"
)]
pub struct UnknownFailpoint {
    /// What was given.
    name: String,
    /// The question whether the name most like it was meant, if there is one.
    hint: String,
    /// Every step.
    steps: String,
}

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
        failpoint = %point,
        "failpoint is armed, the process will abort there"
    );
    ARMED.store(point.code(), Ordering::Relaxed);
    Ok(())
}

fn parse(name: &str) -> Result<Failpoint, UnknownFailpoint> {
    Failpoint::all()
        .find(|each| each.to_string() == name)
        .ok_or_else(|| UnknownFailpoint {
            name: name.to_owned(),
            hint: nearest(name, Failpoint::all().map(|each| each.to_string()))
                .map_or_else(String::new, |point| format!(" (did you mean {point}?)")),
            steps: LifecycleStep::ALL.map(LifecycleStep::name).join(", "),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_and_others_are_refused() {
        for point in Failpoint::all() {
            assert_eq!(parse(&point.to_string()), Ok(point));
            assert_ne!(point.code(), 0);
        }
        assert_eq!(Failpoint::all().count(), 48);
        let error = parse("before-lunch").unwrap_err().to_string();
        assert!(
            error.contains("\"before-lunch\"") && error.contains("did you mean before-launch?"),
            "{error}"
        );
        hit(FailpointSide::Before, &Effect::ListInstances);
    }
}
