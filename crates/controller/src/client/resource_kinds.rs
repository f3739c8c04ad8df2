//! Parses API objects: from the text of the API server to the objects of the index.

use std::sync::Arc;

use kube::Resource;
use mortise_apis::k8s::{self, SelectingKind};
use mortise_apis::names::{NamespacedName, NodeClassKey, ObjectRef};
use mortise_apis::node_class::{NodeClassKind, NodeClassObject};
use mortise_apis::{NodeClaim, NodeOverlay, NodePool};
use mortise_state::resource_kinds::{Object, ObjectKey, ObjectKind};
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// A kind of object that is read, with its path in URLs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ResourceKind {
    /// Its kind in the index.
    pub(crate) index: ObjectKind,
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) plural: &'static str,
    /// Its objects are namespaced.
    pub(crate) namespaced: bool,
}

impl ResourceKind {
    fn from_type<K: Resource<DynamicType = ()>>(index: ObjectKind, namespaced: bool) -> Self {
        // The slim types return static texts; an owned one would be leaked once per start.
        let text = |cow: std::borrow::Cow<'static, str>| -> &'static str {
            match cow {
                std::borrow::Cow::Borrowed(text) => text,
                std::borrow::Cow::Owned(text) => text.leak(),
            }
        };
        Self {
            index,
            group: text(K::group(&())),
            version: text(K::version(&())),
            kind: text(K::kind(&())),
            plural: text(K::plural(&())),
            namespaced,
        }
    }

    /// A node class kind of a provider.
    pub(crate) fn node_class(kind: NodeClassKind) -> Self {
        let index = ObjectKind::NodeClass {
            group: kind.group.into(),
            kind: kind.kind.into(),
        };
        Self {
            index,
            group: kind.group,
            version: kind.version,
            kind: kind.kind,
            plural: kind.plural,
            namespaced: false,
        }
    }

    /// Every watched kind, with these node classes. Pods last: they are the most.
    pub(crate) fn watched(node_classes: &[NodeClassKind]) -> Vec<Self> {
        let mut kinds: Vec<Self> = node_classes
            .iter()
            .map(|kind| Self::node_class(*kind))
            .collect();
        kinds.extend([
            Self::from_type::<NodePool>(ObjectKind::Pool, false),
            Self::from_type::<NodeClaim>(ObjectKind::Claim, false),
            Self::from_type::<k8s::Node>(ObjectKind::Node, false),
            Self::from_type::<k8s::Namespace>(ObjectKind::Namespace, false),
            Self::from_type::<k8s::DaemonSet>(ObjectKind::DaemonSet, true),
            Self::from_type::<k8s::PodDisruptionBudget>(ObjectKind::Pdb, true),
            Self::from_type::<k8s::PersistentVolumeClaim>(ObjectKind::VolumeClaim, true),
            Self::from_type::<k8s::PersistentVolume>(ObjectKind::Volume, false),
            Self::from_type::<k8s::StorageClass>(ObjectKind::StorageClass, false),
            Self::from_type::<k8s::CsiNode>(ObjectKind::CsiNode, false),
            Self::from_type::<k8s::VolumeAttachment>(ObjectKind::Attachment, false),
            Self::from_type::<k8s::Pod>(ObjectKind::Pod, true),
        ]);
        kinds
    }

    /// Node overlays; watched only with their feature gate.
    pub(crate) fn overlays() -> Self {
        Self::from_type::<NodeOverlay>(ObjectKind::Overlay, false)
    }

    /// Devices and their claims; watched unless they are ignored.
    pub(crate) fn devices() -> [Self; 4] {
        [
            Self::from_type::<k8s::DeviceClass>(ObjectKind::DeviceClass, false),
            Self::from_type::<k8s::ResourceSlice>(ObjectKind::ResourceSlice, false),
            Self::from_type::<k8s::ResourceClaimTemplate>(ObjectKind::ResourceClaimTemplate, true),
            Self::from_type::<k8s::ResourceClaim>(ObjectKind::ResourceClaim, true),
        ]
    }

    /// Kinds from which default spread constraints take their selectors; watched only with such constraints.
    pub(crate) fn selecting() -> impl Iterator<Item = Self> {
        SelectingKind::ALL.into_iter().map(|kind| Self {
            index: ObjectKind::Selecting(kind),
            group: kind.group(),
            version: "v1",
            kind: kind.kind(),
            plural: kind.plural(),
            namespaced: true,
        })
    }

    /// `plural.group`, as `kubectl` and CRD names spell it.
    pub(crate) fn resource(&self) -> String {
        if self.group.is_empty() {
            self.plural.to_owned()
        } else {
            format!("{}.{}", self.plural, self.group)
        }
    }

    /// Without it the cluster state is incomplete, and responses to the scheduler would be guesses.
    pub(crate) const fn is_vital(&self) -> bool {
        matches!(
            self.index,
            ObjectKind::Pod | ObjectKind::Node | ObjectKind::Claim | ObjectKind::Pool
        )
    }

