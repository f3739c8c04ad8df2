//! Workloads that are applied: the pods that their controllers would create and delete.
//!
//! Pods that ask for what the template asks for stay; others are replaced, as by a rolling update that has ended. New pods are pending.

use std::collections::BTreeMap;

use mortise_apis::k8s;
use mortise_apis::names::{NamespacedName, PodKey};
use mortise_state::pods::Selector;
use mortise_state::resource_kinds::{Object, ObjectKey, ObjectKind};
use serde_json::{Value, json};

use super::manifests::key_of;
use crate::manifest_error::ManifestError;
use crate::pod_budget::desired_healthy;
use crate::recorded_cluster::RecordedCluster;

/// Kinds of workloads.
pub(super) const KINDS: [&str; 3] = ["Deployment", "ReplicaSet", "StatefulSet"];
/// Most pods of one workload.
const MOST: u64 = 100_000;

/// A workload of a manifest.
pub(super) struct Workload<'a> {
    key: NamespacedName,
    kind: &'a str,
    replicas: usize,
    template: &'a Value,
    labels: BTreeMap<&'a str, &'a str>,
}

impl<'a> Workload<'a> {
    /// Reads what its pods are made from.
    pub(super) fn new(manifest: &'a Value, namespace: &str) -> Result<Self, ManifestError> {
        let replicas = match manifest.pointer("/spec/replicas") {
            None => Some(1),
            Some(value) => value.as_u64().filter(|replicas| *replicas <= MOST),
        };
        let replicas = replicas.and_then(|replicas| usize::try_from(replicas).ok());
        let replicas = replicas.ok_or_else(|| {
            let problem = format!("must be a whole number from 0 to {MOST}");
            ManifestError::new("spec.replicas", problem)
        })?;
        let template = manifest.pointer("/spec/template");
        let has_containers = manifest
            .pointer("/spec/template/spec/containers")
            .is_some_and(Value::is_array);
        let template = template.filter(|_| has_containers).ok_or_else(|| {
            ManifestError::new(
                "spec.template.spec.containers",
                "missing: a pod needs containers",
            )
        })?;
        let labels = template
            .pointer("/metadata/labels")
            .and_then(Value::as_object);
        let labels: BTreeMap<&str, &str> = labels
            .into_iter()
            .flatten()
            .filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)))
            .collect();
        if labels.is_empty() {
            let problem = "missing: pods of the workload are found by them";
            return Err(ManifestError::new("spec.template.metadata.labels", problem));
        }
        let selector = manifest.pointer("/spec/selector/matchLabels");
        let selector = selector.and_then(Value::as_object);
        let selected: BTreeMap<&str, &str> = selector
            .into_iter()
            .flatten()
            .filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)))
            .collect();
        if let Some((key, value)) = selected
            .iter()
            .find(|(key, value)| labels.get(*key) != Some(value))
        {
            let problem = format!("{key}={value} must be a label of the template");
            return Err(ManifestError::new("spec.selector.matchLabels", problem));
        }
        Ok(Self {
            key: key_of(manifest, namespace),
            kind: manifest
                .get("kind")
                .and_then(Value::as_str)
                .unwrap_or_default(),
            replicas,
            template,
            labels: if selected.is_empty() {
                labels
            } else {
                selected
            },
        })
    }

    /// Creates and deletes pods.
    pub(super) fn apply(&self, cluster: &mut RecordedCluster) -> Result<(), ManifestError> {
        let pod = |name: &str| -> Result<k8s::Pod, ManifestError> {
            let object = ObjectKind::Pod.deserialize(self.pod(name, cluster));
            match object.map_err(|error| ManifestError::new("spec.template", error.to_string()))? {
                Object::Pod(pod) => Ok(*pod),
                other => Err(ManifestError::new(
                    "spec.template",
                    format!("{other:?} is no pod"),
                )),
            }
        };
        let sample = pod(&self.key.name)?;
        let (mut stay, mut go) = (Vec::new(), Vec::new());
        for (key, object) in &cluster.objects {
            let ObjectKey::Pod(name) = key else { break };
            let Object::Pod(pod) = object else { continue };
            if name.namespace != self.key.namespace || !self.owns(pod) {
                continue;
            }
            if asks_the_same(pod, &sample) {
                stay.push((pod.spec.node_name.is_none(), key.clone()));
            } else {
                go.push(key.clone());
            }
        }
        // Pods without a node go first, and the last by name.
        stay.sort();
        let first = stay
            .iter()
            .position(|(waits, _)| *waits)
            .unwrap_or(stay.len());
        let surplus = stay.len().saturating_sub(self.replicas);
        let waiting = stay.split_off(first);
        let mut ordered: Vec<ObjectKey> = waiting.into_iter().map(|(_, key)| key).collect();
        ordered.extend(stay.iter().rev().map(|(_, key)| key.clone()));
        let kept = ordered.len() - surplus;
        go.extend(ordered.into_iter().take(surplus));
        let new = (kept..self.replicas).map(|nth| {
            let name = format!("{}-what-if-{nth}", self.key.name);
            pod(&name)
        });
        let new: Vec<k8s::Pod> = new.collect::<Result<_, _>>()?;
        for key in go {
            cluster.objects.remove(&key);
        }
        for pod in new {
            cluster.add(pod.into());
        }
        Ok(())
    }

    fn owns(&self, pod: &k8s::Pod) -> bool {
        let labels = pod.metadata.labels.as_ref();
        self.labels.iter().all(|(key, value)| {
            let of_pod = labels.and_then(|labels| labels.get(*key));
            of_pod.is_some_and(|label| label == value)
        })
    }

    /// A pending pod.
    fn pod(&self, name: &str, cluster: &RecordedCluster) -> Value {
        let mut pod = self.template.clone();
        pod["apiVersion"] = json!("v1");
        pod["kind"] = json!("Pod");
        let namespace = &*self.key.namespace;
        pod["metadata"]["name"] = json!(name);
        pod["metadata"]["namespace"] = json!(namespace);
        pod["metadata"]["uid"] = json!(format!("what-if-{namespace}-{name}"));
        pod["metadata"]["creationTimestamp"] = json!(cluster.taken_at.to_string());
        pod["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "apps/v1", "kind": self.kind, "name": &*self.key.name,
            "uid": format!("what-if-{namespace}-{}", self.key.name), "controller": true,
        }]);
        pod["status"] = json!({ "phase": "Pending" });
        pod
    }
}

