//! A pod as the template of its workload.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{NodeSelector, PodAffinityTerm};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    LabelSelector, LabelSelectorRequirement, ObjectMeta,
};
use mortise_apis::k8s::{Pod, PodSpec};
use mortise_apis::labels::{self, COSCHEDULING_GROUP};
use mortise_apis::names::NamespacedName;
use mortise_state::pods::Selector;
use mortise_state::resource_kinds::{Object, ObjectKey};
use serde_json::{Value, json};

use super::owners::{Owned, WorkloadKind};
use super::{WORKLOAD_LABEL, joined};
use crate::recorded_cluster::RecordedCluster;

/// Label of pods: their namespace in the recorded cluster.
const NAMESPACE_LABEL: &str = "mortise.sh/simulated-namespace";
/// Labels that each pod of a workload has for itself.
const OF_ONE_POD: [&str; 4] = [
    "apps.kubernetes.io/pod-index",
    "batch.kubernetes.io/job-completion-index",
    "controller-revision-hash",
    "statefulset.kubernetes.io/pod-name",
];

/// What templates need of the cluster.
pub(super) struct Templates<'a> {
    cluster: &'a RecordedCluster,
    /// Labels of the namespaces.
    namespaces: BTreeMap<&'a str, Option<&'a BTreeMap<String, String>>>,
}

impl<'a> Templates<'a> {
    pub(super) fn new(cluster: &'a RecordedCluster) -> Self {
        let objects = cluster.objects.iter();
        let namespaces = objects.filter_map(|(key, object)| match (key, object) {
            (ObjectKey::Namespace(name), Object::Namespace(namespace)) => {
                Some((&**name, namespace.metadata.labels.as_ref()))
            }
            _ => None,
        });
        Self {
            cluster,
            namespaces: namespaces.collect(),
        }
    }

    /// The template of a workload, and the volumes that each of its pods has for itself.
    pub(super) fn of_pod(
        &self,
        owned: &Owned<'_>,
    ) -> Result<(Value, Vec<Value>), serde_json::Error> {
        let Some(pod) = owned.newest() else {
            return Ok((Value::Null, Vec::new()));
        };
        let mut spec = pod.spec.clone();
        spec.node_name = None;
        let claims = self.own_volumes(owned, pod);
        if claims.is_empty()
            && let Some(zone) = self.zone_of_volumes(&owned.namespace, &spec)
        {
            let zones = &mut spec.node_selector;
            zones
                .entry(labels::TOPOLOGY_ZONE.to_owned())
                .or_insert(zone);
        }
        spec.volumes.clear();
        let mut template = self.scoped(&owned.namespace, &pod.metadata, &spec)?;
        template["metadata"]["labels"][WORKLOAD_LABEL] = json!(owned.simulated_name);
        Ok((template, claims))
    }

    /// A template whose pods are of a namespace, and whose selectors ask for it.
    pub(super) fn scoped(
        &self,
        namespace: &str,
        metadata: &ObjectMeta,
        spec: &PodSpec,
    ) -> Result<Value, serde_json::Error> {
        let mut spec = spec.clone();
        for constraint in &mut spec.topology_spread_constraints {
            if let Some(selector) = &mut constraint.label_selector {
                ask_for(selector, [namespace]);
            }
        }
        for term in affinity_terms(&mut spec) {
            self.scope(namespace, term);
        }
        let labels = metadata.labels.iter().flatten();
        let mut labels: BTreeMap<&str, &str> = labels
            .map(|(key, value)| (key.as_str(), value.as_str()))
            .filter(|(key, _)| !OF_ONE_POD.contains(key))
            .collect();
        labels.insert(NAMESPACE_LABEL, namespace);
        let group = labels.remove(COSCHEDULING_GROUP);
        let group = group.map(|name| NamespacedName::new(namespace, name));
        let is_recorded = |name: &NamespacedName| {
            let key = ObjectKey::CoschedulingPodGroup(name.clone());
            self.cluster.objects.contains_key(&key)
        };
        let group = group.filter(is_recorded).map(|name| joined(&name));
        if let Some(group) = &group {
            labels.insert(COSCHEDULING_GROUP, group);
        }
        Ok(json!({
            "metadata": {
                "labels": labels,
                "annotations": metadata.annotations.clone().unwrap_or_default(),
            },
            "spec": serde_json::to_value(spec)?,
        }))
    }

