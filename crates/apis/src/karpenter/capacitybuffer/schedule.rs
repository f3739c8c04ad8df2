//! When a buffer keeps room: always, or by a schedule in its annotations. Its definition is that of Kubernetes, and has no field for it.

use thiserror::Error;

use super::CapacityBuffer;
use crate::labels::{BUFFER_DURATION, BUFFER_SCHEDULE};
use crate::values::{BudgetWindow, RecurrenceError};

/// Why the schedule of a buffer cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BufferScheduleError {
    /// What the annotations say.
    #[error("annotation {annotation}: {0}", annotation = annotation_of(.0))]
    Unusable(#[from] RecurrenceError),
    /// One annotation without the other.
    #[error("annotation {present} needs {missing} as well")]
    Alone {
        /// The annotation that is there.
        present: &'static str,
        /// The one that is not.
        missing: &'static str,
    },
}

/// The annotation that is at fault.
const fn annotation_of(error: &RecurrenceError) -> &'static str {
    match error {
        RecurrenceError::Schedule(_) | RecurrenceError::NoTimes(_) => BUFFER_SCHEDULE,
        RecurrenceError::Duration(_) => BUFFER_DURATION,
    }
}

impl BufferScheduleError {
    /// The annotation to correct.
    #[must_use]
    pub const fn annotation(&self) -> &'static str {
        match self {
            Self::Unusable(error) => annotation_of(error),
            Self::Alone { present, .. } => present,
        }
    }
}

/// When a buffer with these annotations keeps room; `None` for always.
///
/// # Errors
/// One of them cannot be used, or is missing.
pub fn buffer_window(
    schedule: Option<&str>,
    duration: Option<&str>,
) -> Result<Option<BudgetWindow>, BufferScheduleError> {
    let alone = |present, missing| Err(BufferScheduleError::Alone { present, missing });
    match (schedule, duration) {
        (None, None) => Ok(None),
        (Some(_), None) => alone(BUFFER_SCHEDULE, BUFFER_DURATION),
        (None, Some(_)) => alone(BUFFER_DURATION, BUFFER_SCHEDULE),
        (Some(schedule), Some(duration)) => Ok(Some(BudgetWindow::recurring(schedule, duration)?)),
    }
}

impl CapacityBuffer {
    /// When it keeps room; `None` for always.
    ///
    /// # Errors
    /// Its annotations cannot be used.
    pub fn window(&self) -> Result<Option<BudgetWindow>, BufferScheduleError> {
        let [schedule, duration] =
            [BUFFER_SCHEDULE, BUFFER_DURATION].map(|key| self.annotation(key));
        buffer_window(schedule, duration)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_annotations_are_needed_and_say_what_is_wrong() {
        let said = |schedule, duration| {
            let window = buffer_window(schedule, duration);
            window
                .map(|window| window.map(|window| window.duration.to_string()))
                .map_err(|error| (error.annotation(), error.to_string()))
        };
        let morning = Some("0 7 * * mon-fri");
        assert_eq!(said(None, None), Ok(None));
        assert_eq!(said(morning, Some("11h")), Ok(Some("11h0m0s".to_owned())));
        let table = [
            (morning, None, "mortise.sh/buffer-schedule needs"),
            (None, Some("11h"), "mortise.sh/buffer-duration needs"),
            (morning, Some("0s"), "mortise.sh/buffer-duration: \"0s\""),
            (
                morning,
                Some("a day"),
                "mortise.sh/buffer-duration: \"a day\"",
            ),
            (Some("at 7"), Some("1h"), "mortise.sh/buffer-schedule: "),
            (
                Some("0 0 30 2 *"),
                Some("1h"),
                "\"0 0 30 2 *\" has no times of its own",
            ),
            (
                Some("@every 2h"),
                Some("1h"),
                "\"@every 2h\" has no times of its own",
            ),
        ];
        for (schedule, duration, part) in table {
            let (annotation, text) = said(schedule, duration).unwrap_err();
            assert!(text.contains(part) && text.contains(annotation), "{text}");
        }
    }
}
