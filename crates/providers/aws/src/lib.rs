//! mortise: the AWS provider. EC2 instances behind the core's port; the only crate that names the AWS SDK.
//!
//! | module | contents |
//! |---|---|
//! | `api_server` | what is asked of the cluster's API server |
//! | `sdk` | clients, their errors in our words, facts of the cluster and the Systems Manager |
//! | `offerings` | instance types, zones and spot prices of the region, unavailable offerings; the embedded catalog is a crate of its own |
//! | [`user_data`] | user data by AMI family |
//! | `node_class` | subnets, security groups, AMIs and conditions of an `EC2NodeClass` |
//! | `instances` | instances that exist: find, list, terminate, tag, drift |
//! | `launch` | selection, launch templates, fleet requests, client tokens |
//! | [`interruption`] | messages of the SQS queue |
//! | `provider` | the port: composes the components above, and delegates |
//!
//! Each component owns its state and gets what it needs in its constructor. A module imports those above it, never those below.
//!
//! Invariant: errors are classified once ([`failure`]), a launch is repeatable (the claim's UID is its token and its tag), and nothing
//! here decides which instance a pod gets beyond what the claim asks for.

mod api_server;
pub mod config;
pub mod failure;
pub mod interruption;
pub mod user_data;

mod instances;
mod launch;
mod node_class;
mod offerings;
mod provider;
mod sdk;
mod tags;

#[cfg(test)]
mod facts;

pub use self::api_server::{ApiServer, ApiServerError};
pub use self::config::{AwsConfig, AwsService, PrefixDelegation};
pub use self::provider::{AwsProvider, StartError};
pub use self::sdk::NoRegion;
