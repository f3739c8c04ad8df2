//! A recorded cluster as a scenario: its cloud, its NodePools and policies, and the workloads whose pods it has.
//!
//! A recorded cluster has pods, a scenario has workloads: pods of one owner become the workload that would create them, with as many
//! replicas.
//!
//! | what | where |
//! |---|---|
//! | pods by the workload that owns them, and those that are left out | `owners.rs` |
//! | a pod as a template: labels, selectors, volumes | `template.rs` |
//! | disruption budgets of a workload | `budgets.rs` |
//! | instance types and prices, by node class | `cloud.rs` |
//!
//! Invariant: a scenario has one namespace, so a workload is called `<namespace>.<name>`, its pods have their namespace as a label, and
//! every selector asks for it: pods of two namespaces never become neighbours because their labels are equal.

mod budgets;
mod cloud;
mod owners;
mod template;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use mortise_apis::k8s::PodTemplate;
use mortise_apis::labels::{NODEPOOL_HASH, NODEPOOL_HASH_VERSION};
use mortise_apis::names::NamespacedName;
use mortise_state::resource_kinds::{Object, ObjectKey};
use serde::Serialize;
use serde_json::{Value, json};

use self::owners::{LeftOut, Owned, WorkloadKind};
use self::template::Templates;
use crate::recorded_cluster::RecordedCluster;
use crate::scenario::{RUN_TIME, SimulatedCloud, check_buffer};

/// Label of the pods of a workload: its name in the scenario.
const WORKLOAD_LABEL: &str = "mortise.sh/simulated-workload";
/// How long a pod runs that would end by itself, at a time that is not known: as long as the longest scenario.
const RUNS: &str = "8784h";
/// Annotations of a NodePool that its controller writes.
const WRITTEN: [&str; 2] = [NODEPOOL_HASH, NODEPOOL_HASH_VERSION];

/// A recorded cluster as a scenario, without its nodes.
#[derive(Clone, Debug)]
pub struct RecordedScenario {
    /// The objects.
    pub documents: Vec<Value>,
    /// What nodes are launched from.
    pub cloud: SimulatedCloud,
    /// What the cluster has and the scenario does not, each as half a sentence: `4 pods that ...`.
    pub left_out: Vec<String>,
}

impl RecordedScenario {
    /// What a recorded cluster begins with.
    ///
    /// # Errors
    /// An object cannot be written, which is a bug.
    ///
    /// # Cost
    /// One pass over the objects; 100,000 pods of 1,000 workloads take a fraction of a second.
    pub fn of(cluster: &RecordedCluster) -> Result<Self, serde_json::Error> {
        let mut left_out: BTreeMap<LeftOut, usize> = BTreeMap::new();
        let templates = Templates::new(cluster);
        let mut documents = Vec::new();
        for object in cluster.objects.values() {
            if let Object::Pool(pool) = object
                && !cluster.catalogs.contains_key(&pool.node_class_key())
            {
                *left_out.entry(LeftOut::Pool).or_default() += 1;
                continue;
            }
            if let Object::PodGroup(_) | Object::VolcanoPodGroup(_) = object {
                *left_out.entry(LeftOut::Group).or_default() += 1;
            }
            documents.extend(document(object, &templates)?);
        }
        for owned in owners::owned(cluster, &mut left_out) {
            documents.extend(budgets::budget(cluster, &owned));
            documents.push(workload(&owned, &templates)?);
        }
        drop_unmet_buffers(&mut documents, &mut left_out);
        let left_out = left_out.into_iter();
        Ok(Self {
            documents,
            cloud: cloud::cloud(cluster),
            left_out: left_out.map(|(what, count)| what.said(count)).collect(),
        })
    }
}

