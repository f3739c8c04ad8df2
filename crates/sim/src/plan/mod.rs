//! What the service would do now with a recorded cluster, and what it would do if something were different.
//!
//! The production engine and deciders run on the recorded objects, in virtual time, until everything that they would begin now has
//! begun. What they decide is reported and not executed.
//!
//! | what | where |
//! |---|---|
//! | the run: which requests are answered and which are reported | `dry_run.rs` |
//! | changes before the run: manifests, removed nodes, lost zones, prices | `what_if/` |
//! | the result | `report.rs`; its parts from the run's state in `summary.rs` |
//!
//! Must never change anything outside: nothing here can.

mod dry_run;
mod report;
mod summary;
pub mod what_if;

pub use dry_run::plan;
pub use report::{
    BlockedNode, PlanReport, PlanTotals, PlannedAction, PlannedCommand, PlannedLaunch, PlannedMove,
    RemovedNode, UnplacedPods,
};