/// Whether two pods have containers of the same size.
fn asks_the_same(one: &k8s::Pod, other: &k8s::Pod) -> bool {
    let asks = |pod: &k8s::Pod| -> Vec<(String, k8s::ResourceList)> {
        let all = pod.spec.containers.iter();
        all.map(|each| (each.name.clone(), each.resources.requests.clone()))
            .collect()
    };
    asks(one) == asks(other)
}

/// Counts what a disruption budget allows, as its controller does from the pods that it selects.
pub(super) fn count_budget(cluster: &mut RecordedCluster, name: &NamespacedName) {
    let key = ObjectKey::Pdb(name.clone());
    let Some(Object::Pdb(budget)) = cluster.objects.get(&key) else {
        return;
    };
    let selector = budget.spec.selector.as_ref().map(Selector::new);
    let pods = cluster
        .objects
        .iter()
        .filter_map(|(key, object)| match (key, object) {
            (ObjectKey::Pod(PodKey { namespace, .. }), Object::Pod(pod))
                if *namespace == name.namespace =>
            {
                Some(pod)
            }
            _ => None,
        });
    let selected: Vec<bool> = pods
        .filter(|pod| {
            let labels = pod.metadata.labels.as_ref();
            let label = |key: &str| labels?.get(key).map(String::as_str);
            selector
                .as_ref()
                .is_some_and(|selector| selector.matches(label))
        })
        .map(|pod| {
            let mut conditions = pod.status.conditions.iter();
            conditions.any(|each| each.type_ == "Ready" && each.status == "True")
        })
        .collect();
    let count = |number: usize| i32::try_from(number).unwrap_or(i32::MAX);
    let (expected, healthy) = (
        count(selected.len()),
        selected.iter().filter(|ready| **ready),
    );
    let healthy = count(healthy.count());
    let desired = desired_healthy(budget, expected);
    if let Some(Object::Pdb(budget)) = cluster.objects.get_mut(&key) {
        let status = &mut budget.status;
        status.expected_pods = expected;
        status.current_healthy = healthy;
        status.desired_healthy = desired.max(0);
        status.disruptions_allowed = (healthy - status.desired_healthy).max(0);
        status.observed_generation = budget.metadata.generation;
    }
}
