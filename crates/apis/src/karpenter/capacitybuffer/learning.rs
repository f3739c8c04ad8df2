//! Room by what the workload had in the last weeks, as annotations demand it. The definition of CapacityBuffers is that of
//! Kubernetes, and has no field for it.

use std::fmt;

use thiserror::Error;

use super::CapacityBuffer;
use crate::labels::{BUFFER_LEARNING, BUFFER_PERCENTILE};

/// What follows from the replicas that were recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LearningMode {
    /// They are shown in the status, and the size of the buffer stays as its spec says.
    Observe,
    /// The buffer has room for the replicas that are expected, and at least the size of its spec.
    Apply,
}

impl LearningMode {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Observe, Self::Apply];

    /// The value of the annotation.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Observe => "observe",
            Self::Apply => "apply",
        }
    }
}

impl fmt::Display for LearningMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How a buffer learns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferLearning {
    /// What follows.
    pub mode: LearningMode,
    /// Which percentile of the same hours of the last weeks is expected, from 1 to 100.
    pub percentile: u8,
}

/// The percentile without an annotation. Of four weeks it is the largest: no week is an exception.
const DEFAULT_PERCENTILE: u8 = 90;

/// Why a buffer cannot learn.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BufferLearningError {
    /// The mode is neither of the two.
    #[error("annotation {BUFFER_LEARNING} is {0:?}; observe or apply is allowed")]
    UnknownMode(String),
    /// The percentile is no number from 1 to 100.
    #[error("annotation {BUFFER_PERCENTILE} is {0:?}; a whole number from 1 to 100 is allowed")]
    BadPercentile(String),
    /// A percentile, and no mode.
    #[error("annotation {BUFFER_PERCENTILE} needs {BUFFER_LEARNING} as well")]
    NoMode,
    /// A PodTemplate has no replicas.
    #[error(
        "annotation {BUFFER_LEARNING} needs spec.scalableRef: a PodTemplate has no replicas to learn from"
    )]
    NoWorkload,
}

impl BufferLearningError {
    /// The annotation to correct.
    #[must_use]
    pub const fn annotation(&self) -> &'static str {
        match self {
            Self::UnknownMode(_) | Self::NoWorkload => BUFFER_LEARNING,
            Self::BadPercentile(_) | Self::NoMode => BUFFER_PERCENTILE,
        }
    }
}

/// How a buffer with these annotations learns; `None` if it does not.
///
/// # Errors
/// One of them cannot be used, or is missing.
pub fn buffer_learning(
    mode: Option<&str>,
    percentile: Option<&str>,
    has_workload: bool,
) -> Result<Option<BufferLearning>, BufferLearningError> {
    let percentile = match percentile {
        None => None,
        Some(text) => {
            let number: Option<u8> = text.trim().parse().ok();
            let number = number.filter(|number| (1..=100).contains(number));
            let bad = || BufferLearningError::BadPercentile(text.to_owned());
            Some(number.ok_or_else(bad)?)
        }
    };
    let Some(text) = mode else {
        return percentile.map_or(Ok(None), |_| Err(BufferLearningError::NoMode));
    };
    let mut modes = LearningMode::ALL.into_iter();
    let mode = modes.find(|mode| mode.as_str() == text);
    let mode = mode.ok_or_else(|| BufferLearningError::UnknownMode(text.to_owned()))?;
    if !has_workload {
        return Err(BufferLearningError::NoWorkload);
    }
    Ok(Some(BufferLearning {
        mode,
        percentile: percentile.unwrap_or(DEFAULT_PERCENTILE),
    }))
}

impl CapacityBuffer {
    /// How it learns; `None` if it does not.
    ///
    /// # Errors
    /// Its annotations cannot be used.
    pub fn learning(&self) -> Result<Option<BufferLearning>, BufferLearningError> {
        let [mode, percentile] =
            [BUFFER_LEARNING, BUFFER_PERCENTILE].map(|key| self.annotation(key));
        buffer_learning(mode, percentile, self.spec.scalable_ref.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_a_percentile_and_a_workload_are_needed() {
        let said = |mode, percentile, has_workload| {
            let learning = buffer_learning(mode, percentile, has_workload);
            let learning = learning.map(|found| found.map(|found| (found.mode, found.percentile)));
            learning.map_err(|error| (error.annotation(), error.to_string()))
        };
        let apply = Some("apply");
        assert_eq!(said(None, None, false), Ok(None));
        assert_eq!(
            said(Some("observe"), None, true),
            Ok(Some((LearningMode::Observe, 90)))
        );
        assert_eq!(
            said(apply, Some("75"), true),
            Ok(Some((LearningMode::Apply, 75)))
        );
        let table = [
            (
                Some("Apply"),
                None,
                true,
                BUFFER_LEARNING,
                "\"Apply\"; observe or apply",
            ),
            (Some("true"), None, true, BUFFER_LEARNING, "\"true\""),
            (apply, Some("0"), true, BUFFER_PERCENTILE, "from 1 to 100"),
            (apply, Some("101"), true, BUFFER_PERCENTILE, "\"101\""),
            (apply, Some("0.9"), true, BUFFER_PERCENTILE, "\"0.9\""),
            (apply, Some("90%"), true, BUFFER_PERCENTILE, "\"90%\""),
            (
                None,
                Some("90"),
                true,
                BUFFER_PERCENTILE,
                "needs mortise.sh/buffer-learning",
            ),
            (
                apply,
                None,
                false,
                BUFFER_LEARNING,
                "needs spec.scalableRef",
            ),
        ];
        for (mode, percentile, has_workload, annotation, part) in table {
            let (found, text) = said(mode, percentile, has_workload).unwrap_err();
            assert_eq!(found, annotation, "{text}");
            assert!(text.contains(part) && text.contains(annotation), "{text}");
        }
    }
}
