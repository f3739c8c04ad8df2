//! Controllers of the virtual cluster: they reconcile the replicas of workloads and DaemonSet pods, update the status of
//! disruption budgets, and delete objects without an owner.

pub(crate) mod daemon_sets;
mod jobs;
mod stateful_sets;

use std::collections::BTreeMap;

use jiff::Timestamp;
use mortise_apis::names::{NamespacedName, PodKey};
use mortise_apis::values::{SplitMix64, after};
use mortise_state::resource_kinds::{ObjectKey, ObjectKind};
use serde_json::{Value, json};

use super::api_server::{ApiServer, is_deleting};
use super::deletion_order::in_deletion_order;
use super::pod_index::OwnedPods;
use super::rolling_update::{RollingUpdate, of_revision};
use super::running_jobs::RunningJobs;
use super::zonal_volumes::install_classes;
use crate::options::{Deployment, JobSpec, SimOptions};
use crate::workloads::Workloads;
use daemon_sets::{DaemonSetsSeen, is_late, reconcile_daemon_sets};

pub(crate) const NAMESPACE: &str = "default";
/// Maximum number of pods that one workload creates, or replaces, per tick.
const STEP: usize = 20;
/// Maximum number of pods that the ReplicaSet controller deletes at a time.
const BURST: usize = 500;
/// Milliseconds between two pods of a workload: kube-controller-manager creates 20 a second.
const PACE_MS: i64 = 50;
/// Virtual seconds between two resizes of an oscillating workload.
const RESIZE_S: i64 = 60;

/// Workloads and their counters.
#[derive(Debug)]
pub(crate) struct WorkloadControllers {
    deployments: Vec<Deployment>,
    workloads: Workloads,
    running_jobs: RunningJobs,
    jobs: Vec<JobSpec>,
    next_job: Vec<Timestamp>,
    serial: u64,
    start: Timestamp,
    /// Resource version and target sizes before the last round: if both are unchanged there is nothing to do.
    seen: Option<(u64, Vec<usize>)>,
    /// Scales the size of every workload, in percent; 0 = no pods.
    pub(crate) scale_percent: u32,
    /// Sizes set by a user, by workload; these workloads do not oscillate.
    pub(crate) scaled: BTreeMap<String, u32>,
    /// Pods that are created before the next tick.
    planned: Vec<PlannedPod>,
    /// How often the template of a workload was replaced.
    revisions: BTreeMap<String, u64>,
    /// Pods of DaemonSets that were late and never got their node.
    unplaced_daemon_pods: u64,
    /// Deployments exist as objects too, for capacity buffers that refer to them.
    has_objects: bool,
    rounds: LastRounds,
    /// When a workload got another size, another template, or a job began or ended.
    changed_at: Option<Timestamp>,
}

/// What the last rounds of controllers saw: one that sees the same does the same, which is nothing any more.
#[derive(Debug, Default)]
struct LastRounds {
    /// Of each Deployment: target size, and revisions of its pods and of its template.
    deployments: BTreeMap<String, (usize, u64, Option<u64>)>,
    /// Of each workload with a disruption budget, the revision of its pods ...
    budgets: BTreeMap<String, u64>,
    /// ... while no disruption budget changed since this version.
    budgets_at: u64,
    /// Versions of the last NodePool and NodeClaim that came or went.
    garbage: Option<(u64, u64)>,
    daemon_sets: DaemonSetsSeen,
}

/// A pod that a controller creates soon.
#[derive(Debug)]
pub(crate) struct PlannedPod {
    pub(crate) after_ms: i64,
    pub(crate) key: PodKey,
    pub(crate) pod: Value,
}

/// Run time of a job pod.
pub(crate) struct Runs {
    pub(crate) pod: PodKey,
    pub(crate) ms: i64,
}

