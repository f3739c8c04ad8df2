//! The virtual API server: objects with UIDs, versions, finalizers and deletion timestamps.

use std::collections::BTreeMap;

use jiff::Timestamp;
#[cfg(test)]
use mortise_apis::names::PodKey;
use mortise_apis::values::since;
use mortise_engine::effect::EffectError;
use mortise_state::resource_kinds::{Object, ObjectKey, ObjectKind};
use serde_json::{Value, json};

use super::pod_index::PodIndex;
use super::workload_controllers::node_of;
use crate::clock::StoreEvent;

/// Objects as JSON, by key.
#[derive(Clone, Debug, Default)]
pub struct ApiServer {
    objects: BTreeMap<ObjectKey, Value>,
    version: u64,
    changes: Vec<StoreEvent>,
    vetoed_label: Option<&'static str>,
    pods: PodIndex,
    last_changes: BTreeMap<ObjectKind, LastChange>,
    /// Pods were bound to a node that was not there.
    strays: u64,
}

/// Versions of the last changes of a kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LastChange {
    /// An object was created, changed or removed.
    pub(crate) any: u64,
    /// An object was created or removed.
    pub(super) membership: u64,
}

impl ApiServer {
    /// An object.
    #[must_use]
    pub fn get(&self, key: &ObjectKey) -> Option<&Value> {
        self.objects.get(key)
    }

