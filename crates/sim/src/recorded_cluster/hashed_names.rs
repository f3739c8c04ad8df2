//! Replaces names by hashes, the same name by the same hash, so that a snapshot can be given away and still gives the same plan.
//!
//! Hashed: names and namespaces of namespaced objects and what refers to them, names of namespaces, containers and volumes,
//! values of labels of pods and namespaces with the selectors of such labels, messages of conditions. Kept: everything that
//! nodes, NodePools and the cloud share with pods: node selectors, node affinity, tolerations, topology keys, storage classes, and
//! the labels of Kubernetes and Karpenter.

use std::collections::BTreeMap;

use mortise_apis::labels::{self, CONSUME_PROVISIONING_REQUEST, VOLCANO_GROUPS};
use mortise_state::resource_kinds::{Object, ObjectKey, ResourceKind};
use serde_json::{Map, Value};

use super::RecordedCluster;

/// Bytes of a hash that are written: 2^48 names collide with a chance below one in a million for 10,000 names.
const BYTES: usize = 6;
/// Label of namespaces with their name.
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";
/// Fields with the name of a namespaced object, wherever they are in one.
const NAMES: [&str; 7] = [
    "name",
    "namespace",
    "generateName",
    "claimName",
    "podGroupName",
    "resourceClaimName",
    "resourceClaimTemplateName",
];
/// Fields whose content is shared with nodes and the cloud.
const KEPT: [&str; 6] = [
    "nodeAffinity",
    "nodeSelector",
    "tolerations",
    "devices",
    "dataSource",
    "dataSourceRef",
];

/// A cryptographic digest, such as SHA-256: no one can compute a name from it, or find two names with the same.
pub type Digest = fn(&[u8]) -> [u8; 32];

/// Hashes names with a salt: without it no one can tell whether a guessed name is in the file.
#[derive(Clone, Debug)]
pub struct NameHasher {
    salt: Vec<u8>,
    digest: Digest,
}

impl NameHasher {
    /// A hasher; equal salts give equal hashes.
    #[must_use]
    pub fn new(salt: &[u8], digest: Digest) -> Self {
        Self {
            salt: salt.to_vec(),
            digest,
        }
    }

    /// The hash of a name: a valid name of Kubernetes. Empty stays empty.
    #[must_use]
    pub fn hash(&self, name: &str) -> String {
        if name.is_empty() {
            return String::new();
        }
        let mut bytes = self.salt.clone();
        bytes.push(0);
        bytes.extend(name.as_bytes());
        let digest = (self.digest)(&bytes);
        let mut text = "h".to_owned();
        for byte in digest.iter().take(BYTES) {
            for half in [byte >> 4, byte & 15] {
                text.extend(char::from_digit(half.into(), 16));
            }
        }
        text
    }

    /// Hashes the names of an object in JSON.
    fn apply(&self, key: &ObjectKey, value: &mut Value, is_namespaced: bool) {
        let is_namespace = matches!(key, ObjectKey::Namespace(_));
        if is_namespaced {
            self.namespaced(value);
        } else if is_namespace {
            self.hash_labels(value.pointer_mut("/metadata/labels"));
            self.hash_field(value.get_mut("metadata"), "name");
        } else if let Some(reference) = value.pointer_mut("/spec/claimRef") {
            self.namespaced(reference);
        }
    }

    /// A part of a namespaced object.
    fn namespaced(&self, value: &mut Value) {
        match value {
            Value::Array(items) => items.iter_mut().for_each(|item| self.namespaced(item)),
            Value::Object(fields) => {
                for (field, content) in fields.iter_mut() {
                    match (field.as_str(), &mut *content) {
                        ("resources", resources) => self.hash_claims(resources),
                        (kept, _) if KEPT.contains(&kept) => {}
                        (name, Value::String(text)) if is_name(name) => {
                            *text = self.hash(text);
                        }
                        ("message", Value::String(text)) => "hidden".clone_into(text),
                        ("namespaces", Value::Array(names)) => self.hash_all(names),
                        ("labels", labels) => self.hash_labels(Some(labels)),
                        ("labelSelector" | "selector" | "namespaceSelector", selector) => {
                            self.hash_selector(selector);
                        }
                        ("ownerReferences", Value::Array(owners)) => {
                            owners.iter_mut().for_each(|owner| self.hash_owner(owner));
                        }
                        (_, content) => self.namespaced(content),
                    }
                }
            }
            _ => {}
        }
    }

