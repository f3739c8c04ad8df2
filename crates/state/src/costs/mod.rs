//! What nodes cost, by NodePool, by namespace and by a label of pods: cost allocation.
//!
//! # Rule
//! A node costs the price of its offering while its NodeClaim is there. A pod is charged the largest share that it requests of any
//! resource of its node; if these shares come to more than the node, each is scaled down. What no pod requests is an account of its
//! own, so that the namespaces and this account come to what the NodePools cost, exactly.
//!
//! # Invariant
//! Amounts are prices times milliseconds, added up as integers. What changes between two readings counts from the second one on.
//!
//! # Cost
//! A reading compares one pointer per node, and divides the price of the nodes that changed. `mortise-bench scale --only costs`
//! measures it.

mod account;
mod allocation;

pub use account::{CostAccount, Rate};
pub use allocation::{Allocation, Amounts, CostOfAccount, HOURS, HourlyCosts};
