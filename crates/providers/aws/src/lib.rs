//! mortise: the AWS provider. EC2 machines behind the core's port; the only crate that names the AWS SDK.
//!
//! The pure half ([`catalog`], [`instance_info`], [`instance_type`], [`node_shape`], [`user_data`], [`interruption`], [`failure`]) knows
//! no SDK type and no network; the other half turns it into calls.
//!
//! Invariant: errors are classified once ([`failure`]), a launch is repeatable (the claim's UID is its token and its tag), and nothing
//! here decides which machine a pod gets beyond what the claim asks for.

pub mod catalog;
pub mod config;
pub mod failure;
pub mod family;
pub mod instance_info;
pub mod instance_type;
pub mod interruption;
pub mod node_shape;
pub mod user_data;

mod api;
mod attempts;
mod choice;
mod classes;
mod fleet;
mod images;
mod keys;
mod launch;
mod machines;
mod market;
mod networks;
mod order;
mod provider;
mod queue;
mod templates;
mod unavailable;

#[cfg(test)]
mod facts;

pub use self::api::NoRegion;
pub use self::config::AwsConfig;
pub use self::provider::{AwsProvider, KINDS, StartError};