    fn hash_field(&self, fields: Option<&mut Value>, field: &str) {
        let found = fields.and_then(|fields| fields.get_mut(field));
        if let Some(Value::String(text)) = found {
            *text = self.hash(text);
        }
    }

    /// Claims for devices of a container, which name those of its pod.
    fn hash_claims(&self, resources: &mut Value) {
        let claims = resources.get_mut("claims").and_then(Value::as_array_mut);
        for claim in claims.into_iter().flatten() {
            self.hash_field(Some(claim), "name");
        }
    }

    /// Nodes and NodeClaims, which own pods and Nodes, keep their names.
    fn hash_owner(&self, owner: &mut Value) {
        let kind = owner.get("kind").and_then(Value::as_str);
        if !kind.is_some_and(|kind| kind.starts_with("Node")) {
            self.hash_field(Some(owner), "name");
        }
    }

    fn hash_all(&self, values: &mut [Value]) {
        for value in values {
            if let Value::String(text) = value {
                *text = self.hash(text);
            }
        }
    }

    fn hash_labels(&self, labels: Option<&mut Value>) {
        if let Some(Value::Object(all)) = labels {
            self.hash_label_values(all);
        }
    }

    fn hash_label_values(&self, labels: &mut Map<String, Value>) {
        for (key, value) in labels.iter_mut() {
            if let Value::String(text) = value
                && is_hashed(key)
            {
                *text = self.hash(text);
            }
        }
    }

    /// A label selector, or the plain labels that some kinds have instead.
    fn hash_selector(&self, selector: &mut Value) {
        let Value::Object(fields) = selector else {
            return;
        };
        let is_plain =
            !fields.contains_key("matchLabels") && !fields.contains_key("matchExpressions");
        if is_plain {
            self.hash_label_values(fields);
            return;
        }
        self.hash_labels(fields.get_mut("matchLabels"));
        let expressions = fields
            .get_mut("matchExpressions")
            .and_then(Value::as_array_mut);
        for expression in expressions.into_iter().flatten() {
            let key = expression.get("key").and_then(Value::as_str);
            if key.is_some_and(is_hashed)
                && let Some(Value::Array(values)) = expression.get_mut("values")
            {
                self.hash_all(values);
            }
        }
    }
}

/// Whether values of the label are hashed: not those that Karpenter and mortise give a meaning.
fn is_hashed(label: &str) -> bool {
    let domain = labels::domain(label);
    label == NAMESPACE_NAME || !(domain.ends_with(labels::GROUP) || domain.ends_with(labels::OWN))
}

impl RecordedCluster {
    /// The same cluster with names replaced by hashes.
    ///
    /// # Errors
    /// An object cannot be written as JSON and read again, which no object of a watch should be.
    pub fn with_hashed_names(mut self, hasher: &NameHasher) -> Result<Self, serde_json::Error> {
        let kinds = ResourceKind::all(&self.served);
        let mut objects = BTreeMap::new();
        for (key, object) in std::mem::take(&mut self.objects) {
            let kind = key.kind();
            let row = kinds.iter().find(|row| row.index == kind);
            let is_namespaced = row.is_some_and(|row| row.api.namespaced);
            let mut value = serde_json::to_value(&object)?;
            hasher.apply(&key, &mut value, is_namespaced);
            let hashed: Object = kind.deserialize(value)?;
            objects.insert(hashed.key(), hashed);
        }
        self.objects = objects;
        self.settings.namespace = hasher.hash(&self.settings.namespace);
        self.names_are_hashed = true;
        Ok(self)
    }
}

