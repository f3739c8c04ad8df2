//! The kind of a node class.

use crate::schema::api_kind::ApiKind;

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

impl From<NodeClassKind> for ApiKind {
    fn from(kind: NodeClassKind) -> Self {
        let NodeClassKind {
            group,
            version,
            kind,
            plural,
        } = kind;
        Self {
            group,
            version,
            kind,
            plural,
            namespaced: false,
        }
    }
}
