//! Disruption planning: which nodes may be removed or replaced, at what cost, and where their pods would run.
//!
//! Pure evaluations of a [`DisruptionView`](disruption_view::DisruptionView); the decider of the same name executes the
//! results. [`candidate`]: what may be disrupted, and what blocks the rest. [`search`]: emptiness, drift, consolidation.
//! [`simulation`] runs the scheduler unless [`feasibility_bound`] knows the result, [`price`] ensures the savings,
//! [`cost`] compares them with the disruption. [`survey`](mod@survey): everything at once, for requests of users.
//!
//! # Source
//! karpenter-core 5.

pub mod budgets;
pub mod buffer_room;
pub mod candidate;
pub mod candidate_cache;
pub mod command;
mod command_improvement;
pub mod consolidate_after;
pub mod cost;
mod covering_dual;
pub mod disruption_view;
mod drift_holds;
pub mod drift_waves;
pub mod feasibility_bound;
mod move_budget;
pub mod neighborhood_search;
mod node_blockers;
mod node_sets;
mod on_demand_balance;
mod payback;
pub mod price;
pub mod refusals;
pub mod rejection;
mod removal;
pub mod resource_values;
pub mod rest;
mod scattered;
pub mod search;
pub mod simulation;
pub mod static_drift;
pub mod survey;
pub mod totals;
pub mod upgrade_drift;

pub use budgets::{BudgetState, budget_states};
pub use drift_holds::DriftHold;
pub use node_blockers::{BlockerFacts, BlockerScope, NodeBlocker, node_blockers};
pub use survey::{NodeSurvey, Proposal, ReplacementPricing, Survey, consider, survey};