/// An object that is as it is, names and references aside; `None` for what is made from others, or is of no scenario.
fn document(
    object: &Object,
    templates: &Templates<'_>,
) -> Result<Option<Value>, serde_json::Error> {
    Ok(Some(match (object.key(), object) {
        (ObjectKey::Pool(name), Object::Pool(pool)) => {
            let mut document = manifest(&name, &**pool)?;
            if let Some(Value::Object(all)) = document.pointer_mut("/metadata/annotations") {
                all.retain(|key, _| !WRITTEN.contains(&key.as_str()));
            }
            document
        }
        (ObjectKey::CoschedulingPodGroup(name), Object::CoschedulingPodGroup(group)) => {
            let mut document = manifest(&joined(&name), &**group)?;
            // What is less than one pod counts as one, as for coscheduling.
            let size = group.spec.min_member.max(1);
            document["spec"] = json!({ "minMember": size });
            document
        }
        (ObjectKey::Policy(name), Object::Policy(policy)) => manifest(&name, &**policy)?,
        (ObjectKey::Overlay(name), Object::Overlay(overlay)) => manifest(&name, &**overlay)?,
        (ObjectKey::DaemonSet(name), Object::DaemonSet(set)) => {
            let mut document = manifest(&joined(&name), &**set)?;
            let PodTemplate { metadata, spec } = &set.spec.template;
            let template = templates.scoped(&name.namespace, metadata, spec)?;
            document["spec"] = json!({ "template": template });
            document
        }
        (ObjectKey::PodTemplate(name), Object::PodTemplate(stored)) => {
            let mut document = manifest(&joined(&name), &**stored)?;
            let PodTemplate { metadata, spec } = &stored.template;
            document["template"] = templates.scoped(&name.namespace, metadata, spec)?;
            document
        }
        (ObjectKey::Buffer(name), Object::Buffer(buffer)) => {
            let mut document = manifest(&joined(&name), &**buffer)?;
            for reference in ["scalableRef", "podTemplateRef"] {
                let target = document.pointer_mut(&format!("/spec/{reference}/name"));
                if let Some(Value::String(target)) = target {
                    let of = NamespacedName::new(Arc::clone(&name.namespace), &**target);
                    *target = joined(&of);
                }
            }
            document
        }
        _ => return Ok(None),
    }))
}

/// The workload as its user would have written it.
fn workload(owned: &Owned<'_>, templates: &Templates<'_>) -> Result<Value, serde_json::Error> {
    let (mut template, claims) = templates.of_pod(owned)?;
    let spec = match owned.kind {
        WorkloadKind::Deployment => json!({ "replicas": owned.pods.len(), "template": template }),
        WorkloadKind::StatefulSet => json!({
            "replicas": owned.pods.len(), "template": template, "volumeClaimTemplates": claims,
        }),
        WorkloadKind::Job => {
            template["metadata"]["annotations"][RUN_TIME] = json!(RUNS);
            template["spec"]["restartPolicy"] = json!("Never");
            json!({
                "completions": owned.pods.len(), "parallelism": owned.pods.len(), "template": template,
            })
        }
    };
    Ok(json!({
        "apiVersion": owned.kind.api_version(),
        "kind": owned.kind.name(),
        "metadata": { "name": owned.simulated_name },
        "spec": spec,
    }))
}

/// An object without what the API server and controllers wrote.
fn manifest(name: &str, object: &impl Serialize) -> Result<Value, serde_json::Error> {
    let mut written = serde_json::to_value(object)?;
    let mut document = json!({ "metadata": { "name": name } });
    for field in ["labels", "annotations"] {
        let given = written.pointer_mut(&format!("/metadata/{field}"));
        if let Some(given) = given.map(Value::take) {
            document["metadata"][field] = given;
        }
    }
    for field in ["apiVersion", "kind", "spec"] {
        if let Some(given) = written.get_mut(field).map(Value::take) {
            document[field] = given;
        }
    }
    Ok(document)
}

/// Leaves out buffers of what the scenario does not have.
fn drop_unmet_buffers(documents: &mut Vec<Value>, left_out: &mut BTreeMap<LeftOut, usize>) {
    let of_kind = |kind: &str| -> Vec<String> {
        let all = documents.iter().filter(|each| each["kind"] == kind);
        all.filter_map(|each| Some(each["metadata"]["name"].as_str()?.to_owned()))
            .collect()
    };
    let (deployments, templates) = (of_kind("Deployment"), of_kind("PodTemplate"));
    let deployments: Vec<&str> = deployments.iter().map(String::as_str).collect();
    let templates: Vec<&str> = templates.iter().map(String::as_str).collect();
    documents.retain(|document| {
        let is_met = document["kind"] != "CapacityBuffer"
            || check_buffer(document, "", &deployments, &templates).is_ok();
        if !is_met {
            *left_out.entry(LeftOut::Buffer).or_default() += 1;
        }
        is_met
    });
}

/// The name of an object of a namespace in the scenario. No namespace has a dot, so that two names never become one.
fn joined(name: &NamespacedName) -> String {
    format!("{}.{}", name.namespace, name.name)
}
