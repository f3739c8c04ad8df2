//! The scheduler as a process: when it runs the next cycle, and what it writes.

use std::sync::Arc;

use jiff::Timestamp;
use mortise_apis::names::{NodeName, PodKey, Uid};
use mortise_apis::values::after;
use mortise_state::resource_kinds::ObjectKey;
use mortise_state::snapshot::Snapshot;
use serde_json::json;

use super::Cluster;
use super::api_server::age_ms;
use super::effects::kind_of;
use super::extender::Extender;
use super::pod_start::draw_start_ms;
use super::scheduler::{CycleResult, Scheduler};
use super::workload_controllers::daemon_sets::is_daemon;
use super::workload_controllers::owner;
use super::zonal_volumes::bind_claims;
use crate::clock::{Action, Clock, StoreEvent};

/// Duration of a scheduling cycle.
const CYCLE_MS: i64 = 10;

/// The scheduler, its extender, and the time of the next cycle.
#[derive(Default)]
pub(crate) struct KubeScheduler {
    scheduler: Scheduler,
    extender: Option<Box<dyn Extender>>,
    next_cycle: Option<Timestamp>,
    /// Generation of the last observed snapshot of the service.
    generation: u64,
    names_nodes: bool,
}

impl KubeScheduler {
    /// Pods that have no node, those of DaemonSets included.
    pub(crate) fn waiting(&self) -> usize {
        self.scheduler.waiting()
    }

    /// Configures the extender.
    pub(crate) fn set_extender(&mut self, extender: Box<dyn Extender>) {
        self.extender = Some(extender);
    }

    /// Messages about unschedulable pods name the nodes instead of counting them: each rejection on another node is visible.
    pub(crate) const fn name_nodes(&mut self, is_on: bool) {
        self.names_nodes = is_on;
    }

    /// Observes changes of objects, in order.
    pub(crate) fn observe(&mut self, events: &[StoreEvent], clock: &mut Clock) {
        if !events.is_empty() {
            self.scheduler.observe(events, clock.now());
            self.plan(clock);
        }
    }

    /// Observes a new snapshot of the service: the results of its extender may change.
    pub(crate) fn observe_snapshot(&mut self, generation: u64, clock: &mut Clock) {
        if generation != self.generation {
            self.generation = generation;
            self.plan(clock);
        }
    }

    fn plan(&mut self, clock: &mut Clock) {
        let now = clock.now();
        if let Some(due) = self.scheduler.next_due(now) {
            let at = due.max(after(now, CYCLE_MS));
            if self
                .next_cycle
                .is_none_or(|planned| planned > at || planned < now)
            {
                self.next_cycle = Some(at);
                clock.at(at, Action::Schedule);
            }
        }
    }

    /// From now on, or no longer, pods of groups are bound one by one: a scheduler without coscheduling.
    pub(crate) const fn ignore_groups(&mut self, are_ignored: bool) {
        self.scheduler.ignore_groups(are_ignored);
    }

    /// Schedules the next pod, with its group if it has one. Returns the pods for which an extender left a node.
    pub(crate) fn cycle(&mut self, snapshot: &Arc<Snapshot>, cluster: &mut Cluster) -> Vec<Uid> {
        self.next_cycle = None;
        let body = |key: &PodKey| {
            let object = cluster.api_server.get(&ObjectKey::Pod(key.clone()));
            object.and_then(|value| serde_json::from_value(value.clone()).ok())
        };
        let extender = self.extender.as_deref();
        let result = self
            .scheduler
            .cycle(snapshot, cluster.now(), extender, body);
        let mut advised = Vec::new();
        match result {
            Some(CycleResult::Bind(pod, uid, node)) => {
                advised.extend(extender.is_some().then_some(uid));
                bind(pod, &node, cluster);
            }
            Some(CycleResult::Unschedulable(pod)) => {
                let message = self.message(snapshot, cluster);
                reject(pod, &message, cluster);
            }
            Some(CycleResult::Group(group)) => {
                for (pod, _, node) in group.bound {
                    bind(pod, &node, cluster);
                }
                if !group.rejected.is_empty() {
                    let message = self.message(snapshot, cluster);
                    for pod in group.rejected {
                        reject(pod, &message, cluster);
                    }
                }
                advised = group.advised;
            }
            None => {}
        }
        self.plan(&mut cluster.clock);
        advised
    }

    /// What is said of a pod that is not bound.
    fn message(&self, snapshot: &Snapshot, cluster: &Cluster) -> String {
        if self.names_nodes {
            message_with_names(cluster)
        } else {
            message_with_count(snapshot)
        }
    }
}

/// Binds a pod to a node, whose kubelet then starts it.
fn bind(pod: PodKey, node: &NodeName, cluster: &mut Cluster) {
    count_placed(&pod, node, cluster);
    bind_claims(&pod, node, cluster);
    let condition = json!([{ "type": "PodScheduled", "status": "True", "lastTransitionTime": cluster.now().to_string() }]);
    cluster.write(
        &ObjectKey::Pod(pod.clone()),
        &json!({ "spec": { "nodeName": node.as_str() }, "status": { "conditions": condition } }),
    );
    let ms = draw_start_ms(&pod, node, cluster);
    cluster.clock.in_ms(ms, Action::RunPod(pod));
}

fn count_placed(key: &PodKey, node: &NodeName, cluster: &mut Cluster) {
    let now = cluster.now();
    let object = cluster.api_server.get(&ObjectKey::Pod(key.clone()));
    let waited_s = object.map_or(0, |pod| age_ms(pod, now) / 1000);
    if object.is_some_and(is_daemon) {
        return cluster.scores.daemon_pod_placed(waited_s);
    }
    let stats = &mut cluster.stats;
    stats.pods_placed += 1;
    stats.longest_pending_s = stats.longest_pending_s.max(waited_s);
    cluster.scores.pod_placed(waited_s);
    cluster.scores.node_used(node);
    let on = cluster.api_server.get(&ObjectKey::Node(node.clone()));
    if let (Some(workload), Some(kind)) = (object.and_then(owner), on.and_then(kind_of)) {
        cluster.scores.moved.arrive(workload, kind, now);
    }
}

fn message_with_count(snapshot: &Snapshot) -> String {
    let nodes = snapshot.nodes.values().filter(|node| node.node.is_some());
    format!("0/{} nodes are available", nodes.count())
}

fn message_with_names(cluster: &Cluster) -> String {
    let names = cluster.api_server.iter().filter_map(|(key, _)| match key {
        ObjectKey::Node(name) => Some(name.as_str()),
        _ => None,
    });
    let names: Vec<&str> = names.collect();
    format!("no node of {} is suitable", names.join(" "))
}

/// Writes the condition of an unschedulable pod, as kube-scheduler does: only when the message changes.
fn reject(pod: PodKey, message: &str, cluster: &mut Cluster) {
    let key = ObjectKey::Pod(pod);
    let said = cluster.api_server.get(&key);
    let said = said.and_then(|pod| pod.pointer("/status/conditions/0"));
    if said.is_some_and(|said| said["message"] == message) {
        return;
    }
    let since = said.filter(|said| said["status"] == "False");
    let since = since.map_or_else(
        || json!(cluster.now().to_string()),
        |said| said["lastTransitionTime"].clone(),
    );
    let condition = json!([{ "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message, "lastTransitionTime": since }]);
    cluster.write(&key, &json!({ "status": { "conditions": condition } }));
}
