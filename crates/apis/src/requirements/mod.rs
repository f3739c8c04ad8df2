//! The requirement algebra: what labels a node may have, as sets of values per key.
//!
//! A [`Requirement`] is a set of values of one label; [`Requirements`] is a conjunction of such sets, one per key. "What we
//! have" (a template, an instance type, a node) and "what is asked" (a pod) are the same type; [`Requirements::compatible`]
//! is the question between them.
//!
//! # Source
//! The semantics are those of Karpenter core 1.14 and are checked against recorded answers (`tests/facts_values.rs`).

mod incompatible;
mod operator;
mod pod;
mod requirement;
mod set;
mod sorted;
#[cfg(test)]
mod tests;

pub use incompatible::{Incompatible, NoOverlap, UndefinedLabel};
pub use operator::{Operator, UnknownOperator};
pub use pod::{PodRequirementsError, Preferences, expression, has_preferred_node_affinity};
pub use requirement::Requirement;
pub use set::{Requirements, requirements_of};
