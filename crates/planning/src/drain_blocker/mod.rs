//! What keeps a node or NodeClaim from being drained, as a fact of records and reports.

mod kind;

use std::fmt;

use jiff::Timestamp;
use serde::Serialize;

pub use kind::DrainBlockerKind;

use mortise_apis::values::since;

/// A drain blocker.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct DrainBlocker {
    /// Its kind.
    pub kind: DrainBlockerKind,
    /// The object, such as `pod default/web-1`.
    pub what: String,
    /// Its owner: the owner of a pod, the driver of a volume; `None` without one.
    pub owner: Option<String>,
    /// Since when.
    pub since: Timestamp,
    /// The facts.
    pub detail: String,
    /// What would clear it.
    pub unblocks: String,
}

impl DrainBlocker {
    /// A sentence for users.
    #[must_use]
    pub fn text(&self, now: Timestamp) -> String {
        format!(
            "{self}, for {} s; {}",
            since(now, self.since) / 1_000,
            self.unblocks
        )
    }
}

impl fmt::Display for DrainBlocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        if let Some(owner) = &self.owner {
            write!(f, " of {owner}")?;
        }
        write!(f, ": {}", self.detail)
    }
}
