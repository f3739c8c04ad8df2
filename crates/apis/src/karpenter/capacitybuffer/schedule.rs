//! When a buffer keeps room: always, or by a schedule in its annotations. Its definition is that of Kubernetes, and has no field for it.

use thiserror::Error;

use super::CapacityBuffer;
use crate::labels::{BUFFER_DURATION, BUFFER_SCHEDULE};
use crate::values::{BudgetWindow, CronSchedule, GoDuration, ParseCronError};

/// Why the schedule of a buffer cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BufferScheduleError {
    /// The schedule.
    #[error("annotation {BUFFER_SCHEDULE}: {0}")]
    Schedule(#[from] ParseCronError),
    /// There is no such day, or the schedule is counted from no time (`@every`).
    #[error(
        "annotation {BUFFER_SCHEDULE}: {0:?} has no times of its own; write five fields in UTC, such as \"0 7 * * mon-fri\""
    )]
    NoTimes(String),
    /// The duration.
    #[error(
        "annotation {BUFFER_DURATION}: {0:?} is not a duration above zero; write for example 11h"
    )]
    Duration(String),
    /// One annotation without the other.
    #[error("annotation {present} needs {missing} as well")]
    Alone {
        /// The annotation that is there.
        present: &'static str,
        /// The one that is not.
        missing: &'static str,
    },
}

impl BufferScheduleError {
    /// The annotation to correct.
    #[must_use]
    pub const fn annotation(&self) -> &'static str {
        match self {
            Self::Schedule(_) | Self::NoTimes(_) => BUFFER_SCHEDULE,
            Self::Duration(_) => BUFFER_DURATION,
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
    let (schedule, duration) = match (schedule, duration) {
        (None, None) => return Ok(None),
        (Some(_), None) => return alone(BUFFER_SCHEDULE, BUFFER_DURATION),
        (None, Some(_)) => return alone(BUFFER_DURATION, BUFFER_SCHEDULE),
        (Some(schedule), Some(duration)) => (schedule, duration),
    };
    let cron = CronSchedule::parse(schedule)?;
    if !cron.has_times() {
        return Err(BufferScheduleError::NoTimes(schedule.to_owned()));
    }
    let span = GoDuration::parse(duration).ok();
    let span = span.filter(|span| span.as_nanos() > 0);
    let span = span.ok_or_else(|| BufferScheduleError::Duration(duration.to_owned()))?;
    Ok(Some(BudgetWindow {
        schedule: cron,
        duration: span,
    }))
}

impl CapacityBuffer {
    /// When it keeps room; `None` for always.
    ///
    /// # Errors
    /// Its annotations cannot be used.
    pub fn window(&self) -> Result<Option<BudgetWindow>, BufferScheduleError> {
        let annotations = self.metadata.annotations.as_ref();
        let text = |key: &str| annotations?.get(key).map(String::as_str);
        buffer_window(text(BUFFER_SCHEDULE), text(BUFFER_DURATION))
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
