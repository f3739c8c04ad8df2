//! Why the data of a watch may be stale.

use std::fmt;

use jiff::Timestamp;
use serde::Serialize;

/// Why a watch is stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Age {
    /// It is not connected.
    Broken,
    /// It is connected and sends nothing.
    Silent,
    /// It does not show own writes.
    Behind,
}

impl Age {
    /// Every variant, in order.
    pub const ALL: [Self; 3] = [Self::Broken, Self::Silent, Self::Behind];

    /// Value in metrics.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Broken => "broken",
            Self::Silent => "silent",
            Self::Behind => "behind",
        }
    }
}

/// A stale watch.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct OldWatch {
    /// Kind of the watched objects.
    pub kind: String,
    /// Why it is stale.
    pub how: Age,
    /// Time of its last relevant event.
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
