//! Kubernetes API types: the custom resources with their rules, and slim views of the built-in kinds.
//!
//! The custom resources are a published contract: field names, defaults, patterns, expression rules and their messages
//! equal Karpenter's 1.14, so that a cluster can move here and back. A test compares the generated definitions with
//! the recorded contract, field by field.

pub mod absent;
pub mod capacitybuffer;
pub mod conditions;
pub mod conversion;
pub mod crds;
pub mod deprecated_fields;
pub mod duration_text;
pub mod ec2nodeclass;
pub mod ec2nodeclass_status;
pub mod hash;
pub mod k8s;
pub mod kwoknodeclass;
pub mod names;
pub mod nodeclaim;
pub mod nodeoverlay;
pub mod nodepool;
mod object;
pub mod requirement;
mod schema;
pub mod validation;

pub use capacitybuffer::CapacityBuffer;
pub use conditions::Condition;
pub use crds::{CrdSet, crds};
pub use duration_text::DurationText;
pub use ec2nodeclass::Ec2NodeClass;
pub use kwoknodeclass::KwokNodeClass;
pub use names::NodeClassRef;
pub use nodeclaim::NodeClaim;
pub use nodeoverlay::NodeOverlay;
pub use nodepool::NodePool;
pub use requirement::RequirementSpec;
