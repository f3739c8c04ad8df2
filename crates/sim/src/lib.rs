//! A virtual cluster, scheduler, kubelets, cloud and clock around the production engine.
//!
//! Invariant: one seed gives one history. Nothing here reads a clock, the network or a file, and no order depends on
//! hashing. Used by `mortise demo`, by tests, and for questions of the kind "what would happen if".
//!
//! | what | where |
//! |---|---|
//! | time, events to come, random numbers | `clock/` |
//! | API server, cloud, kubelets, scheduler, workload controllers | `cluster/` |
//! | processes of the service and the lease; their watches | `replicas.rs`, `watches.rs` |
//! | what goes wrong | `faults/` |
//! | what must hold; totals | `invariants.rs`, `stats.rs` |
//! | the event loop, which composes them | `simulation.rs` |

mod clock;
mod cluster;
mod faults;
mod invariants;
mod options;
mod replicas;
mod simulation;
mod stats;
mod watches;

pub use cluster::{ApiServer, Cloud, Extender, SimInstance};
pub use faults::{Fault, FaultTarget, WatchFault};
pub use options::{Deployment, JobSpec, Options};
pub use simulation::Simulation;
pub use stats::Stats;
