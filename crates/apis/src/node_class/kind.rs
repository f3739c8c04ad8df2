//! The kind of a node class, and an object of it.

use std::sync::Arc;

use crate::names::NodeClassKey;

/// Group, version, kind and plural of a node class that a provider serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeClassKind {
    /// API group.
    pub group: &'static str,
    /// Served version.
    pub version: &'static str,
    /// Kind.
    pub kind: &'static str,
    /// Resource name in URLs.
    pub plural: &'static str,
}

/// A node class object as stored, with what every kind has in common already read.
#[derive(Clone, Debug)]
pub struct NodeClassObject {
    /// Which object.
    pub key: NodeClassKey,
    /// The whole object, for its provider.
    pub object: Arc<serde_json::Value>,
}