    /// Every object, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&ObjectKey, &Value)> {
        self.objects.iter()
    }

    /// Every object of a kind.
    pub(crate) fn of_kind(&self, kind: ObjectKind) -> impl Iterator<Item = &Value> {
        let all = self.objects.iter();
        all.filter(move |(key, _)| key.kind() == kind)
            .map(|(_, value)| value)
    }

    /// The pods that are bound to a node.
    pub(crate) fn pods_on(&self, node: &str) -> impl Iterator<Item = (ObjectKey, &Value)> {
        let keys = self.pods.on_node(node).cloned().map(ObjectKey::Pod);
        keys.filter_map(|key| {
            let pod = self.objects.get(&key)?;
            Some((key, pod))
        })
    }

    /// Every pod, by key.
    #[cfg(test)]
    pub(super) fn pods(&self) -> impl Iterator<Item = (&PodKey, &Value)> {
        self.objects.iter().filter_map(|(key, value)| match key {
            ObjectKey::Pod(key) => Some((key, value)),
            _ => None,
        })
    }

    /// What controllers read of pods.
    pub(super) const fn pod_index(&self) -> &PodIndex {
        &self.pods
    }

    /// When objects of a kind changed last.
    pub(crate) fn last_change(&self, kind: &ObjectKind) -> LastChange {
        self.last_changes.get(kind).copied().unwrap_or_default()
    }

    /// How often a pod was bound to a node that was not there.
    pub(super) const fn strays(&self) -> u64 {
        self.strays
    }

    /// Notes a change of an object under the current version.
    fn note_change(&mut self, key: &ObjectKey, is_membership: bool) {
        let last = self.last_changes.entry(key.kind()).or_default();
        last.any = self.version;
        if is_membership {
            last.membership = self.version;
        }
    }

    /// Resource version of the last change.
    pub(crate) const fn version(&self) -> u64 {
        self.version
    }

    /// Changes since the last call.
    pub(crate) fn take_changes(&mut self) -> Vec<StoreEvent> {
        std::mem::take(&mut self.changes)
    }

    fn stamp(&mut self, value: &mut Value) {
        self.version += 1;
        value["metadata"]["resourceVersion"] = json!(self.version.to_string());
        if let Some(label) = self.vetoed_label
            && let Some(labels) = value["metadata"]["labels"].as_object_mut()
        {
            labels.remove(label);
        }
    }

    /// Creates an object.
    ///
    /// # Errors
    /// The key exists: 409.
    pub fn create(
        &mut self,
        key: ObjectKey,
        mut value: Value,
        now: Timestamp,
    ) -> Result<Value, EffectError> {
        if self.objects.contains_key(&key) {
            return Err(EffectError::Refused {
                code: 409,
                message: format!("{key:?} already exists"),
            });
        }
        self.stamp(&mut value);
        value["metadata"]["uid"] = json!(format!("uid-{}", self.version));
        value["metadata"]["creationTimestamp"] = json!(whole_seconds(now));
        self.insert(key, value.clone());
        Ok(value)
    }

    fn insert(&mut self, key: ObjectKey, value: Value) {
        self.changes.push(StoreEvent {
            key: key.clone(),
            object: Some(value.clone()),
            version: self.version,
        });
        let is_new = !self.objects.contains_key(&key);
        self.note_change(&key, is_new);
        if let ObjectKey::Pod(pod) = &key {
            self.pods.put(pod, &value);
            let node = node_of(&value).map(|node| ObjectKey::Node(node.into()));
            let is_stray = node.is_some_and(|node| !self.objects.contains_key(&node));
            self.strays += u64::from(is_stray);
        }
        self.objects.insert(key, value);
    }

    fn remove(&mut self, key: &ObjectKey) {
        if self.objects.remove(key).is_some() {
            self.version += 1;
            self.note_change(key, true);
            if let ObjectKey::Pod(pod) = key {
                self.pods.remove(pod);
            }
            self.changes.push(StoreEvent {
                key: key.clone(),
                object: None,
                version: self.version,
            });
        }
    }

    /// Applies a merge patch. Removing the last finalizer of an object that is being deleted removes the object.
    ///
    /// # Errors
    /// Not found; or the resource version has changed.
    pub fn patch(
        &mut self,
        key: &ObjectKey,
        merge: &Value,
        at_version: Option<&str>,
    ) -> Result<Value, EffectError> {
        let Some(current) = self.objects.get(key) else {
            return Err(EffectError::NotFound(format!("{key:?}")));
        };
        let version = current
            .pointer("/metadata/resourceVersion")
            .and_then(Value::as_str);
        if at_version.is_some() && at_version != version {
            return Err(EffectError::Conflict(format!(
                "{key:?} is at {version:?}, expected {at_version:?}"
            )));
        }
        let mut value = current.clone();
        json_patch::merge(&mut value, merge);
        if value == *current {
            return Ok(value);
        }
        Ok(self.put(key.clone(), value))
    }

    /// Creates or replaces an object as it is, under a new version. Returns what is stored.
    pub(crate) fn put(&mut self, key: ObjectKey, mut value: Value) -> Value {
        self.stamp(&mut value);
        let is_over =
            is_deleting(&value) && !has_finalizers(&value) && !matches!(key, ObjectKey::Pod(_));
        self.insert(key.clone(), value.clone());
        if is_over {
            self.remove(&key);
        }
        value
    }

    /// An admission webhook removes this label from every object that is written; `None` = no webhook.
    pub(crate) const fn veto_label(&mut self, label: Option<&'static str>) {
        self.vetoed_label = label;
    }

    /// Deletes an object: immediately if it has no finalizers, otherwise it is marked with `at`, or with the earlier time if
    /// it is marked already. Pods are always marked; their kubelet removes them with [`ApiServer::erase`]. Returns the marked
    /// object, if it still exists.
    ///
    /// # Errors
    /// Not found; or it has another UID.
    pub fn delete(
        &mut self,
        key: &ObjectKey,
        uid: Option<&str>,
        at: Timestamp,
    ) -> Result<Option<Value>, EffectError> {
        let Some(current) = self.objects.get(key) else {
            return Err(EffectError::NotFound(format!("{key:?}")));
        };
        if let Some(uid) = uid
            && current.pointer("/metadata/uid").and_then(Value::as_str) != Some(uid)
        {
            return Err(EffectError::Conflict(format!("{key:?} has another UID")));
        }
        if has_finalizers(current) || matches!(key, ObjectKey::Pod(_)) {
            let mut value = current.clone();
            let marked = value.pointer("/metadata/deletionTimestamp");
            let marked = marked.and_then(|at| at.as_str()?.parse::<Timestamp>().ok());
            if marked.is_none_or(|marked| at.as_second() < marked.as_second()) {
                value["metadata"]["deletionTimestamp"] = json!(whole_seconds(at));
                self.stamp(&mut value);
                self.insert(key.clone(), value.clone());
            }
            return Ok(Some(value));
        }
        self.remove(key);
        Ok(None)
    }

    /// Removes an object regardless of its finalizers, as a kubelet removes a stopped pod.
    pub fn erase(&mut self, key: &ObjectKey) {
        self.remove(key);
    }
}

/// Kubernetes writes times in whole seconds.
fn whole_seconds(now: Timestamp) -> String {
    Timestamp::from_second(now.as_second())
        .unwrap_or(now)
        .to_string()
}

/// How old an object is, in milliseconds; 0 if it has no time of creation.
pub(crate) fn age_ms(value: &Value, now: Timestamp) -> i64 {
    let created = value.pointer("/metadata/creationTimestamp");
    let created = created.and_then(|text| text.as_str()?.parse().ok());
    created.map_or(0, |created| since(now, created))
}

pub(crate) fn is_deleting(value: &Value) -> bool {
    // Called for every pod every second: avoids parsing a pointer.
    let metadata = value.get("metadata");
    metadata
        .and_then(|metadata| metadata.get("deletionTimestamp"))
        .is_some_and(|at| !at.is_null())
}

pub(super) fn has_finalizers(value: &Value) -> bool {
    value
        .pointer("/metadata/finalizers")
        .and_then(Value::as_array)
        .is_some_and(|list| !list.is_empty())
}

/// Parses the object for the index.
///
/// # Errors
/// The JSON is not of the key's kind.
pub(crate) fn object(key: &ObjectKey, value: Value) -> Result<Object, serde_json::Error> {
    key.kind().deserialize(value)
}
