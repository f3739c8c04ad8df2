//! Exact value types: quantities, durations, schedules and disruption budgets, with the semantics of Kubernetes and Go.

mod quantity;
mod quantity_text;

pub use quantity::{Format, ParseQuantityError, Quantity};
