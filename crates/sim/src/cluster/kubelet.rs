//! Virtual kubelets: they create Nodes, report them as ready, and run and stop pods.

use std::collections::BTreeMap;

use mortise_apis::labels;
use mortise_apis::names::{NodeName, PodKey, ProviderId};
use mortise_state::resource_kinds::ObjectKey;
use serde_json::{Value, json};

use super::Cluster;
use super::api_server::{has_finalizers, is_deleting};
use super::timing::StartTime;
use super::workload_controllers::daemon_sets::is_daemon;
use crate::clock::Action;

/// Name of the Node, derived from the instance id as clouds do.
pub(crate) fn node_name(id: &ProviderId) -> NodeName {
    let instance = id.rsplit('/').next().unwrap_or_default();
    match instance.strip_prefix("i-") {
        Some(number) => NodeName::from(format!("node-{number}")),
        None => NodeName::from(instance),
    }
}

/// The kubelets of all nodes.
#[derive(Debug, Default)]
pub(crate) struct Kubelets {
    /// Instances that start do not join as nodes.
    images_are_bad: bool,
    /// Of the instances that start from an image, the share in percent that never joins.
    failing_boots: BTreeMap<String, u64>,
    /// A taint that every node joins with, and how long it stays.
    boot_taint: Option<(Value, StartTime)>,
    /// Of the pods that start on instances of an image, the share in percent that never becomes ready.
    failing_pods: BTreeMap<String, u64>,
    /// How much less CPU and memory nodes have than their instance types, in percent.
    withheld: i64,
    /// Run time of job pods after their start, in milliseconds.
    job_durations: BTreeMap<PodKey, i64>,
}

impl Kubelets {
    /// Sets whether instances start without ever joining as nodes.
    pub(crate) const fn break_images(&mut self, are_bad: bool) {
        self.images_are_bad = are_bad;
    }

    /// Of the instances that start from an image from now on, this share in percent never joins as a node.
    pub(crate) fn fail_boots(&mut self, image: &str, percent: u64) {
        self.failing_boots.insert(image.to_owned(), percent);
    }

    /// Of the pods that start on instances of an image from now on, this share in percent never becomes ready.
    pub(crate) fn fail_pods(&mut self, image: &str, percent: u64) {
        self.failing_pods.insert(image.to_owned(), percent);
    }

    /// Nodes that join from now on have this taint, which a component of the node removes after a time.
    pub(crate) fn add_boot_taint(&mut self, taint: Value, stays: StartTime) {
        self.boot_taint = Some((taint, stays));
    }

    /// Nodes that join from now on have less CPU and memory than their instance types, by this percentage.
    pub(crate) const fn withhold_capacity(&mut self, percent: i64) {
        self.withheld = percent;
    }

    /// Sets the run time of a job pod after its start, in milliseconds.
    pub(crate) fn set_job_duration(&mut self, pod: PodKey, ms: i64) {
        self.job_durations.insert(pod, ms);
    }

    /// Job pods that have not started.
    pub(crate) fn unstarted_jobs(&self) -> impl Iterator<Item = &PodKey> {
        self.job_durations.keys()
    }