impl WorkloadControllers {
    pub(crate) fn new(options: &SimOptions) -> Self {
        Self {
            deployments: options.deployments.clone(),
            workloads: options.workloads.clone(),
            running_jobs: RunningJobs::new(&options.workloads, options.start),
            jobs: options.jobs.clone(),
            next_job: vec![options.start; options.jobs.len()],
            serial: 0,
            start: options.start,
            seen: None,
            scale_percent: 100,
            scaled: BTreeMap::new(),
            planned: Vec::new(),
            revisions: BTreeMap::new(),
            unplaced_daemon_pods: 0,
            has_objects: options.settings.gates.capacity_buffer,
            rounds: LastRounds::default(),
            changed_at: None,
        }
    }

    /// Creates the initial objects.
    pub(crate) fn install(&self, options: &SimOptions, store: &mut ApiServer, now: Timestamp) {
        let ready = json!([{ "type": "Ready", "status": "True", "reason": "Ready", "message": "", "lastTransitionTime": now.to_string() }]);
        for class in &options.node_classes {
            let object = json!({
                "apiVersion": format!("{}/v1", class.group), "kind": &*class.kind,
                "metadata": { "name": &*class.name, "generation": 1 }, "spec": {}, "status": { "conditions": ready },
            });
            create(store, ObjectKey::NodeClass(class.clone()), object, now);
        }
        for pool in &options.pools {
            let name = pool
                .pointer("/metadata/name")
                .and_then(Value::as_str)
                .unwrap_or("default");
            create(store, ObjectKey::Pool(name.into()), pool.clone(), now);
        }
        for set in &options.daemon_sets {
            let name = set
                .pointer("/metadata/name")
                .and_then(Value::as_str)
                .unwrap_or("daemon");
            let namespace = set
                .pointer("/metadata/namespace")
                .and_then(Value::as_str)
                .unwrap_or("kube-system");
            create(
                store,
                ObjectKey::DaemonSet(NamespacedName::new(namespace, name)),
                set.clone(),
                now,
            );
        }
        install_classes(&options.workloads.stateful_sets, store, now);
        for (key, object) in &options.others {
            create(store, key.clone(), object.clone(), now);
        }
        for (name, template, max) in self.budgets() {
            let labels = template.pointer("/metadata/labels");
            let selector = labels.cloned().unwrap_or_default();
            let pdb = json!({
                "metadata": { "name": name, "namespace": NAMESPACE, "generation": 1 },
                "spec": { "selector": { "matchLabels": selector }, "maxUnavailable": max },
                "status": { "disruptionsAllowed": 0 },
            });
            let key = ObjectKey::Pdb(NamespacedName::new(NAMESPACE, name));
            create(store, key, pdb, now);
        }
    }

    /// Workloads with a disruption budget: name, pod template and `maxUnavailable`.
    fn budgets(&self) -> impl Iterator<Item = (&str, &Value, u32)> {
        let deployments = self.deployments.iter();
        let deployments =
            deployments.map(|each| (&*each.name, &each.template, each.max_unavailable));
        let sets = self.workloads.stateful_sets.iter();
        let sets = sets.map(|each| (&*each.name, &each.template, each.max_unavailable));
        let all = deployments.chain(sets);
        all.filter_map(|(name, template, max)| Some((name, template, max?)))
    }

    /// The template of a workload is replaced by an equal one.
    pub(crate) fn replace_template(&mut self, deployment: &str) {
        let revision = self.revisions.entry(deployment.to_owned()).or_default();
        *revision += 1;
        self.seen = None;
    }

    /// Pods of DaemonSets that are late for their node, or were when they were deleted without one.
    pub(crate) fn late_daemon_pods(&self, store: &ApiServer, now: Timestamp) -> u64 {
        let waiting = store.pod_index().daemons_without_node().iter();
        let pods = waiting.filter_map(|key| store.get(&ObjectKey::Pod(key.clone())));
        self.unplaced_daemon_pods + pods.filter(|pod| is_late(pod, now)).count() as u64
    }

    /// When a workload changed last, other than by evictions.
    pub(crate) const fn changed_at(&self) -> Option<Timestamp> {
        self.changed_at
    }

