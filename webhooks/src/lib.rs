//! Every synchronous question the control plane asks: admission of NodePools and node classes, conversion
//! of their older versions, and kube-scheduler's filter, prioritize and preempt.
//!
//! Invariant: answers are pure functions of the body, a frozen snapshot and the time; only the extender's memory and
//! counters remember anything. Everything but `router` is free of HTTP types and is called directly by tests and `lint`.

pub mod admission;
mod cluster_view;
pub mod conversion;
pub mod counters;
pub mod extender;
pub mod limits;
mod pool;
pub mod router;
pub mod routes;

pub use cluster_view::ClusterView;
pub use counters::Counters;
