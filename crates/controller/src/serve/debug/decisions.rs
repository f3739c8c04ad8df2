//! The newest decisions.

use http::Uri;
use serde::Deserialize;

use super::routes::{DebugRefusal, DebugState, query};
use super::{DebugView, views};

/// Maximum decisions per response.
const MOST_DECISIONS: usize = 1000;

#[derive(Deserialize)]
struct DecisionsQuery {
    limit: Option<usize>,
}

/// `/debug/decisions`.
pub(super) fn view(state: &DebugState, uri: &Uri) -> Result<DebugView, DebugRefusal> {
    let DecisionsQuery { limit } = query(uri).map_err(|error| {
        DebugRefusal::BadRequest(format!(
            "limit must be a number of decisions, at most {MOST_DECISIONS}: {error}"
        ))
    })?;
    let limit = limit.unwrap_or(100).min(MOST_DECISIONS);
    Ok(views::decisions(&state.shared, limit))
}