    /// One round of every controller.
    pub(crate) fn tick(
        &mut self,
        store: &mut ApiServer,
        now: Timestamp,
        random: &mut SplitMix64,
    ) -> Vec<Runs> {
        let mut runs = Vec::new();
        for at in 0..self.jobs.len() {
            runs.extend(self.create_jobs(at, store, now, random));
        }
        self.start_due_jobs(store, now);
        // Controllers react to changes: a round without a change has no effect.
        let sizes: Vec<usize> = self
            .deployments
            .iter()
            .map(|deployment| self.size(deployment, now))
            .chain(self.set_sizes())
            .collect();
        let seen = (store.version(), sizes);
        if self.seen.as_ref() == Some(&seen) {
            return runs;
        }
        let has_same_sizes = self
            .seen
            .as_ref()
            .is_some_and(|(_, sizes)| *sizes == seen.1);
        if !has_same_sizes || !runs.is_empty() {
            self.changed_at = Some(now);
        }
        let deployments = std::mem::take(&mut self.deployments);
        for (deployment, want) in deployments.iter().zip(&seen.1) {
            let pods = store.pod_index().of_owner(&deployment.name);
            let template = self.revisions.get(&deployment.name).copied();
            let round = (*want, pods.map_or(0, |pods| pods.revision), template);
            if self.rounds.deployments.get(&deployment.name) == Some(&round) {
                continue;
            }
            if self.has_objects {
                set_object(deployment, *want, store, now);
            }
            self.reconcile(deployment, *want, store, now);
            self.rounds
                .deployments
                .insert(deployment.name.clone(), round);
        }
        self.deployments = deployments;
        let of_sets = seen.1.get(self.deployments.len()..).unwrap_or_default();
        self.reconcile_sets(of_sets, store, now);
        runs.extend(self.reconcile_jobs(store, now));
        let daemon_sets = DaemonSetsSeen::of(store);
        if daemon_sets != self.rounds.daemon_sets {
            self.unplaced_daemon_pods += reconcile_daemon_sets(store, now);
            self.rounds.daemon_sets = daemon_sets;
        }
        self.update_budgets(store);
        let came = |kind| store.last_change(&kind).membership;
        let garbage = (came(ObjectKind::Pool), came(ObjectKind::Claim));
        if self.rounds.garbage != Some(garbage) {
            collect_garbage(store, now);
            self.rounds.garbage = Some(garbage);
        }
        self.seen = Some(seen);
        runs
    }

    /// Current target size of a workload: a triangle wave, in whole pods.
    fn size(&self, deployment: &Deployment, now: Timestamp) -> usize {
        if let Some(size) = self.scaled.get(&deployment.name) {
            return usize::try_from(*size * self.scale_percent / 100).unwrap_or(0);
        }
        let range = i64::from(deployment.high.saturating_sub(deployment.low));
        let swing = if deployment.period_s <= 0 {
            range
        } else {
            // Pod autoscalers act at intervals and change the size by several pods at a time.
            let passed = (now.as_second() - self.start.as_second()) / RESIZE_S * RESIZE_S;
            let into = passed.rem_euclid(deployment.period_s);
            let half = (deployment.period_s / 2).max(1);
            range
                * if into < half {
                    into
                } else {
                    deployment.period_s - into
                }
                / half
        };
        let size = (i64::from(deployment.low) + swing) * i64::from(self.scale_percent) / 100;
        usize::try_from(size).unwrap_or(0)
    }

    fn reconcile(
        &mut self,
        deployment: &Deployment,
        want: usize,
        store: &mut ApiServer,
        now: Timestamp,
    ) {
        let pods = store.pod_index().of_owner(&deployment.name);
        let pods = || pods.into_iter().flat_map(OwnedPods::live);
        if let Some(revision) = self.revisions.get(&deployment.name).copied() {
            let ranked = in_deletion_order(pods(), now).into_iter();
            let round = RollingUpdate::new(want, revision, ranked);
            if !round.is_complete() {
                for pod in round.deletes(STEP) {
                    delete(store, &ObjectKey::Pod(pod), now);
                }
                let template = of_revision(&deployment.template, Some(revision));
                self.plan_pods(round.creates(STEP), &deployment.name, &template);
                return;
            }
        }
        let revision = self.revisions.get(&deployment.name).copied();
        let template = of_revision(&deployment.template, revision);
        let have = pods().count();
        let lacking = want.saturating_sub(have).min(STEP);
        self.plan_pods(lacking, &deployment.name, &template);
        if have > want {
            let surplus = in_deletion_order(pods(), now).into_iter();
            let surplus = surplus.take((have - want).min(BURST));
            let surplus: Vec<PodKey> = surplus.map(|(key, _)| key.clone()).collect();
            for pod in surplus {
                delete(store, &ObjectKey::Pod(pod), now);
            }
        }
    }

