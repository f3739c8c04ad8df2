//! Karpenter's kinds, and what their fields mean.

pub mod budget_schedule;
pub mod capacitybuffer;
pub mod nodeclaim;
pub mod nodeoverlay;
pub mod nodepool;
