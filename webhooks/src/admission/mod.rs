//! Admission: what CEL cannot see (other objects, the catalogue), and better words for what a schema says badly.
//!
//! Every check here is repeated by the workers as a condition, so nothing is lost when the webhook is down.

mod advice;
mod defaulting;
mod review;
mod shape;
mod validation;

pub use defaulting::default;
pub use review::{Answer, Request, review};
pub use validation::validate;

use mortise_core::cloud::NodeClassKind;

/// How admission answers.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// Deny, instead of warn about, a pool that no instance type can satisfy.
    pub deny_impossible: bool,
    /// Node class kinds that are served, the default one first.
    pub node_class_kinds: Vec<NodeClassKind>,
}
