//! A virtual cluster, scheduler, kubelets, cloud and clock around the production engine.
//!
//! Invariant: one seed gives one history. Nothing here reads a clock, the network or a file, and no order depends on
//! hashing. It is used by `mortise demo`, by tests and for what-if experiments.
//!
//! | what | where |
//! |---|---|
//! | virtual time, planned events, random numbers | `clock/` |
//! | API server, cloud, kubelets, scheduler, workload controllers | `cluster/` |
//! | replicas of the service and the lease; their watches | `replicas.rs`, `watches.rs` |
//! | fault injection | `faults/` |
//! | invariants; totals; scores; what became of NodeClaims | `invariants.rs`, `stats.rs`, `scores.rs`, `moved_pods.rs`, `node_claim_history.rs` |
//! | the event loop, which owns all of them | `simulation.rs` |
//! | gangs: when each was complete, and when it ran | `gang_history.rs` |
//! | a cluster as recorded at one time, and its file | `recorded_cluster/` |
//! | the same as a scenario: its cloud, and its workloads as manifests | `recorded_scenario/` |
//! | what the service would do now with a recorded cluster | `plan/` |
//! | Karpenter's way to provision and disrupt, for comparisons | `baseline/` |
//! | recordings of the replicas; a recording of a service, played again | `recordings.rs`, `replay/` |
//! | scenarios: a cluster as manifests, and a timeline | `scenario/` |
//! | the same cluster, step by step, for tests of deciders | `test_cluster/` |
//! | independent simulations on all processors | `parallel.rs` |
//! | a smaller input that still fails | `shrink.rs` |

pub mod baseline;
mod clock;
mod cluster;
mod faults;
mod gang_history;
mod invariants;
mod manifest_error;
mod moved_pods;
mod node_claim_history;
mod options;
mod parallel;
pub mod plan;
mod pod_budget;
mod price_factor;
pub mod recorded_cluster;
mod recorded_scenario;
mod recordings;
pub mod replay;
mod replicas;
pub mod scenario;
mod scores;
mod shrink;
mod simulation;
mod stats;
pub mod test_cluster;
mod watches;
mod workloads;

pub use cluster::{ApiServer, Cloud, Extender, NewPrice, RESERVATION_ID, SimInstance, TAGGED};
pub use faults::{Fault, FaultTarget, WatchFault};
pub use manifest_error::ManifestError;
pub use node_claim_history::{NodeClaimHistory, NodeClaimStage, NodeClaimStep};
pub use options::{Deployment, JobSpec, SimOptions};
pub use parallel::on_all_processors;
pub use recorded_scenario::RecordedScenario;
pub use recordings::Recordings;
pub use scores::{ClusterMinute, MovedWorkload, Percentiles, Scores};
pub use shrink::{shrunk_document, shrunk_list};
pub use simulation::Simulation;
pub use stats::Stats;
pub use workloads::{
    ConcurrencyPolicy, CronJob, Job, JobArrival, StatefulSet, VolumeClaimTemplate, Workloads,
};