    /// Asks for the label of the namespaces that a term is about, instead of the namespaces.
    fn scope(&self, own: &str, term: &mut PodAffinityTerm) {
        let listed = term.namespaces.take().unwrap_or_default();
        let by_label = term.namespace_selector.take();
        let Some(selector) = &mut term.label_selector else {
            return;
        };
        let mut namespaces: BTreeSet<&str> = listed.iter().map(String::as_str).collect();
        if let Some(by_label) = &by_label {
            let is_all = *by_label == LabelSelector::default();
            if is_all {
                return;
            }
            let by_label = Selector::new(by_label);
            let meant = self.namespaces.iter().filter(|(_, labels)| {
                by_label.matches(|key| labels.and_then(|all| all.get(key)).map(String::as_str))
            });
            namespaces.extend(meant.map(|(name, _)| *name));
        } else if namespaces.is_empty() {
            namespaces.insert(own);
        }
        if namespaces.is_empty() {
            // Pods of no namespace are no pods.
            term.label_selector = None;
        } else {
            ask_for(selector, namespaces);
        }
    }

    /// The volumes of a StatefulSet that are made from its claim templates, as manifests of these.
    fn own_volumes(&self, owned: &Owned<'_>, pod: &Pod) -> Vec<Value> {
        if owned.kind != WorkloadKind::StatefulSet {
            return Vec::new();
        }
        let pod_name = pod.metadata.name.as_deref().unwrap_or_default();
        let volumes = pod.spec.volumes.iter().filter_map(|volume| {
            let claim = &volume.persistent_volume_claim.as_ref()?.claim_name;
            let is_own = *claim == format!("{}-{pod_name}", volume.name);
            is_own.then_some((&volume.name, claim))
        });
        let claims = volumes.filter_map(|(name, claim)| {
            let class = match self.claim(&owned.namespace, claim) {
                Some(Object::VolumeClaim(claim)) => claim.spec.storage_class_name.as_deref(),
                _ => None,
            };
            // Volumes without a class were made by hand, and no pod gets another one.
            (class != Some("")).then(|| match class {
                Some(class) => json!({
                    "metadata": { "name": name }, "spec": { "storageClassName": class },
                }),
                None => json!({ "metadata": { "name": name }, "spec": {} }),
            })
        });
        claims.collect()
    }

    /// The zone that the volumes of a pod are in, if they are in one.
    fn zone_of_volumes(&self, namespace: &str, spec: &PodSpec) -> Option<String> {
        let claims = spec
            .volumes
            .iter()
            .filter_map(|each| each.persistent_volume_claim.as_ref());
        let zones: BTreeSet<String> = claims
            .filter_map(|volume| {
                let Some(Object::VolumeClaim(claim)) = self.claim(namespace, &volume.claim_name)
                else {
                    return None;
                };
                let volume = claim.spec.volume_name.as_deref()?;
                let key = ObjectKey::Volume(volume.into());
                let Some(Object::Volume(volume)) = self.cluster.objects.get(&key) else {
                    return None;
                };
                let affinity = volume.spec.node_affinity.as_ref()?;
                only_zone(affinity.required.as_ref()?)
            })
            .collect();
        let mut zones = zones.into_iter();
        zones.next().filter(|_| zones.next().is_none())
    }

    fn claim(&self, namespace: &str, name: &str) -> Option<&Object> {
        let key = ObjectKey::VolumeClaim(NamespacedName::new(namespace, name));
        self.cluster.objects.get(&key)
    }
}

/// The one zone that a volume can be reached from. Each CSI driver has a key of its own for it.
fn only_zone(selector: &NodeSelector) -> Option<String> {
    let [term] = &selector.node_selector_terms[..] else {
        return None;
    };
    let expressions = term.match_expressions.iter().flatten();
    let mut zones = expressions.filter(|each| each.operator == "In" && each.key.ends_with("/zone"));
    match zones.next()?.values.as_deref()? {
        [zone] => Some(zone.clone()),
        _ => None,
    }
}

/// The selector asks for pods of these namespaces as well.
fn ask_for<'n>(selector: &mut LabelSelector, namespaces: impl IntoIterator<Item = &'n str>) {
    let values = namespaces.into_iter().map(str::to_owned).collect();
    let expressions = selector.match_expressions.get_or_insert_default();
    expressions.push(LabelSelectorRequirement {
        key: NAMESPACE_LABEL.to_owned(),
        operator: "In".to_owned(),
        values: Some(values),
    });
}

/// All terms about other pods.
fn affinity_terms(spec: &mut PodSpec) -> Vec<&mut PodAffinityTerm> {
    let Some(affinity) = &mut spec.affinity else {
        return Vec::new();
    };
    let (mut required, mut preferred) = (Vec::new(), Vec::new());
    if let Some(with) = &mut affinity.pod_affinity {
        required.push(&mut with.required_during_scheduling_ignored_during_execution);
        preferred.push(&mut with.preferred_during_scheduling_ignored_during_execution);
    }
    if let Some(without) = &mut affinity.pod_anti_affinity {
        required.push(&mut without.required_during_scheduling_ignored_during_execution);
        preferred.push(&mut without.preferred_during_scheduling_ignored_during_execution);
    }
    let preferred = preferred.into_iter().flatten().flatten();
    let preferred = preferred.map(|each| &mut each.pod_affinity_term);
    let required = required.into_iter().flatten().flatten();
    required.chain(preferred).collect()
}
