//! Inputs of a simulation.

use jiff::Timestamp;
use mortise_apis::labels::WellKnown;
use mortise_apis::names::NodeClassKey;
use mortise_cloudprovider::InstanceType;
use mortise_planning::settings::Settings;
use mortise_state::resource_kinds::ObjectKey;
use serde_json::Value;

use crate::workloads::Workloads;

/// A workload whose replica count may oscillate.
#[derive(Clone, Debug)]
pub struct Deployment {
    /// Name; its pods are called `<name>-<number>`.
    pub name: String,
    /// Pod template: `{metadata: {labels}, spec}` as in Kubernetes.
    pub template: Value,
    /// Minimum number of replicas.
    pub low: u32,
    /// Maximum number of replicas.
    pub high: u32,
    /// Period of the oscillation from `low` to `high` and back, in virtual seconds; 0 = always `high`. The size changes once a minute.
    pub period_s: i64,
    /// `maxUnavailable` of a disruption budget for its pods; `None` = no budget.
    pub max_unavailable: Option<u32>,
}

/// Pods that are created at random times and complete.
#[derive(Clone, Debug)]
pub struct JobSpec {
    /// Name; its pods are called `<name>-<number>`.
    pub name: String,
    /// Pod template.
    pub template: Value,
    /// Mean time between arrivals, in virtual seconds.
    pub every_s: i64,
    /// Minimum and maximum run time, in virtual seconds.
    pub runs_s: (i64, i64),
}

/// All inputs of a simulation.
#[derive(Clone, Debug)]
pub struct SimOptions {
    /// Seed for random choices.
    pub seed: u64,
    /// Virtual start time.
    pub start: Timestamp,
    /// Settings of the deciders.
    pub settings: Settings,
    /// Instance types of the cloud.
    pub catalog: Vec<InstanceType>,
    /// Label keys of the cloud.
    pub well_known: WellKnown,
    /// The node classes, ready from the start. All have the catalog.
    pub node_classes: Vec<NodeClassKey>,
    /// NodePool objects.
    pub pools: Vec<Value>,
    /// DaemonSet objects.
    pub daemon_sets: Vec<Value>,
    /// Workloads whose replica count may oscillate.
    pub deployments: Vec<Deployment>,
    /// Workloads of pods that complete.
    pub jobs: Vec<JobSpec>,
    /// StatefulSets, Jobs and CronJobs.
    pub workloads: Workloads,
    /// Capacity buffers and their templates, which count with the feature gate CapacityBuffer only, NodePoolPolicies and PodGroups.
    pub others: Vec<(ObjectKey, Value)>,
    /// Mean time between spot interruptions in the whole cluster, in virtual seconds; 0 = none.
    pub interruption_every_s: i64,
    /// Of a thousand launches from a spot capacity pool, how many fail for lack of capacity.
    pub shortage_per_mille: u64,
}
