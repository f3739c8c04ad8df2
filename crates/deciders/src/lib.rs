//! Deciders turn snapshots into effects, one folder or file each.
//!
//! [`all`] lists them in the order in which they are stepped. None imports another; what they share is in `tracking`,
//! `node_claim_request` and `launch_shape`. See [`mortise_engine::decider`] for the contract.

mod capacity_buffer;
mod conditions;
mod deletion_cost;
mod disruption;
mod expiration;
mod garbage_collection;
mod instance_tagging;
mod interruption;
mod launch_shape;
mod lifecycle;
mod node_claim_request;
mod node_class;
mod node_overlay;
mod node_pool;
mod node_pool_policy;
mod provisioning;
mod provisioning_request;
mod repair;
mod static_capacity;
mod termination;
#[cfg(test)]
mod tests;
mod tracking;

pub use capacity_buffer::CapacityBufferDecider;
pub use conditions::ClaimConditionsDecider;
pub use deletion_cost::DeletionCostDecider;
pub use disruption::DisruptionDecider;
pub use expiration::ExpirationDecider;
pub use garbage_collection::GarbageCollectionDecider;
pub use instance_tagging::InstanceTaggingDecider;
pub use interruption::InterruptionDecider;
pub use lifecycle::LifecycleDecider;
pub use node_class::NodeClassDecider;
pub use node_overlay::NodeOverlayDecider;
pub use node_pool::NodePoolDecider;
pub use node_pool_policy::NodePoolPolicyDecider;
pub use provisioning::ProvisioningDecider;
pub use provisioning_request::ProvisioningRequestDecider;
pub use repair::RepairDecider;
pub use static_capacity::StaticCapacityDecider;
pub use termination::TerminationDecider;
pub use tracking::request_tracker::RequestTracker;

use mortise_engine::decider::Decider;

/// Every decider, in the order in which they are stepped: what tells about the world first, then what spends, then what tells of
/// it.
#[must_use]
pub fn all() -> Vec<Box<dyn Decider>> {
    vec![
        Box::new(NodeClassDecider::default()),
        Box::new(NodePoolDecider::default()),
        Box::new(NodeOverlayDecider::default()),
        Box::new(NodePoolPolicyDecider::default()),
        Box::new(InterruptionDecider::default()),
        Box::new(LifecycleDecider::default()),
        Box::new(TerminationDecider::default()),
        Box::new(ClaimConditionsDecider::default()),
        Box::new(ExpirationDecider::default()),
        Box::new(InstanceTaggingDecider::default()),
        Box::new(GarbageCollectionDecider::default()),
        Box::new(RepairDecider::default()),
        Box::new(StaticCapacityDecider::default()),
        Box::new(ProvisioningDecider::default()),
        Box::new(DisruptionDecider::default()),
        Box::new(DeletionCostDecider::default()),
        Box::new(CapacityBufferDecider::default()),
        Box::new(ProvisioningRequestDecider::default()),
    ]
}