    /// It is a custom resource.
    pub(crate) const fn is_custom(&self) -> bool {
        matches!(
            self.index,
            ObjectKind::Pool
                | ObjectKind::Claim
                | ObjectKind::NodeClass { .. }
                | ObjectKind::Overlay
        )
    }

    /// It is written to, not only read.
    pub(crate) const fn is_written(&self) -> bool {
        self.is_custom() && !matches!(self.index, ObjectKind::Overlay)
    }

    /// Path of the whole collection, or of one namespace.
    pub(crate) fn path(&self, namespace: Option<&str>) -> String {
        let base = if self.group.is_empty() {
            format!("/api/{}", self.version)
        } else {
            format!("/apis/{}/{}", self.group, self.version)
        };
        match namespace {
            Some(namespace) => format!("{base}/namespaces/{namespace}/{}", self.plural),
            None => format!("{base}/{}", self.plural),
        }
    }

    /// Key of an object of this kind.
    pub(crate) fn key(&self, namespace: &str, name: &str) -> ObjectKey {
        let namespaced = || NamespacedName::new(namespace, name);
        match &self.index {
            ObjectKind::Pod => ObjectKey::Pod(namespaced()),
            ObjectKind::Node => ObjectKey::Node(name.into()),
            ObjectKind::Claim => ObjectKey::Claim(name.into()),
            ObjectKind::Pool => ObjectKey::Pool(name.into()),
            ObjectKind::NodeClass { group, kind } => {
                ObjectKey::NodeClass(NodeClassKey::new(Arc::clone(group), Arc::clone(kind), name))
            }
            ObjectKind::Pdb => ObjectKey::Pdb(namespaced()),
            ObjectKind::DaemonSet => ObjectKey::DaemonSet(namespaced()),
            ObjectKind::VolumeClaim => ObjectKey::VolumeClaim(namespaced()),
            ObjectKind::Volume => ObjectKey::Volume(name.into()),
            ObjectKind::StorageClass => ObjectKey::StorageClass(name.into()),
            ObjectKind::CsiNode => ObjectKey::CsiNode(name.into()),
            ObjectKind::Attachment => ObjectKey::Attachment(name.into()),
            ObjectKind::Overlay => ObjectKey::Overlay(name.into()),
            ObjectKind::ResourceClaim => ObjectKey::ResourceClaim(namespaced()),
            ObjectKind::ResourceClaimTemplate => ObjectKey::ResourceClaimTemplate(namespaced()),
            ObjectKind::DeviceClass => ObjectKey::DeviceClass(name.into()),
            ObjectKind::ResourceSlice => ObjectKey::ResourceSlice(name.into()),
            ObjectKind::Namespace => ObjectKey::Namespace(name.into()),
            ObjectKind::Selecting(kind) => ObjectKey::Selecting(*kind, namespaced()),
        }
    }

    /// Parses one object.
    ///
    /// # Errors
    /// The text is not an object of this kind.
    pub(crate) fn read(&self, text: &str) -> Result<Object, serde_json::Error> {
        Ok(match &self.index {
            ObjectKind::Pod => Object::Pod(parse_slim(text)?),
            ObjectKind::Node => Object::Node(parse_slim(text)?),
            ObjectKind::Claim => Object::Claim(parse_slim(text)?),
            ObjectKind::Pool => Object::Pool(parse_slim(text)?),
            ObjectKind::NodeClass { group, kind } => {
                Object::NodeClass(node_class(group, kind, text)?)
            }
            ObjectKind::Pdb => Object::Pdb(parse_slim(text)?),
            ObjectKind::DaemonSet => Object::DaemonSet(parse_slim(text)?),
            ObjectKind::VolumeClaim => Object::VolumeClaim(parse_slim(text)?),
            ObjectKind::Volume => Object::Volume(parse_slim(text)?),
            ObjectKind::StorageClass => Object::StorageClass(parse_slim(text)?),
            ObjectKind::CsiNode => Object::CsiNode(parse_slim(text)?),
            ObjectKind::Attachment => Object::Attachment(parse_slim(text)?),
            ObjectKind::Overlay => Object::Overlay(parse_slim(text)?),
            ObjectKind::ResourceClaim => Object::ResourceClaim(parse_slim(text)?),
            ObjectKind::ResourceClaimTemplate => Object::ResourceClaimTemplate(parse_slim(text)?),
            ObjectKind::DeviceClass => Object::DeviceClass(parse_slim(text)?),
            ObjectKind::ResourceSlice => Object::ResourceSlice(parse_slim(text)?),
            ObjectKind::Namespace => Object::Namespace(parse_slim(text)?),
            ObjectKind::Selecting(kind) => {
                let mut object: k8s::Selecting = serde_json::from_str(text)?;
                object.metadata.managed_fields = None;
                Object::Selecting(*kind, Box::new(object))
            }
        })
    }
}

