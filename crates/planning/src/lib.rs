//! Planning: pure evaluations of a snapshot. Which pods run where, and on which new nodes; which nodes may be disrupted, and
//! what replaces them; what must leave a draining node, and what blocks it; what an edit would change.
//!
//! A planner takes a [`PlanningContext`](context::PlanningContext) or a snapshot and returns a result with its reasons. It keeps
//! nothing between calls and requests no writes.

pub mod brake;
pub mod consistency;
pub mod context;
pub mod disruption;
pub mod drain;
pub mod drain_blocker;
pub mod drift;
pub mod pause;
pub mod preview;
pub mod reason;
pub mod replica_counts;
pub mod scheduling;
pub mod settings;
