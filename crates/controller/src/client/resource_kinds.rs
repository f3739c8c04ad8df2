//! Which kinds are read and written, and the identity of an object that may not be parsed.

use kube::api::ApiResource;
use mortise_apis::names::ObjectRef;
use mortise_apis::node_class::NodeClassKind;
use mortise_apis::schema::api_kind::ApiKind;
use mortise_state::resource_kinds::{ObjectKey, ResourceKind};
use serde::Deserialize;

/// Kind and path of every object that can be the target of an effect.
#[derive(Clone, Debug)]
pub(crate) struct ResourceKinds(Vec<ResourceKind>);

impl ResourceKinds {
    pub(crate) fn new(node_classes: &[NodeClassKind]) -> Self {
        Self(ResourceKind::all(node_classes))
    }

    /// `None` for a node class of a kind that no provider serves.
    pub(crate) fn of(&self, target: &ObjectRef) -> Option<&ResourceKind> {
        let kind = ObjectKey::from(target).kind();
        self.0.iter().find(|each| each.index == kind)
    }
}

/// A kind as the client library names it.
pub(crate) fn api_resource(kind: &ApiKind) -> ApiResource {
    ApiResource {
        group: kind.group.to_owned(),
        version: kind.version.to_owned(),
        api_version: kind.api_version(),
        kind: kind.kind.to_owned(),
        plural: kind.plural.to_owned(),
    }
}

/// The part of an object that is read even if the rest cannot be parsed.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ObjectIdentity {
    pub(crate) name: String,
    pub(crate) namespace: String,
    pub(crate) uid: String,
    pub(crate) resource_version: String,
    pub(crate) deletion_timestamp: Option<String>,
    pub(crate) finalizers: Vec<String>,
}

impl ObjectIdentity {
    /// Parses the `metadata` of any object.
    ///
    /// # Errors
    /// The text is not JSON, or its metadata is not an object's.
    pub(crate) fn read(text: &str) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct AnyObject {
            #[serde(default)]
            metadata: ObjectIdentity,
        }
        serde_json::from_str::<AnyObject>(text).map(|object| object.metadata)
    }
}

#[cfg(test)]
mod tests {
    use mortise_apis::names::NodeClassKey;

    use super::*;

    #[test]
    fn only_served_node_classes_are_written() {
        let kinds = ResourceKinds::new(&[NodeClassKind {
            group: "g",
            version: "v1",
            kind: "K",
            plural: "ks",
        }]);
        let path = |kind: &str| {
            let target = ObjectRef::NodeClass(NodeClassKey::new("g", kind, "n"));
            kinds.of(&target).map(|kind| kind.api.path(None))
        };
        assert_eq!(path("K").as_deref(), Some("/apis/g/v1/ks"));
        assert_eq!(path("Other"), None);
    }

    #[test]
    fn an_object_that_cannot_be_parsed_has_an_identity() {
        let text = r#"{"metadata":{"name":"x","namespace":"y"},"spec":"nonsense"}"#;
        let identity = ObjectIdentity::read(text).unwrap();
        assert_eq!(
            (identity.name.as_str(), identity.namespace.as_str()),
            ("x", "y")
        );
    }
}
