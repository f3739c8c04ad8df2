//! What a simulation is told.

use jiff::Timestamp;
use mortise_apis::names::NodeClassKey;
use mortise_cloudprovider::InstanceType;
use mortise_planning::settings::Settings;
use serde_json::Value;

/// A workload whose replica count may swing.
#[derive(Clone, Debug)]
pub struct Deployment {
    /// Name; its pods are called `<name>-<number>`.
    pub name: String,
    /// Pod template: `{metadata: {labels}, spec}` as in Kubernetes.
    pub template: Value,
    /// Fewest replicas.
    pub low: u32,
    /// Most replicas.
    pub high: u32,
    /// Length of a swing from low to high and back, in virtual seconds; 0 = always `high`. The size changes once a minute.
    pub period_s: i64,
    /// `maxUnavailable` of a disruption budget for its pods; `None` = no budget.
    pub max_unavailable: Option<u32>,
}

/// Pods that come by chance and end by themselves.
#[derive(Clone, Debug)]
pub struct JobSpec {
    /// Name; its pods are called `<name>-<number>`.
    pub name: String,
    /// Pod template.
    pub template: Value,
    /// Mean time between arrivals, in virtual seconds.
    pub every_s: i64,
    /// Shortest and longest run, in virtual seconds.
    pub runs_s: (i64, i64),
}

/// Everything a simulation depends on.
#[derive(Clone, Debug)]
pub struct Options {
    /// Fixes everything that is left to chance.
    pub seed: u64,
    /// Virtual time of the start.
    pub start: Timestamp,
    /// Settings of the deciders.
    pub settings: Settings,
    /// What the cloud sells.
    pub catalog: Vec<InstanceType>,
    /// The one node class.
    pub node_class: NodeClassKey,
    /// NodePool objects.
    pub pools: Vec<Value>,
    /// DaemonSet objects.
    pub daemon_sets: Vec<Value>,
    /// Swinging workloads.
    pub deployments: Vec<Deployment>,
    /// Ending workloads.
    pub jobs: Vec<JobSpec>,
    /// Mean time between spot interruptions in the whole cluster, in virtual seconds; 0 = none.
    pub interruption_every_s: i64,
    /// Of a thousand launches that ask for a spot pool, how many find it empty.
    pub shortage_per_mille: u64,
}
