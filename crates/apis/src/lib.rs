//! Kubernetes API types and the values in them: the custom resources with their rules, reduced types of the built-in kinds,
//! quantities, durations, schedules, label requirements and resource amounts.
//!
//! The custom resources are a published contract: field names, defaults, patterns, expression rules and their messages
//! equal Karpenter's 1.14, so that a cluster can move here and back. A test compares the generated CRDs with
//! the recorded contract, field by field.
//!
//! Pure: no input or output, no clock, no environment, no logging.

pub mod conversion;
pub mod crds;
pub mod deprecated_fields;
pub mod hash;
pub mod issues;
pub mod k8s;
pub mod karpenter;
pub mod labels;
pub mod names;
pub mod nearest;
pub mod node_class;
pub mod node_pool_policy;
pub mod requirements;
pub mod resources;
pub mod schema;
pub mod taints;
pub mod validation;
pub mod values;

pub use crds::CrdSet;
pub use karpenter::capacitybuffer::CapacityBuffer;
pub use karpenter::nodeclaim::NodeClaim;
pub use karpenter::nodeoverlay::NodeOverlay;
pub use karpenter::nodepool::NodePool;
pub use node_pool_policy::NodePoolPolicy;
pub use schema::conditions::Condition;
pub use schema::duration_text::DurationText;
pub use schema::groups::NodeClassRef;
pub use schema::requirement::RequirementSpec;
