//! Where pods go: on machines that are there or coming, and on new ones.

mod claim_object;
mod daemons;
mod fits;
pub mod plan;

use jiff::Timestamp;

pub use daemons::{Daemon, Daemons, Overhead};
pub use fits::{Closed, Misfit, Room, fits, fits_class};
pub use plan::{LaunchPlan, Placement, PlannedClaim, PlannedOffering, SolveOptions, SolveReport, Unplaced};

use crate::snapshot::Snapshot;

/// Finds places.
#[must_use]
pub fn solve(
    _now: Timestamp,
    snapshot: &Snapshot,
    options: &SolveOptions,
    _stop: &dyn Fn() -> bool,
) -> (LaunchPlan, SolveReport) {
    let considered = if options.pending { snapshot.pending.len() } else { 0 };
    (LaunchPlan::default(), SolveReport { considered, ..SolveReport::default() })
}
