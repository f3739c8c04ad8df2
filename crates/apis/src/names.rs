//! Names: small, cheaply cloned newtypes, so that a pod key cannot be confused with a node name.

use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

macro_rules! name {
    ($(#[$doc:meta])* $ty:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $ty(Arc<str>);

        impl $ty {
            /// Wraps a text as it is; no rule is checked here.
            pub fn new(text: impl Into<Arc<str>>) -> Self {
                Self(text.into())
            }

            /// The text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// The shared text, for interning.
            #[must_use]
            pub fn shared(&self) -> Arc<str> {
                Arc::clone(&self.0)
            }
        }

        impl fmt::Display for $ty {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $ty {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }

        impl Deref for $ty {
            type Target = str;
            fn deref(&self) -> &str {
                &self.0
            }
        }

        impl Borrow<str> for $ty {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl From<&str> for $ty {
            fn from(text: &str) -> Self {
                Self(text.into())
            }
        }

        impl From<String> for $ty {
            fn from(text: String) -> Self {
                Self(text.into())
            }
        }
    };
}

name!(
    /// Name of a Kubernetes Node object.
    NodeName
);
name!(
    /// Name of a NodeClaim object.
    ClaimName
);
name!(
    /// Name of a NodePool object.
    PoolName
);
name!(
    /// ID of an instance, as in `node.spec.providerID`.
    ProviderId
);
name!(
    /// `metadata.uid` of an object.
    Uid
);

/// Namespace and name of a namespaced object.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NamespacedName {
    /// Namespace.
    pub namespace: Arc<str>,
    /// Name within the namespace.
    pub name: Arc<str>,
}

impl From<&ObjectMeta> for NamespacedName {
    /// Of an object. What is missing is empty; no API server sends that.
    fn from(metadata: &ObjectMeta) -> Self {
        Self::new(
            metadata.namespace.as_deref().unwrap_or_default(),
            metadata.name.as_deref().unwrap_or_default(),
        )
    }
}

impl NamespacedName {
    /// Builds the key from its two halves.
    pub fn new(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    /// Parses `namespace/name`; a text without a slash is a name in `default`.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        match text.split_once('/') {
            Some((namespace, name)) => Self::new(namespace, name),
            None => Self::new("default", text),
        }
    }
}

impl fmt::Display for NamespacedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl fmt::Debug for NamespacedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Key of a Pod.
pub type PodKey = NamespacedName;

/// Key of a node class object: which kind, and its name (node classes are cluster-scoped).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeClassKey {
    /// API group, such as `karpenter.k8s.aws`.
    pub group: Arc<str>,
    /// Kind, such as `EC2NodeClass`.
    pub kind: Arc<str>,
    /// Object name.
    pub name: Arc<str>,
}

impl NodeClassKey {
    /// Builds the key from its parts.
    pub fn new(
        group: impl Into<Arc<str>>,
        kind: impl Into<Arc<str>>,
        name: impl Into<Arc<str>>,
    ) -> Self {
        Self {
            group: group.into(),
            kind: kind.into(),
            name: name.into(),
        }
    }
}

impl fmt::Display for NodeClassKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind, self.name)
    }
}

/// An object that effects and records speak of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ObjectRef {
    /// A Node.
    Node(NodeName),
    /// A NodeClaim.
    Claim(ClaimName),
    /// A NodePool.
    Pool(PoolName),
    /// A node class of some provider.
    NodeClass(NodeClassKey),
    /// A NodeOverlay.
    Overlay(Arc<str>),
    /// A NodePoolPolicy.
    Policy(Arc<str>),
    /// A Pod.
    Pod(PodKey),
    /// A CapacityBuffer.
    Buffer(NamespacedName),
    /// A ProvisioningRequest.
    Request(NamespacedName),
    /// A Deployment.
    Deployment(NamespacedName),
}

impl ObjectRef {
    /// The object's kind, as Kubernetes spells it (for a node class: its own kind).
    #[must_use]
    pub fn kind(&self) -> &str {
        match self {
            Self::Node(_) => "Node",
            Self::Claim(_) => "NodeClaim",
            Self::Pool(_) => "NodePool",
            Self::NodeClass(key) => &key.kind,
            Self::Overlay(_) => "NodeOverlay",
            Self::Policy(_) => "NodePoolPolicy",
            Self::Pod(_) => "Pod",
            Self::Buffer(_) => "CapacityBuffer",
            Self::Request(_) => "ProvisioningRequest",
            Self::Deployment(_) => "Deployment",
        }
    }

    /// The object's name, within its namespace if it has one.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Node(name) => name.as_str(),
            Self::Claim(name) => name.as_str(),
            Self::Pool(name) => name.as_str(),
            Self::NodeClass(key) => &key.name,
            Self::Overlay(name) | Self::Policy(name) => name,
            Self::Pod(key) | Self::Buffer(key) | Self::Request(key) | Self::Deployment(key) => {
                &key.name
            }
        }
    }

    /// The object's namespace; `None` for kinds that have none.
    #[must_use]
    pub fn namespace(&self) -> Option<&str> {
        match self {
            Self::Pod(key) | Self::Buffer(key) | Self::Request(key) | Self::Deployment(key) => {
                Some(&key.namespace)
            }
            Self::Node(_)
            | Self::Claim(_)
            | Self::Pool(_)
            | Self::NodeClass(_)
            | Self::Overlay(_)
            | Self::Policy(_) => None,
        }
    }
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(name) => write!(f, "node/{name}"),
            Self::Claim(name) => write!(f, "nodeclaim/{name}"),
            Self::Pool(name) => write!(f, "nodepool/{name}"),
            Self::NodeClass(key) => write!(f, "{}/{}", key.kind.to_lowercase(), key.name),
            Self::Overlay(name) => write!(f, "nodeoverlay/{name}"),
            Self::Policy(name) => write!(f, "nodepoolpolicy/{name}"),
            Self::Pod(key) => write!(f, "pod/{key}"),
            Self::Buffer(key) => write!(f, "capacitybuffer/{key}"),
            Self::Request(key) => write!(f, "provisioningrequest/{key}"),
            Self::Deployment(key) => write!(f, "deployment/{key}"),
        }
    }
}