    /// Updates the allowed disruptions of each budget.
    fn update_budgets(&mut self, store: &mut ApiServer) {
        let mut rounds = std::mem::take(&mut self.rounds.budgets);
        if store.last_change(&ObjectKind::Pdb).any != self.rounds.budgets_at {
            rounds.clear();
        }
        for (name, _, max) in self.budgets() {
            let pods = store.pod_index().of_owner(name);
            let revision = pods.map_or(0, |pods| pods.revision);
            if rounds.get(name) == Some(&revision) {
                continue;
            }
            let (mut healthy, mut expected) = (0_i64, 0_i64);
            for (_, pod) in pods.into_iter().flat_map(OwnedPods::all) {
                expected += 1;
                healthy += i64::from(pod.is_healthy && !pod.is_deleting);
            }
            let desired = (expected - i64::from(max)).max(0);
            let key = ObjectKey::Pdb(NamespacedName::new(NAMESPACE, name));
            let status = json!({ "status": { "disruptionsAllowed": (healthy - desired).max(0), "currentHealthy": healthy, "desiredHealthy": desired, "expectedPods": expected, "observedGeneration": 1 } });
            if store.get(&key).is_some() && store.patch(&key, &status, None).is_err() {
                debug_assert!(false, "a patch without a version cannot conflict");
            }
            rounds.insert(name.to_owned(), revision);
        }
        self.rounds.budgets = rounds;
        self.rounds.budgets_at = store.last_change(&ObjectKind::Pdb).any;
    }

    /// Plans pods of a Deployment, one after another.
    fn plan_pods(&mut self, count: usize, owner: &str, template: &Value) {
        for nth in 0..count {
            self.serial += 1;
            let key = PodKey::new(NAMESPACE, format!("{owner}-{}", self.serial));
            self.planned.push(PlannedPod {
                after_ms: PACE_MS * i64::try_from(nth).unwrap_or(0),
                pod: pod_of(&key, owner, "ReplicaSet", template),
                key,
            });
        }
    }

    /// Pods that are to be created, in order.
    pub(crate) fn take_planned(&mut self) -> Vec<PlannedPod> {
        std::mem::take(&mut self.planned)
    }

    fn create_jobs(
        &mut self,
        at: usize,
        store: &mut ApiServer,
        now: Timestamp,
        random: &mut SplitMix64,
    ) -> Vec<Runs> {
        let mut runs = Vec::new();
        let Some(jobs) = self.jobs.get(at).cloned() else {
            return runs;
        };
        while self.scale_percent > 0 && self.next_job.get(at).is_some_and(|next| *next <= now) {
            let pod = self.create_pod(&jobs.name, "Job", &jobs.template, store, now);
            runs.push(Runs {
                pod,
                ms: random.between(jobs.runs_s.0 * 1000, jobs.runs_s.1 * 1000),
            });
            let wait = random.between(0, 2 * jobs.every_s * 1000).max(100);
            if let Some(next) = self.next_job.get_mut(at) {
                *next = after(now, wait);
            }
        }
        runs
    }

    fn create_pod(
        &mut self,
        owner: &str,
        kind: &str,
        template: &Value,
        store: &mut ApiServer,
        now: Timestamp,
    ) -> PodKey {
        self.serial += 1;
        let key = PodKey::new(NAMESPACE, format!("{owner}-{}", self.serial));
        owned_pod(&key, owner, kind, template, store, now);
        key
    }
}

