//! Workloads of pods with stable names, and of pods that complete.

use mortise_apis::values::CronSchedule;
use serde_json::Value;

/// StatefulSets, Jobs and CronJobs. No two workloads of a cluster have one name.
#[derive(Clone, Debug, Default)]
pub struct Workloads {
    /// Pods with stable names.
    pub stateful_sets: Vec<StatefulSet>,
    /// Jobs that exist from the start.
    pub jobs: Vec<Job>,
    /// Jobs that are created by the clock.
    pub cron_jobs: Vec<CronJob>,
    /// Jobs that are created once, some time after the start, in the order of their times.
    pub arrivals: Vec<JobArrival>,
}

/// Pods named `<name>-0` and so on.
#[derive(Clone, Debug)]
pub struct StatefulSet {
    /// Name.
    pub name: String,
    /// Pod template.
    pub template: Value,
    /// Number of pods at the start.
    pub replicas: u32,
    /// Pods are created and removed all at once instead of one after the other.
    pub is_parallel: bool,
    /// Volumes of each pod.
    pub claims: Vec<VolumeClaimTemplate>,
    /// `maxUnavailable` of a disruption budget for its pods; `None` = no budget.
    pub max_unavailable: Option<u32>,
}

/// A volume of each pod of a StatefulSet. It is made in the zone of the first node of the pod, and kept for good.
#[derive(Clone, Debug)]
pub struct VolumeClaimTemplate {
    /// Name of the volume in the pod.
    pub name: String,
    /// Storage class; `None` = the default one. All classes wait for the first consumer.
    pub storage_class: Option<String>,
}

/// Pods that complete.
#[derive(Clone, Debug)]
pub struct Job {
    /// Name; its pods are called `<name>-<number>`.
    pub name: String,
    /// Pod template.
    pub template: Value,
    /// Pods that complete until the job is done.
    pub completions: u32,
    /// Most pods at once.
    pub parallelism: u32,
    /// How long a pod runs, in milliseconds; one that is evicted is followed by one that begins again.
    pub run_ms: i64,
}

/// A job that is created once.
#[derive(Clone, Debug)]
pub struct JobArrival {
    /// Milliseconds after the start.
    pub after_ms: i64,
    /// The job.
    pub job: Job,
}

/// A job that recurs.
#[derive(Clone, Debug)]
pub struct CronJob {
    /// Its jobs are called `<name>-<minutes since 1970>`, and otherwise as this one.
    pub job: Job,
    /// When.
    pub schedule: CronSchedule,
    /// What happens while the job before runs.
    pub concurrency: ConcurrencyPolicy,
}

/// What becomes of a job that is due while the one before runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConcurrencyPolicy {
    /// Both run.
    Allow,
    /// It begins when the one before has ended; of several that were due, the last one.
    Forbid,
    /// It takes the place of the one before.
    Replace,
}
