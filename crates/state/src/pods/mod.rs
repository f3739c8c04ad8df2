//! What Kubernetes means by the fields of a pod: effective requests, host ports, selectors, and the questions that
//! draining and disruption ask.

mod ports;
mod requests;
mod selector;
mod terms;

pub use ports::HostPort;
pub use requests::{RequestSource, requests};
pub use selector::Selector;
pub use terms::{CompiledAffinityTerm, PodTerms, SpreadConstraint, WeightedTerm};
