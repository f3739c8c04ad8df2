//! Drift hashes: one number that changes when a template or a node class changes in a way that old nodes do not have.
//!
//! The numbers stand in annotations of running fleets. They must equal those of Karpenter 1.14 bit for bit, or taking
//! a fleet over would replace all of it.

mod nodepool;
pub mod structure;

/// Version of [`NodePool::hash`](crate::NodePool::hash).
pub const NODE_POOL_HASH_VERSION: &str = "v3";
