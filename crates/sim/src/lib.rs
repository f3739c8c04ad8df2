//! A virtual cluster, scheduler, kubelets, cloud and clock around the production engine.
//!
//! Invariant: one seed gives one history. Nothing here reads a clock, the network or a file, and no order depends on
//! hashing. Used by `mortise demo`, by tests, and for questions of the kind "what would happen if".

mod api_server;
mod cloud;
mod effects;
mod extender;
mod faults;
mod invariants;
mod kubelet;
mod options;
mod rng;
mod scheduler;
mod simulation;
mod stats;
mod waiting;
mod watches;
mod workload_controllers;

pub use api_server::ApiServer;
pub use cloud::{Cloud, SimInstance};
pub use extender::Extender;
pub use faults::{Fault, FaultTarget};
pub use options::{Deployment, JobSpec, Options};
pub use rng::Rng;
pub use simulation::Simulation;
pub use stats::Stats;
pub use watches::WatchFault;
