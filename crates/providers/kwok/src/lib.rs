//! The kwok provider: machines that exist as Node objects only, kept alive by the `kwok` program.
//!
//! Labels, names, prices, taints and delays are a contract that other programs check (group `karpenter.kwok.sh`).
//! Invariant: the name of a machine derives from the claim's UID, so that launching the same claim again finds the same
//! machine, whenever the process was killed in between.

pub mod catalog;
mod node;
mod provider;

pub use catalog::{CatalogError, instance_types};
pub use provider::{KINDS, KwokProvider};
