//! A node class object as stored.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize as _, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::names::NodeClassKey;
use crate::schema::conditions::{self, Condition};

/// A node class object as stored, with what every kind has in common already read.
#[derive(Clone, Debug)]
pub struct NodeClassObject {
    /// Which object.
    pub key: NodeClassKey,
    /// Metadata; empty if it cannot be read.
    pub metadata: Arc<ObjectMeta>,
    /// Conditions of the status, without those that cannot be read.
    pub conditions: Arc<[Condition]>,
    /// The whole object, for its provider.
    pub object: Arc<Value>,
}

impl NodeClassObject {
    /// Reads what all kinds have in common.
    #[must_use]
    pub fn new(key: NodeClassKey, object: Value) -> Self {
        let metadata = object.get("metadata");
        let metadata = metadata.and_then(|metadata| ObjectMeta::deserialize(metadata).ok());
        let conditions = object
            .pointer("/status/conditions")
            .and_then(Value::as_array);
        Self {
            key,
            metadata: Arc::new(metadata.unwrap_or_default()),
            conditions: conditions
                .into_iter()
                .flatten()
                .filter_map(|condition| Condition::deserialize(condition).ok())
                .collect(),
            object: Arc::new(object),
        }
    }

    /// Deserializes an object of a group and kind, without its managed fields: they are large and never read.
    ///
    /// # Errors
    /// The input has no structure that JSON could have.
    pub fn deserialize<'de, D: Deserializer<'de>>(
        group: Arc<str>,
        kind: Arc<str>,
        deserializer: D,
    ) -> Result<Self, D::Error> {
        let mut object = serde_json::Value::deserialize(deserializer)?;
        let metadata = object.get_mut("metadata");
        if let Some(metadata) = metadata.and_then(serde_json::Value::as_object_mut) {
            metadata.remove("managedFields");
        }
        let name = object.pointer("/metadata/name");
        let name = name.and_then(serde_json::Value::as_str);
        let key = NodeClassKey::new(group, kind, name.unwrap_or_default());
        Ok(Self::new(key, object))
    }

    /// `metadata.resourceVersion`.
    #[must_use]
    pub fn resource_version(&self) -> Option<&str> {
        self.metadata.resource_version.as_deref()
    }

    /// Whether the object is being deleted.
    #[must_use]
    pub fn is_being_deleted(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// The root condition.
    #[must_use]
    pub fn ready(&self) -> Option<&Condition> {
        conditions::find(&self.conditions, conditions::READY)
    }
}

impl Serialize for NodeClassObject {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.object.serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_can_be_read_is_read() {
        let key = || NodeClassKey::new("g", "K", "n");
        let class = NodeClassObject::new(
            key(),
            json!({
                "metadata": { "name": "n", "deletionTimestamp": "2026-05-01T11:00:00Z" },
                "status": { "conditions": [7, { "type": "Ready", "status": "True" }] },
            }),
        );
        assert!(class.is_being_deleted());
        assert_eq!(class.metadata.name.as_deref(), Some("n"));
        assert_eq!(class.ready().map(|each| each.type_.as_str()), Some("Ready"));
        let odd = NodeClassObject::new(key(), json!({ "metadata": 7, "status": [] }));
        assert!(!odd.is_being_deleted() && odd.conditions.is_empty());
    }
}
