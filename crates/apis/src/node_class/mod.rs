//! Node classes: the kinds that a cloud provider serves, and the objects as stored.

pub mod ec2nodeclass;
pub mod ec2nodeclass_status;
mod kind;
pub mod kwoknodeclass;
pub mod served;

pub use kind::{NodeClassKind, NodeClassObject};
