//! The DaemonSet controller: a pod for each node that may run it, which kube-scheduler binds to that node and to no other.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Toleration;
use mortise_apis::names::{NamespacedName, PodKey};
use mortise_apis::{k8s, labels};
use mortise_state::resource_kinds::{ObjectKey, ObjectKind};
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::super::api_server::{ApiServer, age_ms};
use super::super::scheduler::{tolerates_all, wants_node};
use super::{create, node_of};
use crate::scores::LATE_MS;

/// Taints that every pod of a DaemonSet tolerates.
const TOLERATED: [(&str, &str); 6] = [
    (labels::NOT_READY_TAINT, "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    (labels::UNSCHEDULABLE_TAINT, "NoSchedule"),
];

/// What a round depends on: nothing changes while these do not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct DaemonSetsSeen {
    nodes: u64,
    daemon_sets: u64,
    pods: u64,
    strays: u64,
}

impl DaemonSetsSeen {
    pub(super) fn of(store: &ApiServer) -> Self {
        Self {
            nodes: store.last_change(&ObjectKind::Node).any,
            daemon_sets: store.last_change(&ObjectKind::DaemonSet).any,
            pods: store.pod_index().daemons_revision(),
            strays: store.strays(),
        }
    }
}

struct DaemonSet {
    key: NamespacedName,
    template: Value,
    /// The template's, with what every pod of a DaemonSet tolerates.
    spec: k8s::PodSpec,
}

/// Creates the pods that are missing, and deletes those of nodes that are gone. Returns how many of the deleted ones were late and
/// never got their node.
pub(super) fn reconcile_daemon_sets(store: &mut ApiServer, now: Timestamp) -> u64 {
    let sets = store.iter().filter_map(|(key, set)| match key {
        ObjectKey::DaemonSet(key) => DaemonSet::read(key, set),
        _ => None,
    });
    let sets: Vec<DaemonSet> = sets.collect();
    let mut known: BTreeSet<PodKey> = BTreeSet::new();
    let mut missing: Vec<(PodKey, Value)> = Vec::new();
    for (key, node) in store.iter() {
        let ObjectKey::Node(name) = key else { continue };
        for set in &sets {
            let namespace = std::sync::Arc::clone(&set.key.namespace);
            let pod = PodKey::new(namespace, format!("{}-{name}", set.key.name));
            if store.get(&ObjectKey::Pod(pod.clone())).is_none() && set.may_run(name, node) {
                missing.push((pod.clone(), set.new_pod(&pod, name)));
            }
            known.insert(pod);
        }
    }
    let index = store.pod_index();
    let gone = index.nodes().filter(|node| {
        let node = ObjectKey::Node((&***node).into());
        store.get(&node).is_none()
    });
    let of_gone = gone.flat_map(|node| index.on_node(node));
    let without = index.daemons_without_node().iter();
    let lost: BTreeSet<&PodKey> = without
        .filter(|key| !known.contains(*key))
        .chain(of_gone)
        .collect();
    let lost: Vec<(ObjectKey, bool)> = lost
        .into_iter()
        .map(|key| {
            let key = ObjectKey::Pod(key.clone());
            let is_late = store.get(&key).is_some_and(|pod| is_late(pod, now));
            (key, is_late)
        })
        .collect();
    for (key, pod) in missing {
        create(store, ObjectKey::Pod(key), pod, now);
    }
    for (key, _) in &lost {
        store.erase(key);
    }
    lost.iter().filter(|(_, is_late)| *is_late).count() as u64
}

/// Whether a DaemonSet owns the pod.
pub(crate) fn is_daemon(pod: &Value) -> bool {
    pod.pointer("/metadata/ownerReferences/0/kind")
        .is_some_and(|kind| kind == "DaemonSet")
}

/// Whether it is a pod of a DaemonSet that has waited for its node too long.
pub(super) fn is_late(pod: &Value, now: Timestamp) -> bool {
    is_daemon(pod) && node_of(pod).is_none() && age_ms(pod, now) > LATE_MS
}

impl DaemonSet {
    /// `None`: the template cannot be read.
    fn read(key: &NamespacedName, set: &Value) -> Option<Self> {
        let template = set["spec"]["template"].clone();
        let mut spec = k8s::PodSpec::deserialize(&template["spec"]).ok()?;
        let own = TOLERATED.map(|(key, effect)| Toleration {
            key: Some(key.to_owned()),
            operator: Some("Exists".to_owned()),
            effect: Some(effect.to_owned()),
            ..Toleration::default()
        });
        spec.tolerations.extend(own);
        let key = key.clone();
        Some(Self {
            key,
            template,
            spec,
        })
    }

