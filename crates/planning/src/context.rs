//! Input of every planner.

use jiff::Timestamp;

use crate::settings::Settings;
use mortise_state::feasible_pods::FeasiblePods;
use mortise_state::snapshot::Snapshot;

/// Input of a planner. Cheap to copy.
#[derive(Clone, Copy, Debug)]
pub struct PlanningContext<'a> {
    /// Now.
    pub now: Timestamp,
    /// The cluster.
    pub snapshot: &'a Snapshot,
    /// Settings.
    pub settings: &'a Settings,
    /// Pods for which kube-scheduler has a node.
    pub feasible: &'a FeasiblePods,
    /// Seed of random choices: the same input and seed give the same result.
    pub seed: u64,
}