/// Creates the pod of a workload.
fn owned_pod(
    key: &PodKey,
    owner: &str,
    kind: &str,
    template: &Value,
    store: &mut ApiServer,
    now: Timestamp,
) {
    let pod = pod_of(key, owner, kind, template);
    create(store, ObjectKey::Pod(key.clone()), pod, now);
}

/// The pod of a workload.
fn pod_of(key: &PodKey, owner: &str, kind: &str, template: &Value) -> Value {
    let mut pod = template.clone();
    pod["metadata"]["name"] = json!(&*key.name);
    pod["metadata"]["namespace"] = json!(&*key.namespace);
    pod["metadata"]["ownerReferences"] = json!([{ "apiVersion": "apps/v1", "kind": kind, "name": owner, "uid": format!("owner-{owner}"), "controller": true }]);
    pod["status"] = json!({ "phase": "Pending" });
    pod
}

/// Creates a planned pod now.
pub(crate) fn create_planned(key: PodKey, pod: Value, store: &mut ApiServer, now: Timestamp) {
    create(store, ObjectKey::Pod(key), pod, now);
}

/// Name of the object that owns a pod.
pub(super) fn owner(pod: &Value) -> Option<&str> {
    pod.get("metadata")?
        .get("ownerReferences")?
        .get(0)?
        .get("name")?
        .as_str()
}

/// The node that a pod is bound to.
pub(super) fn node_of(pod: &Value) -> Option<&str> {
    pod.get("spec")?.get("nodeName")?.as_str()
}

/// Deletes the claims of deleted NodePools, as the garbage collector does by owner reference.
fn collect_garbage(store: &mut ApiServer, now: Timestamp) {
    let lost: Vec<ObjectKey> = store
        .iter()
        .filter(|(key, claim)| {
            matches!(key, ObjectKey::Claim(_))
                && !is_deleting(claim)
                && owner(claim)
                    .is_some_and(|pool| store.get(&ObjectKey::Pool(pool.into())).is_none())
        })
        .map(|(key, _)| key.clone())
        .collect();
    for key in lost {
        delete(store, &key, now);
    }
}

pub(super) fn is_running(pod: &Value) -> bool {
    let phase = pod.get("status").and_then(|status| status.get("phase"));
    phase.and_then(Value::as_str) == Some("Running")
}

/// It runs, and no condition says that it is not ready.
pub(crate) fn is_healthy(pod: &Value) -> bool {
    let conditions = pod.pointer("/status/conditions").and_then(Value::as_array);
    let is_unready = |each: &Value| each["type"] == "Ready" && each["status"] != "True";
    is_running(pod) && !conditions.into_iter().flatten().any(is_unready)
}

/// The Deployment as an object with its size.
fn set_object(deployment: &Deployment, replicas: usize, store: &mut ApiServer, now: Timestamp) {
    let key = ObjectKey::Deployment(NamespacedName::new(NAMESPACE, deployment.name.as_str()));
    let replicas = json!(replicas);
    let Some(object) = store.get(&key) else {
        let object = json!({
            "metadata": { "name": deployment.name, "namespace": NAMESPACE, "generation": 1 },
            "spec": { "replicas": replicas, "template": deployment.template },
        });
        create(store, key, object, now);
        return;
    };
    if object.pointer("/spec/replicas") != Some(&replicas) {
        let mut object = object.clone();
        object["spec"]["replicas"] = replicas;
        store.put(key, object);
    }
}

/// Creates an object whose name only these controllers use; an existing object is the desired one.
pub(super) fn create(store: &mut ApiServer, key: ObjectKey, value: Value, now: Timestamp) {
    if store.get(&key).is_none() && store.create(key, value, now).is_err() {
        debug_assert!(false, "a key that is not there cannot already exist");
    }
}

/// Deletes an object; a missing object is the desired state.
fn delete(store: &mut ApiServer, key: &ObjectKey, now: Timestamp) {
    if store.get(key).is_some() && store.delete(key, None, now).is_err() {
        debug_assert!(false, "a key that is there can be deleted");
    }
}
