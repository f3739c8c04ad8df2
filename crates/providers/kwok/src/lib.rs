//! The kwok provider: instances that exist as Node objects only, kept alive by the `kwok` program.
//!
//! Labels, names, prices, taints and delays are a contract that other programs check (group `karpenter.kwok.sh`).
//! Invariant: the name of an instance derives from the claim's UID, so that a repeated launch of the same claim returns the same
//! instance, even if the process was killed in between.

pub mod catalog;
mod node;
mod provider;

pub use catalog::{TypesFileError, instance_types};
pub use provider::KwokProvider;
