//! Drain planning: which pods must leave a node and in what order, which volumes it waits for, and what blocks it.

pub mod blockers;
mod budgets;
mod errors;
pub mod groups;
mod hand_over;
pub mod pdb;
mod undrainable;
pub mod volumes;

pub use blockers::{StuckDrain, drain_blockers, going_since, stuck_drains};
pub use errors::{DrainErrors, EvictionError, EvictionFailure};
pub use hand_over::{
    HandOver, HandOverStep, NoHandOver, hand_over, hand_over_step, is_handed_over,
};
pub use undrainable::{UndrainableNode, undrainable_because, undrainable_nodes};
