//! Virtual kubelets: nodes appear, become ready, run and stop pods, and vanish.

use mortise_core::labels;
use mortise_core::names::{NodeName, PodKey, ProviderId};
use mortise_core::resource_kinds::ObjectKey;
use serde_json::{Value, json};

use crate::api_server::{has_finalizers, is_going};
use crate::simulation::{Action, Simulation};

/// The Node's name: the instance id, as clouds do.
fn node_name(id: &ProviderId) -> NodeName {
    let instance = id.rsplit('/').next().unwrap_or_default();
    NodeName::from(format!("node-{}", instance.trim_start_matches("i-")))
}

impl Simulation {
    pub(crate) fn node_appears(&mut self, id: &ProviderId) {
        let Some(machine) = self
            .cloud
            .machine(id)
            .cloned()
            .filter(|_| !self.images_are_bad)
        else {
            return;
        };
        let name = node_name(id);
        let claim = self
            .store
            .get(&ObjectKey::Claim(machine.claim.as_str().into()));
        let startup = claim
            .and_then(|claim| claim.pointer("/spec/startupTaints"))
            .cloned();
        let mut taints = vec![
            json!({ "key": labels::UNREGISTERED_TAINT, "effect": "NoExecute" }),
            json!({ "key": labels::NOT_READY_TAINT, "effect": "NoSchedule" }),
        ];
        taints.extend(
            startup
                .as_ref()
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .cloned(),
        );
        let mut node_labels = machine.labels.clone();
        node_labels.insert(labels::HOSTNAME.to_owned(), name.to_string());
        let mut allocatable = machine.instance_type.allocatable();
        for amount in [&mut allocatable.cpu, &mut allocatable.memory] {
            *amount -= *amount / 100 * self.withheld;
        }
        let node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": { "name": name.as_str(), "labels": node_labels },
            "spec": { "providerID": id.as_str(), "taints": taints },
            "status": {
                "capacity": machine.instance_type.capacity.to_api(),
                "allocatable": allocatable.to_api(),
                "conditions": [{ "type": "Ready", "status": "False", "reason": "KubeletNotReady", "lastTransitionTime": self.now().to_string() }],
            },
        });
        let key = ObjectKey::Node(name);
        if self.store.get(&key).is_none()
            && let Err(error) = self.store.create(key, node, self.now())
        {
            let text = format!("{}: node of {id} was not created: {error}", self.now());
            self.stats.violations.push(text);
        }
        let ms = self.rng.millis(3_000, 9_000);
        self.in_ms(ms, Action::NodeReady(id.clone()));
    }

    pub(crate) fn node_ready(&mut self, id: &ProviderId) {
        let key = ObjectKey::Node(node_name(id));
        let Some(node) = self.store.get(&key).cloned() else {
            return;
        };
        let without: Vec<Value> = node
            .pointer("/spec/taints")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter(|taint| {
                taint.get("key").and_then(Value::as_str) != Some(labels::NOT_READY_TAINT)
            })
            .cloned()
            .collect();
        let ready = json!([{ "type": "Ready", "status": "True", "reason": "KubeletReady", "lastTransitionTime": self.now().to_string() }]);
        self.write(
            &key,
            &json!({ "spec": { "taints": without }, "status": { "conditions": ready } }),
        );
    }

    pub(crate) fn machine_gone(&mut self, id: &ProviderId) {
        if self.cloud.remove(id).is_none() {
            return;
        }
        self.stats.nodes_removed += 1;
        let name = node_name(id);
        let key = ObjectKey::Node(name.clone());
        let lost = json!([{ "type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "lastTransitionTime": self.now().to_string() }]);
        self.write(&key, &json!({ "status": { "conditions": lost } }));
        // A Node that nobody has put a finalizer on is nobody's but the cloud's: its node lifecycle controller collects it.
        // One that came up while its claim was already going is like that.
        let now = self.now();
        if self
            .store
            .get(&key)
            .is_some_and(|node| !has_finalizers(node))
            && let Err(error) = self.store.delete(&key, None, now)
        {
            let text = format!("{now}: {key:?} was not collected: {error}");
            self.stats.violations.push(text);
        }
        let pods: Vec<ObjectKey> = self
            .store
            .iter()
            .filter(|(key, pod)| {
                matches!(key, ObjectKey::Pod(_))
                    && pod.pointer("/spec/nodeName").and_then(Value::as_str) == Some(name.as_str())
            })
            .map(|(key, _)| key.clone())
            .collect();
        for pod in pods {
            self.store.erase(&pod);
        }
    }

    pub(crate) fn pod_runs(&mut self, pod: &PodKey) {
        let key = ObjectKey::Pod(pod.clone());
        if self.store.get(&key).is_none_or(is_going) {
            return;
        }
        let now = self.now().to_string();
        let conditions = json!([{ "type": "PodScheduled", "status": "True", "lastTransitionTime": now }, { "type": "Ready", "status": "True", "lastTransitionTime": now }]);
        self.write(&key, &json!({ "status": { "phase": "Running", "startTime": now, "conditions": conditions } }));
        if let Some(ms) = self.job_run(pod) {
            self.in_ms(ms, Action::PodDone(pod.clone()));
        }
    }

    pub(crate) fn pod_done(&mut self, pod: &PodKey) {
        let key = ObjectKey::Pod(pod.clone());
        if self.store.get(&key).is_some() {
            self.write(&key, &json!({ "status": { "phase": "Succeeded" } }));
            self.store.erase(&key);
        }
    }

    pub(crate) fn pod_stopped(&mut self, pod: &PodKey, uid: &str) {
        let key = ObjectKey::Pod(pod.clone());
        let same = self
            .store
            .get(&key)
            .is_some_and(|pod| pod.pointer("/metadata/uid").and_then(Value::as_str) == Some(uid));
        if same {
            self.store.erase(&key);
        }
    }

    /// What kubelets notice on their rounds: DaemonSet pods that were put on them, and pods that somebody deleted.
    pub(crate) fn kubelets(&mut self) {
        let mut start = Vec::new();
        let mut stop = Vec::new();
        for (name, pod) in self.store.pods() {
            if is_going(pod) {
                let uid = pod["metadata"]["uid"].as_str().unwrap_or_default();
                stop.push((name.clone(), uid.to_owned()));
            } else if pod["status"]["phase"] == "Pending"
                && pod["metadata"]["ownerReferences"][0]["kind"] == "DaemonSet"
            {
                start.push(name.clone());
            }
        }
        for pod in start {
            self.pod_runs(&pod);
        }
        for (pod, uid) in stop {
            self.in_ms(2_000, Action::PodStopped(pod, uid));
        }
    }
}
