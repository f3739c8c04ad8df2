//! What if: changes of a recorded cluster before it is planned.
//!
//! | change | where |
//! |---|---|
//! | nodes are removed, a zone is lost | `nodes.rs` |
//! | prices change | `price_change.rs` |
//! | manifests are applied; workloads among them, as pods | `manifests.rs`, `workload.rs` |
//!
//! A change that names something that the cluster does not have is an error which names the nearest: a question about nothing would be
//! answered by the plan of the unchanged cluster.

mod manifests;
mod nodes;
mod price_change;
mod workload;

use std::fmt;

use mortise_apis::nearest::nearest;

pub use manifests::{apply, open_budgets};
pub use nodes::{lose_zone, remove_node};
pub use price_change::PriceChange;

/// Names that an error lists.
const LISTED: usize = 8;

/// A change that cannot be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WhatIfError {
    /// The field of the manifest; empty for a value of the command line.
    pub field: String,
    /// What is wrong, what is allowed, and what may have been meant.
    pub problem: String,
}

impl WhatIfError {
    fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            problem: problem.into(),
        }
    }

    /// `given` is none of those that there are.
    fn unknown<'a>(
        field: &str,
        what: &str,
        given: &str,
        known: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let known: Vec<&str> = known.into_iter().collect();
        let meant = nearest(given, &known)
            .map_or_else(String::new, |near| format!("; did you mean {near:?}?"));
        let mut there = known
            .iter()
            .take(LISTED)
            .copied()
            .collect::<Vec<_>>()
            .join(", ");
        if known.is_empty() {
            "none".clone_into(&mut there);
        } else if let Some(more @ 1..) = known.len().checked_sub(LISTED) {
            there = format!("{there} and {more} more");
        }
        Self::new(
            field,
            format!("unknown {what} {given:?}: there is {there}{meant}"),
        )
    }
}

impl fmt::Display for WhatIfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.field.is_empty() {
            return f.write_str(&self.problem);
        }
        write!(f, "{}: {}", self.field, self.problem)
    }
}

impl std::error::Error for WhatIfError {}
