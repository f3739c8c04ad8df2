//! A virtual cluster, scheduler, kubelets, cloud and clock around the production engine.
//!
//! Invariant: one seed gives one history. Nothing here reads a clock, the network or a file, and no order depends on
//! hashing. Used by `mortise demo`, by tests, and for questions of the kind "what would happen if".

mod cloud;
mod extender;
mod faults;
mod invariants;
mod kubelet;
mod options;
mod outside;
mod owners;
mod rng;
mod scheduler;
mod simulation;
mod stats;
mod store;
mod waiting;
mod watches;

pub use cloud::{Cloud, Machine};
pub use extender::Extender;
pub use faults::{Aim, Fault};
pub use options::{Deployment, Jobs, Options};
pub use rng::Rng;
pub use simulation::Simulation;
pub use stats::Stats;
pub use store::Store;
pub use watches::WatchFault;
