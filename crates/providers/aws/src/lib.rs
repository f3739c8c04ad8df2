//! mortise: the AWS provider. EC2 machines behind the core's port; the only crate that names the AWS SDK.
//!
//! The pure half ([`catalog`], [`instance_type_info`], [`instance_type`], [`node_settings`], [`user_data`], [`interruption`], [`failure`]) knows
//! no SDK type and no network; the other half turns it into calls.
//!
//! Invariant: errors are classified once ([`failure`]), a launch is repeatable (the claim's UID is its token and its tag), and nothing
//! here decides which machine a pod gets beyond what the claim asks for.

pub mod ami_family;
pub mod catalog;
pub mod config;
pub mod failure;
pub mod instance_type;
pub mod instance_type_info;
pub mod interruption;
pub mod node_settings;
pub mod user_data;

mod amis;
mod api;
mod client_tokens;
mod fleet;
mod fleet_input;
mod instance_cache;
mod interruption_queue;
mod launch;
mod launch_selection;
mod launch_templates;
mod networks;
mod node_class_cache;
mod provider;
mod region_offerings;
mod tags;
mod unavailable_offerings;

#[cfg(test)]
mod facts;

pub use self::api::NoRegion;
pub use self::config::AwsConfig;
pub use self::provider::{AwsProvider, KINDS, StartError};
