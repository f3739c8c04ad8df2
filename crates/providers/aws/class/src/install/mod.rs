//! What an account and a cluster need before the provider can work in them: permissions, roles, and the queue of interruption
//! messages; as plain policy documents, as a CloudFormation template, and as a Terraform configuration.
//!
//! Problem: a policy that was written by hand grants what the code once called. Invariant: everything here is derived from two
//! tables, [`GRANTS`] and [`RULES`]; tests compare them with the sources of the provider, and the three forms with each other.
//!
//! | module | contents |
//! |---|---|
//! | `permissions` | which actions the provider calls, on what, under which conditions |
//! | `template` | texts with placeholders for what is known only in the account |
//! | `document` | policies of the controller, below IAM's limit of size, and who may assume the roles |
//! | `installation` | names and choices of an installation, with their rules |
//! | `queue` | the queue, who may send to it, and the rules that do |
//! | `plain`, `cloud_formation`, `terraform` | the forms; `hcl` writes Terraform's language |

mod cloud_formation;
mod document;
mod hcl;
mod installation;
mod permissions;
mod plain;
mod queue;
mod template;
mod terraform;

pub use document::{Policy, SIZE_LIMIT};
pub use installation::{AccountFacts, Identity, Installation, InvalidOption};
pub use permissions::{Area, Condition, GRANTS, Grant, IMPLIED, Scope, When};
pub use plain::plain;
pub use queue::{EventRule, Queue, RULES};

#[cfg(test)]
mod tests;
