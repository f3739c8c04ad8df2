//! A node class object as stored.

use std::sync::Arc;

use serde::{Deserialize as _, Deserializer};

use crate::names::NodeClassKey;

/// A node class object as stored, with what every kind has in common already read.
#[derive(Clone, Debug)]
pub struct NodeClassObject {
    /// Which object.
    pub key: NodeClassKey,
    /// The whole object, for its provider.
    pub object: Arc<serde_json::Value>,
}

impl NodeClassObject {
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
        Ok(Self {
            key,
            object: Arc::new(object),
        })
    }

    /// `metadata.resourceVersion`.
    #[must_use]
    pub fn resource_version(&self) -> Option<&str> {
        self.object.pointer("/metadata/resourceVersion")?.as_str()
    }
}
