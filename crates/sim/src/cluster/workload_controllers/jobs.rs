//! Reconciles Jobs and CronJobs.

use std::collections::BTreeSet;

use jiff::Timestamp;
use mortise_apis::names::PodKey;
use mortise_state::resource_kinds::ObjectKey;

use super::super::pod_index::OwnedPods;
use crate::workloads::Job;

use super::{ApiServer, Runs, STEP, WorkloadControllers, delete, is_deleting, owner};

impl WorkloadControllers {
    /// Creates the jobs that are due, and deletes the pods of those that they replace.
    pub(super) fn start_due_jobs(&mut self, store: &mut ApiServer, now: Timestamp) {
        let (has_begun, replaced) = self.running_jobs.start_due(now);
        if has_begun {
            self.seen = None;
        }
        if replaced.is_empty() {
            return;
        }
        let index = store.pod_index();
        let owned = replaced.iter().filter_map(|job| index.of_owner(job));
        let pods: BTreeSet<PodKey> = owned
            .flat_map(OwnedPods::all)
            .map(|(key, _)| key.clone())
            .collect();
        for pod in pods {
            delete(store, &ObjectKey::Pod(pod), now);
        }
    }

    /// A user creates a job.
    pub(crate) fn create_job(&mut self, job: Job) {
        self.running_jobs.create(job);
        self.seen = None;
    }

    /// Creates the pods that jobs lack.
    pub(super) fn reconcile_jobs(&mut self, store: &mut ApiServer, now: Timestamp) -> Vec<Runs> {
        let mut lacking = Vec::new();
        for running in self.running_jobs.iter() {
            let pods = store.pod_index().of_owner(&running.job.name);
            let active = pods.into_iter().flat_map(OwnedPods::live).count();
            let count = running.creates(active).min(STEP);
            if count > 0 {
                lacking.push((running.job.clone(), count));
            }
        }
        let mut runs = Vec::new();
        for (job, count) in lacking {
            for _ in 0..count {
                let pod = self.create_pod(&job.name, "Job", &job.template, store, now);
                runs.push(Runs {
                    pod,
                    ms: job.run_ms,
                });
            }
        }
        runs
    }

    /// The containers of a pod end by themselves. If it is of a job and is not being deleted, it counts as completed.
    pub(crate) fn pod_completes(&mut self, pod: &PodKey, store: &ApiServer) {
        let pod = store.get(&ObjectKey::Pod(pod.clone()));
        if let Some(job) = pod.filter(|pod| !is_deleting(pod)).and_then(owner) {
            self.running_jobs.completed(job);
            self.seen = None;
        }
    }
}