/// Kind and path of every object that can be the target of an effect.
#[derive(Clone, Debug)]
pub(crate) struct ResourceKinds {
    node_classes: Vec<NodeClassKind>,
}

impl ResourceKinds {
    pub(crate) const fn new(node_classes: Vec<NodeClassKind>) -> Self {
        Self { node_classes }
    }

    /// `None` for a node class of a kind that no provider serves.
    pub(crate) fn of(&self, target: &ObjectRef) -> Option<ResourceKind> {
        Some(match target {
            ObjectRef::Node(_) => ResourceKind::from_type::<k8s::Node>(ObjectKind::Node, false),
            ObjectRef::Claim(_) => ResourceKind::from_type::<NodeClaim>(ObjectKind::Claim, false),
            ObjectRef::Pool(_) => ResourceKind::from_type::<NodePool>(ObjectKind::Pool, false),
            ObjectRef::Overlay(_) => ResourceKind::overlays(),
            ObjectRef::Pod(_) => ResourceKind::from_type::<k8s::Pod>(ObjectKind::Pod, true),
            ObjectRef::NodeClass(key) => {
                let kind = self
                    .node_classes
                    .iter()
                    .find(|each| each.group == &*key.group && each.kind == &*key.kind)?;
                ResourceKind::node_class(*kind)
            }
        })
    }
}

fn parse_slim<K: DeserializeOwned + Resource>(text: &str) -> Result<Box<K>, serde_json::Error> {
    let mut object: K = serde_json::from_str(text)?;
    // Managed fields: large, and never read.
    object.meta_mut().managed_fields = None;
    Ok(Box::new(object))
}

fn node_class(
    group: &Arc<str>,
    kind: &Arc<str>,
    text: &str,
) -> Result<NodeClassObject, serde_json::Error> {
    let mut object: serde_json::Value = serde_json::from_str(text)?;
    if let Some(metadata) = object
        .get_mut("metadata")
        .and_then(serde_json::Value::as_object_mut)
    {
        metadata.remove("managedFields");
    }
    let name = object
        .pointer("/metadata/name")
        .and_then(serde_json::Value::as_str)
        .unwrap_or_default();
    let key = NodeClassKey::new(Arc::clone(group), Arc::clone(kind), name);
    Ok(NodeClassObject {
        key,
        object: Arc::new(object),
    })
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
    use super::*;

    #[test]
    fn paths_are_those_of_the_api() {
        let kinds = ResourceKind::watched(&[NodeClassKind {
            group: "karpenter.kwok.sh",
            version: "v1alpha1",
            kind: "KWOKNodeClass",
            plural: "kwoknodeclasses",
        }]);
        let path = |plural: &str, namespace| {
            kinds
                .iter()
                .find(|kind| kind.plural == plural)
                .map(|kind| kind.path(namespace))
                .unwrap_or_default()
        };
        for (plural, namespace, want) in [
            ("pods", Some("a"), "/api/v1/namespaces/a/pods"),
            ("nodes", None, "/api/v1/nodes"),
            ("nodeclaims", None, "/apis/karpenter.sh/v1/nodeclaims"),
            (
                "kwoknodeclasses",
                None,
                "/apis/karpenter.kwok.sh/v1alpha1/kwoknodeclasses",
            ),
            (
                "poddisruptionbudgets",
                Some("a"),
                "/apis/policy/v1/namespaces/a/poddisruptionbudgets",
            ),
            ("csinodes", None, "/apis/storage.k8s.io/v1/csinodes"),
        ] {
            assert_eq!(path(plural, namespace), want);
        }
        assert_eq!(kinds.last().map(|kind| kind.plural), Some("pods"));
    }

    #[test]
    fn objects_lose_what_is_never_read() {
        let text = r#"{"metadata":{"name":"n","resourceVersion":"7","managedFields":[{"manager":"x","fieldsV1":{"f:spec":{}}}]},"spec":{"a":1}}"#;
        let kind = ResourceKind::node_class(NodeClassKind {
            group: "g",
            version: "v1",
            kind: "K",
            plural: "ks",
        });
        let Object::NodeClass(class) = kind.read(text).unwrap() else {
            panic!("a node class")
        };
        assert_eq!(class.key, NodeClassKey::new("g", "K", "n"));
        assert!(
            class.object.pointer("/metadata/managedFields").is_none()
                && class.object.pointer("/spec/a").is_some()
        );
        let Object::Node(node) = ResourceKind::from_type::<k8s::Node>(ObjectKind::Node, false)
            .read(text)
            .unwrap()
        else {
            panic!("a node")
        };
        assert_eq!(node.metadata.managed_fields, None);
        let identity =
            ObjectIdentity::read(r#"{"metadata":{"name":"x","namespace":"y"},"spec":"nonsense"}"#)
                .unwrap();
        assert_eq!(
            (identity.name.as_str(), identity.namespace.as_str()),
            ("x", "y")
        );
    }
}
