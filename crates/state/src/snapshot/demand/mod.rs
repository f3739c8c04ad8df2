//! Room that is asked for without a pod: CapacityBuffers.
//!
//! A buffer is resolved to virtual pods: pods that exist in memory only, and that the scheduler places after all others. They
//! are never nominated, and nothing ever waits for them: a real pod takes their room by being there.
//!
//! Invariant: what a buffer is resolved to is a function of the buffer, of the object that it refers to and, with a schedule or
//! with what it learned, of the time. Every replica derives the same, and a change of any shows in the next snapshot.
//!
//! # Source
//! karpenter-core 1.5 and 7.4.

mod failure;
mod learned;
mod resolve;
mod size;
mod template;

pub use failure::BufferFailure;
pub use learned::LearnedDemand;
pub use resolve::{BufferDemand, ResolvedBuffer};
pub(crate) use resolve::{demand_of, nearest_template, reference_of};
pub use size::{MOST_PODS, buffer_size};
pub use template::{BufferTemplate, TemplateKey, TemplateKind};