/// Whether a field or an annotation has the name of a namespaced object.
fn is_name(field: &str) -> bool {
    let annotations = VOLCANO_GROUPS.iter().chain(&CONSUME_PROVISIONING_REQUEST);
    NAMES.contains(&field) || annotations.into_iter().any(|known| *known == field)
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::panic,
        reason = "a test fails by panicking"
    )]

    use std::hash::{DefaultHasher, Hasher as _};

    use super::*;
    use serde_json::json;

    /// Four times a hash that is none of cryptography.
    fn digest(bytes: &[u8]) -> [u8; 32] {
        let mut hasher = DefaultHasher::new();
        hasher.write(bytes);
        std::array::from_fn(|at| hasher.finish().to_be_bytes()[at % 8])
    }

    #[test]
    fn names_are_hashed_and_what_nodes_share_is_kept() {
        let hasher = NameHasher::new(b"salt", digest);
        let h = |name: &str| hasher.hash(name);
        let mut pod = json!({
            "metadata": {
                "name": "web-1", "namespace": "shop", "labels": { "app": "web", "karpenter.sh/x": "y" },
                "ownerReferences": [{ "kind": "ReplicaSet", "name": "web" }, { "kind": "Node", "name": "n1" }],
            },
            "spec": {
                "nodeName": "n1",
                "nodeSelector": { "name": "gpu" },
                "containers": [{ "name": "web", "resources": { "requests": { "cpu": "1" } } }],
                "affinity": {
                    "nodeAffinity": { "name": "kept" },
                    "podAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [{
                        "labelSelector": { "matchLabels": { "app": "web" }, "matchExpressions": [
                            { "key": "tier", "operator": "In", "values": ["a"] },
                        ] },
                        "namespaces": ["shop"], "topologyKey": "topology.kubernetes.io/zone",
                    }] },
                },
                "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": "data" } }],
            },
            "status": { "conditions": [{ "type": "PodScheduled", "message": "web-1 does not fit" }] },
        });
        hasher.namespaced(&mut pod);
        assert_eq!(pod["metadata"]["name"], h("web-1"));
        assert_eq!(
            pod["metadata"]["labels"],
            json!({ "app": h("web"), "karpenter.sh/x": "y" })
        );
        assert_eq!(pod["metadata"]["ownerReferences"][0]["name"], h("web"));
        assert_eq!(pod["metadata"]["ownerReferences"][1]["name"], "n1");
        assert_eq!(pod["spec"]["nodeName"], "n1");
        assert_eq!(pod["spec"]["nodeSelector"]["name"], "gpu");
        assert_eq!(pod["spec"]["affinity"]["nodeAffinity"]["name"], "kept");
        let term = &pod["spec"]["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
            [0];
        assert_eq!(term["labelSelector"]["matchLabels"]["app"], h("web"));
        assert_eq!(
            term["labelSelector"]["matchExpressions"][0]["values"],
            json!([h("a")])
        );
        assert_eq!(term["namespaces"], json!([h("shop")]));
        assert_eq!(term["topologyKey"], "topology.kubernetes.io/zone");
        assert_eq!(
            pod["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"],
            h("data")
        );
        assert!(!pod.to_string().contains("web-1"), "{pod}");
        assert_ne!(h("web"), NameHasher::new(b"other", digest).hash("web"));
        assert!(h("web").len() == 1 + 2 * BYTES && h("").is_empty());
    }

    #[test]
    fn a_pod_names_its_gang_as_the_gang_is_named() {
        let hasher = NameHasher::new(b"salt", digest);
        let mut group = json!({ "metadata": { "name": "train" } });
        let mut pod = json!({
            "metadata": {
                "labels": { "scheduling.x-k8s.io/pod-group": "train" },
                "annotations": {
                    "scheduling.k8s.io/group-name": "train",
                    "autoscaling.x-k8s.io/consume-provisioning-request": "train",
                },
            },
            "spec": { "schedulingGroup": { "podGroupName": "train" } },
        });
        hasher.namespaced(&mut group);
        hasher.namespaced(&mut pod);
        let name = &group["metadata"]["name"];
        assert_eq!(*name, hasher.hash("train"));
        for path in [
            "/metadata/labels/scheduling.x-k8s.io~1pod-group",
            "/metadata/annotations/scheduling.k8s.io~1group-name",
            "/metadata/annotations/autoscaling.x-k8s.io~1consume-provisioning-request",
            "/spec/schedulingGroup/podGroupName",
        ] {
            assert_eq!(pod.pointer(path), Some(name), "{path}");
        }
    }
}
