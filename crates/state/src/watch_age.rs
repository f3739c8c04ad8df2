//! In what way what a watch shows may be old.

use std::fmt;

use jiff::Timestamp;
use serde::Serialize;

/// In what way a watch is old.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Age {
    /// It does not stand.
    Broken,
    /// It stands and says nothing.
    Silent,
    /// It does not show what was written.
    Behind,
}

impl Age {
    /// Every way, in order.
    pub const ALL: [Self; 3] = [Self::Broken, Self::Silent, Self::Behind];

    /// Word for metrics.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Broken => "broken",
            Self::Silent => "silent",
            Self::Behind => "behind",
        }
    }
}

/// A watch that is old.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OldWatch {
    /// What it watches: the kind of the objects.
    pub kind: String,
    /// In what way it is old.
    pub how: Age,
    /// Since when nothing that counts came from it.
    pub since: Timestamp,
}

impl fmt::Display for OldWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, how, since } = self;
        match how {
            Age::Broken => write!(f, "the watch of {kind} has been broken since {since}"),
            Age::Silent => write!(f, "the watch of {kind} has been silent since {since}"),
            Age::Behind => write!(f, "the watch of {kind} does not show a write of {since}"),
        }
    }
}
