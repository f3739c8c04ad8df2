//! Kubernetes semantics of the fields of a pod: effective requests, host ports, selectors, affinity terms.

mod ports;
mod requests;
mod selector;
mod terms;

pub use ports::HostPort;
pub use requests::{RequestSource, requests};
pub use selector::Selector;
pub use terms::{CompiledAffinityTerm, PodTerms, SpreadConstraint, WeightedTerm};
