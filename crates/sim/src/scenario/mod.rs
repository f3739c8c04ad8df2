//! Scenarios: a cluster as Kubernetes manifests, and what happens to it when.
//!
//! Invariant: a scenario, its seed and the version of the product give one history; [`ScenarioReport::history`] is its digest.

mod checks;
mod cluster_objects;
mod digest;
mod offerings;
mod report;
mod run;
mod simulated_cloud;
mod spec;
mod start_times;
mod timeline;
mod trace;
mod workload_manifests;

pub use cluster_objects::ClusterObjects;
pub(crate) use cluster_objects::check_buffer;
pub use report::{ScenarioNode, ScenarioReport, ScenarioSample};
pub use run::{ScenarioRun, ServiceDeciders, SimulatedService, play};
pub use simulated_cloud::SimulatedCloud;
pub use spec::{SCENARIO_API_VERSION, SCENARIO_KIND, ScenarioQuota, ScenarioSpec, scenario_schema};
pub use start_times::{ScenarioBootTaint, ScenarioStartTime};
pub use timeline::{TimelineAction, TimelineEntry};
pub use trace::{TraceError, trace_jobs};
pub use workload_manifests::RUN_TIME;
