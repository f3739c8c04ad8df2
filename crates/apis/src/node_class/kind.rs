//! The kind of a node class.

use serde::{Deserialize, Deserializer, Serialize};

use crate::schema::api_kind::ApiKind;

use crate::values::StaticText;

/// Group, version, kind and plural of a node class that a provider serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
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

impl<'de> Deserialize<'de> for NodeClassKind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Stored {
            group: StaticText,
            version: StaticText,
            kind: StaticText,
            plural: StaticText,
        }
        let stored = Stored::deserialize(deserializer)?;
        Ok(Self {
            group: stored.group.0,
            version: stored.version.0,
            kind: stored.kind.0,
            plural: stored.plural.0,
        })
    }
}