    fn new_pod(&self, key: &PodKey, node: &str) -> Value {
        let set = &*self.key.name;
        let mut pod = self.template.clone();
        pod["metadata"]["name"] = json!(&*key.name);
        pod["metadata"]["namespace"] = json!(&*key.namespace);
        pod["metadata"]["ownerReferences"] = json!([{ "apiVersion": "apps/v1", "kind": "DaemonSet", "name": set, "uid": format!("owner-{set}"), "controller": true }]);
        let only = json!([{ "key": "metadata.name", "operator": "In", "values": [node] }]);
        let required = &mut pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
        match required["nodeSelectorTerms"].as_array_mut() {
            Some(terms) => terms
                .iter_mut()
                .for_each(|term| term["matchFields"] = only.clone()),
            None => *required = json!({ "nodeSelectorTerms": [{ "matchFields": only }] }),
        }
        pod["spec"]["tolerations"] = json!(self.spec.tolerations);
        pod["status"] = json!({ "phase": "Pending" });
        pod
    }

    /// Whether a node matches the node selector and the required node affinity of the template, and has no taint that the pods do not
    /// tolerate.
    fn may_run(&self, name: &str, node: &Value) -> bool {
        let labels = BTreeMap::deserialize(&node["metadata"]["labels"]).unwrap_or_default();
        let taints = Vec::deserialize(&node["spec"]["taints"]).unwrap_or_default();
        wants_node(&self.spec, name, &labels) && tolerates_all(&self.spec, &taints)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mortise_apis::values::after;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn cluster(template: Value) -> ApiServer {
        let mut store = ApiServer::default();
        let set = ObjectKey::DaemonSet(NamespacedName::new("kube-system", "agent"));
        create(
            &mut store,
            set,
            json!({ "spec": { "template": template } }),
            NOW,
        );
        store
    }

    fn node(store: &mut ApiServer, name: &str, os: &str, taints: &Value) {
        let node = json!({
            "metadata": { "name": name, "labels": { "kubernetes.io/os": os } }, "spec": { "taints": taints },
        });
        create(store, ObjectKey::Node(name.into()), node, NOW);
    }

    fn pods(store: &ApiServer) -> Vec<String> {
        store.pods().map(|(key, _)| key.name.to_string()).collect()
    }

    #[test]
    fn each_node_that_matches_and_whose_taints_are_tolerated_gets_a_pod() {
        let own = json!({ "key": "dedicated", "operator": "Exists" });
        let mut store = cluster(json!({
            "spec": { "nodeSelector": { "kubernetes.io/os": "linux" }, "tolerations": [own] },
        }));
        let taint = |key: &str, effect: &str| json!([{ "key": key, "effect": effect }]);
        node(&mut store, "plain", "linux", &json!([]));
        node(&mut store, "other", "windows", &json!([]));
        node(&mut store, "own", "linux", &taint("dedicated", "NoExecute"));
        node(&mut store, "foreign", "linux", &taint("gpu", "NoSchedule"));
        node(
            &mut store,
            "soft",
            "linux",
            &taint("gpu", "PreferNoSchedule"),
        );
        let cordon = labels::UNSCHEDULABLE_TAINT;
        node(
            &mut store,
            "cordoned",
            "linux",
            &taint(cordon, "NoSchedule"),
        );
        let boot = labels::NOT_READY_TAINT;
        node(&mut store, "boots", "linux", &taint(boot, "NoSchedule"));
        assert_eq!(reconcile_daemon_sets(&mut store, NOW), 0);
        let wanted = ["agent-cordoned", "agent-own", "agent-plain", "agent-soft"];
        assert_eq!(pods(&store), wanted);
        assert_eq!(reconcile_daemon_sets(&mut store, NOW), 0);
        assert_eq!(pods(&store), wanted);
    }

    #[test]
    fn a_pod_fits_its_node_only_and_goes_with_it() {
        let affinity = json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [
            { "matchExpressions": [{ "key": "kubernetes.io/os", "operator": "In", "values": ["linux"] }] },
            { "matchExpressions": [{ "key": "kubernetes.io/os", "operator": "In", "values": ["windows"] }] },
        ] } } });
        let mut store = cluster(json!({ "spec": { "affinity": affinity } }));
        node(&mut store, "a", "linux", &json!([]));
        node(&mut store, "b", "darwin", &json!([]));
        assert_eq!(reconcile_daemon_sets(&mut store, NOW), 0);
        assert_eq!(pods(&store), ["agent-a"]);
        let (key, pod) = store.pods().next().unwrap();
        let key = ObjectKey::Pod(key.clone());
        let terms = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
        for term in pod.pointer(terms).unwrap().as_array().unwrap() {
            assert_eq!(term["matchFields"][0]["values"], json!(["a"]));
            assert!(term["matchExpressions"].is_array());
        }
        let late = after(NOW, LATE_MS + 1);
        assert!(!is_late(pod, after(NOW, LATE_MS)) && is_late(pod, late));
        // Nothing was found for it on its node, which goes.
        store.erase(&ObjectKey::Node("a".into()));
        assert_eq!(reconcile_daemon_sets(&mut store, late), 1);
        assert!(store.get(&key).is_none());
    }
}