    pub(crate) fn create_node(&self, id: &ProviderId, cluster: &mut Cluster) {
        if self.images_are_bad {
            return;
        }
        let Some(instance) = cluster.cloud.instance(id).cloned() else {
            return;
        };
        let percent = self.failing_boots.get(&*instance.image).copied();
        // Without a share no number is drawn: the history is that of a cluster with good images.
        if percent.is_some_and(|percent| percent > 0 && cluster.clock.random.chance(percent * 10)) {
            return;
        }
        let name = node_name(id);
        let now = cluster.now();
        let claim = ObjectKey::Claim(instance.claim.as_str().into());
        let claim = cluster.api_server.get(&claim);
        let startup = claim
            .and_then(|claim| claim.pointer("/spec/startupTaints"))
            .and_then(Value::as_array);
        let mut taints = vec![
            json!({ "key": labels::UNREGISTERED_TAINT, "effect": "NoExecute" }),
            json!({ "key": labels::NOT_READY_TAINT, "effect": "NoSchedule" }),
        ];
        taints.extend(startup.into_iter().flatten().cloned());
        if let Some((taint, stays)) = &self.boot_taint {
            let ms = stays.draw(&mut cluster.clock.random);
            let key = taint["key"].as_str().unwrap_or_default().to_owned();
            let remove = Action::RemoveTaint(name.clone(), key);
            cluster.clock.in_ms(ms, remove);
            taints.retain(|each| each["key"] != taint["key"]);
            taints.push(taint.clone());
        }
        let mut node_labels = instance.labels.clone();
        node_labels.insert(labels::HOSTNAME.to_owned(), name.to_string());
        let mut allocatable = instance.instance_type.allocatable();
        for amount in [&mut allocatable.cpu, &mut allocatable.memory] {
            *amount -= *amount / 100 * self.withheld;
        }
        let node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": { "name": name.as_str(), "labels": node_labels },
            "spec": { "providerID": id.as_str(), "taints": taints },
            "status": {
                "capacity": instance.instance_type.capacity.to_api(),
                "allocatable": allocatable.to_api(),
                "conditions": [{ "type": "Ready", "status": "False", "reason": "KubeletNotReady", "lastTransitionTime": now.to_string() }],
            },
        });
        let key = ObjectKey::Node(name);
        if cluster.api_server.get(&key).is_none()
            && let Err(error) = cluster.api_server.create(key, node, now)
        {
            cluster.violation(&format!("node of {id} was not created: {error}"));
        }
        let ms = cluster.clock.random.between(3_000, 9_000);
        cluster.clock.in_ms(ms, Action::MarkNodeReady(id.clone()));
    }

    pub(crate) fn run_pod(&mut self, pod: &PodKey, cluster: &mut Cluster) {
        let key = ObjectKey::Pod(pod.clone());
        // A pod of a StatefulSet has the name of the one before it, which was about to run.
        let has_no_node = |pod: &Value| pod["spec"]["nodeName"].is_null();
        let found = cluster.api_server.get(&key);
        let Some(found) = found.filter(|pod| !is_deleting(pod) && !has_no_node(pod)) else {
            return;
        };
        let node = found["spec"]["nodeName"].as_str().unwrap_or_default();
        let percent = self.failing_percent(node, cluster);
        // Without a share no number is drawn, as for boots.
        let fails = percent > 0 && cluster.clock.random.chance(percent * 10);
        let now = cluster.now().to_string();
        let ready = if fails {
            json!({ "type": "Ready", "status": "False", "reason": "ContainersNotReady", "lastTransitionTime": now })
        } else {
            json!({ "type": "Ready", "status": "True", "lastTransitionTime": now })
        };
        let conditions =
            json!([{ "type": "PodScheduled", "status": "True", "lastTransitionTime": now }, ready]);
        cluster.write(&key, &json!({ "status": { "phase": "Running", "startTime": now, "conditions": conditions } }));
        if fails {
            return;
        }
        if let Some(ms) = self.job_durations.remove(pod) {
            cluster.clock.in_ms(ms, Action::CompletePod(pod.clone()));
        }
    }

    /// Of the pods that start on a node, the share in percent that never becomes ready.
    fn failing_percent(&self, node: &str, cluster: &Cluster) -> u64 {
        if self.failing_pods.is_empty() {
            return 0;
        }
        let object = cluster.api_server.get(&ObjectKey::Node(node.into()));
        let id = object.and_then(|node| node.pointer("/spec/providerID")?.as_str());
        let image = id.and_then(|id| cluster.cloud.image(&ProviderId::from(id)));
        let percent = image.and_then(|image| self.failing_pods.get(&*image));
        percent.copied().unwrap_or(0)
    }

    /// Stops deleted pods.
    pub(crate) fn tick(cluster: &mut Cluster) {
        let store = &cluster.api_server;
        let deleted = store.pod_index().deleting().iter().filter_map(|name| {
            let pod = store.get(&ObjectKey::Pod(name.clone()))?;
            let uid = pod["metadata"]["uid"].as_str().unwrap_or_default();
            Some((name.clone(), uid.to_owned()))
        });
        let deleted: Vec<(PodKey, String)> = deleted.collect();
        for (pod, uid) in deleted {
            cluster
                .clock
                .in_ms(2_000, Action::RemoveStoppedPod(pod, uid));
        }
    }
}

