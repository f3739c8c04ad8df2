//! The contract with a cloud: calls of the autoscaler, and their results.
//!
//! Invariant: nothing here names a cloud. Labels are data, errors are classified once (in the provider), and a number that a
//! cloud does not know is `None`, never zero.

mod boxed;
mod capacity_type;
pub mod conformance;
mod drift;
mod error;
mod gauge;
mod instance;
mod instance_type;
mod instance_type_line;
mod interruption;
mod launch;
mod port;
mod unavailable;

pub use boxed::BoxFuture;
pub use capacity_type::CapacityType;
pub use drift::DriftReason;
pub use error::{CloudError, LaunchError, Prerequisite, Retry};
pub use gauge::{GaugeName, ProviderGauge};
pub use instance::{Instance, InstanceDetails, TerminationStatus};
pub use instance_type::{InstanceType, Offering};
pub use interruption::{InterruptionKind, InterruptionNotice, NoticeSource, PlannedInterruption};
pub use launch::{LaunchBatch, LaunchRequest, LaunchWindow, LaunchedInstance, UnavailableOffering};
pub use port::{
    CloudProvider, ProviderDescriptor, ProviderWorker, RepairPolicy, ResolveRequest,
    ResolvedNodeClass,
};
pub use unavailable::{ShiftedZone, UnavailableCapacity};
