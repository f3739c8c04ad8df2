//! What keeps a pod on its node, as the service answers it.

use std::fmt;

use jiff::Timestamp;
use serde::Deserialize;

#[derive(Debug, Deserialize)]
pub(super) struct DrainBlocker {
    what: String,
    owner: Option<String>,
    pub(super) since: Timestamp,
    detail: String,
    pub(super) unblocks: String,
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