pub(crate) fn remove_taint(name: &NodeName, taint: &str, cluster: &mut Cluster) {
    let key = ObjectKey::Node(name.clone());
    let Some(node) = cluster.api_server.get(&key) else {
        return;
    };
    let left = taints_without(node, taint);
    cluster.write(&key, &json!({ "spec": { "taints": left } }));
}

/// The taints of a node, except those with a key.
fn taints_without(node: &Value, key: &str) -> Vec<Value> {
    let taints = node.pointer("/spec/taints").and_then(Value::as_array);
    let left = taints.into_iter().flatten();
    left.filter(|taint| taint["key"] != key).cloned().collect()
}

pub(crate) fn mark_node_ready(id: &ProviderId, cluster: &mut Cluster) {
    let key = ObjectKey::Node(node_name(id));
    let Some(node) = cluster.api_server.get(&key) else {
        return;
    };
    let without = taints_without(node, labels::NOT_READY_TAINT);
    let ready = json!([{ "type": "Ready", "status": "True", "reason": "KubeletReady", "lastTransitionTime": cluster.now().to_string() }]);
    cluster.write(
        &key,
        &json!({ "spec": { "taints": without }, "status": { "conditions": ready } }),
    );
}

pub(crate) fn remove_instance(id: &ProviderId, cluster: &mut Cluster) {
    let Some(instance) = cluster.cloud.remove(id) else {
        return;
    };
    cluster.stats.nodes_removed += 1;
    let now = cluster.now();
    let name = node_name(id);
    cluster
        .scores
        .node_ended(instance.launched, now, Some(&name));
    cluster.images.remove(&name);
    let key = ObjectKey::Node(name.clone());
    let lost = json!([{ "type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "lastTransitionTime": now.to_string() }]);
    cluster.write(&key, &json!({ "status": { "conditions": lost } }));
    // The cloud's node lifecycle controller deletes a Node without finalizers, for example one that was created while its
    // claim was already being deleted.
    let node = cluster.api_server.get(&key);
    if node.is_some_and(|node| !has_finalizers(node))
        && let Err(error) = cluster.api_server.delete(&key, None, now)
    {
        cluster.violation(&format!("{key:?} was not collected: {error}"));
    }
    let pods = cluster.api_server.pods_on(name.as_str());
    let pods: Vec<ObjectKey> = pods.map(|(key, _)| key).collect();
    for pod in pods {
        let object = cluster.api_server.get(&pod);
        let is_workload = object.is_some_and(|pod| !is_daemon(pod) && !is_deleting(pod));
        // The instance was not terminated: the cloud took it back.
        if instance.terminates_at.is_none() && is_workload {
            cluster.scores.pod_reclaimed();
        }
        cluster.api_server.erase(&pod);
    }
}

pub(crate) fn complete_pod(pod: &PodKey, cluster: &mut Cluster) {
    let key = ObjectKey::Pod(pod.clone());
    if cluster.api_server.get(&key).is_some() {
        cluster.write(&key, &json!({ "status": { "phase": "Succeeded" } }));
        cluster.api_server.erase(&key);
    }
}

pub(crate) fn remove_stopped_pod(pod: &PodKey, uid: &str, cluster: &mut Cluster) {
    let key = ObjectKey::Pod(pod.clone());
    let is_same = cluster
        .api_server
        .get(&key)
        .is_some_and(|pod| pod.pointer("/metadata/uid").and_then(Value::as_str) == Some(uid));
    if is_same {
        cluster.api_server.erase(&key);
    }
}
