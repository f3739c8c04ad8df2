//! Watched objects, their kinds and keys: generated from the table.

use std::fmt;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use mortise_apis::k8s;
use mortise_apis::karpenter::capacitybuffer::CapacityBuffer;
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::karpenter::nodeoverlay::NodeOverlay;
use mortise_apis::karpenter::nodepool::NodePool;
use mortise_apis::names::{
    ClaimName, NamespacedName, NodeClassKey, NodeName, ObjectRef, PodKey, PoolName,
};
use mortise_apis::node_class::NodeClassObject;
use mortise_apis::node_pool_policy::NodePoolPolicy;
use mortise_apis::schema::api_kind::ApiObject;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::resource_kind::{ResourceKind, WatchCondition};
use super::table::watched_kinds;

/// A type of watched objects.
pub trait Watched: Sized {
    /// Key of an object among those of its kind.
    type Key: Clone + Ord;

    /// Key of the object. An object without a name gets an empty one, which no API server sends.
    fn key(&self) -> Self::Key;

    /// `metadata.resourceVersion`.
    fn resource_version(&self) -> Option<&str>;
}

/// A key that is made of the namespace and the name of an object.
trait WatchedKey {
    fn from_names(namespace: &str, name: &str) -> Self;
}

impl WatchedKey for NamespacedName {
    fn from_names(namespace: &str, name: &str) -> Self {
        Self::new(namespace, name)
    }
}

impl WatchedKey for NodeName {
    fn from_names(_: &str, name: &str) -> Self {
        name.into()
    }
}

impl WatchedKey for ClaimName {
    fn from_names(_: &str, name: &str) -> Self {
        name.into()
    }
}

impl WatchedKey for PoolName {
    fn from_names(_: &str, name: &str) -> Self {
        name.into()
    }
}

impl WatchedKey for Arc<str> {
    fn from_names(_: &str, name: &str) -> Self {
        name.into()
    }
}

impl Watched for NodeClassObject {
    type Key = NodeClassKey;

    fn key(&self) -> NodeClassKey {
        self.key.clone()
    }

    fn resource_version(&self) -> Option<&str> {
        Self::resource_version(self)
    }
}

/// The first of two items for a kind without parameters, the second for a kind with parameters.
macro_rules! by_parameters {
    ([] { $($plain:tt)* } { $($parameterized:tt)* }) => { $($plain)* };
    ([$($parameter:ident)+] { $($plain:tt)* } { $($parameterized:tt)* }) => { $($parameterized)* };
}

macro_rules! last_parameter {
    ($last:ident) => { $last };
    ($_:ident $($rest:ident)+) => { last_parameter!($($rest)+) };
}

macro_rules! define_objects {
    ($(
        $name:ident $({ $($parameter:ident),* })?:
        $type:ty, $key:ty, $condition:ident, $storage:ident $(($($field:ident).+))?;
    )*) => {
        /// A watched object.
        #[derive(Clone, Debug)]
        #[allow(missing_docs, reason = "each variant is the kind of its name")]
        pub enum Object {
            $($name(Box<$type>),)*
        }

        /// A watched kind. Node classes are one variant; a restart of one provider's watch lists only that provider's.
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[allow(missing_docs, reason = "each variant is the kind of its name")]
        pub enum ObjectKind {
            $($name $({ $($parameter: Arc<str>),* })?,)*
        }

        /// Key of a watched object: enough to delete it, even if the object itself cannot be parsed.
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[allow(missing_docs, reason = "each variant is the key of the kind of its name")]
        pub enum ObjectKey {
            $($name($key),)*
        }

        impl Object {
            /// Key of the object. An object without a name gets an empty one, which no API server sends.
            #[must_use]
            pub fn key(&self) -> ObjectKey {
                match self {
                    $(Self::$name(object) => ObjectKey::$name(Watched::key(&**object)),)*
                }
            }

            /// Version of the object, as etcd counts them; `None` if it has none or it is not a number.
            #[must_use]
            pub fn version(&self) -> Option<u64> {
                let version = match self {
                    $(Self::$name(object) => Watched::resource_version(&**object),)*
                };
                version?.parse().ok()
            }

            /// Metadata, to be changed; `None` for node classes, which are kept as they are stored.
            pub fn metadata_mut(&mut self) -> Option<&mut ObjectMeta> {
                match self {
                    $(Self::$name(object) => by_parameters!(
                        [$($($parameter)*)?]
                        { Some(&mut object.metadata) }
                        { { let _ = object; None } }
                    ),)*
                }
            }
        }

        impl Serialize for Object {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                match self {
                    $(Self::$name(object) => object.serialize(serializer),)*
                }
            }
        }

        impl ObjectKey {
            /// The key's kind.
            #[must_use]
            #[allow(unused_variables, reason = "few kinds have parameters")]
            pub fn kind(&self) -> ObjectKind {
                match self {
                    $(Self::$name(key) => ObjectKind::$name $({
                        $($parameter: Arc::clone(&key.$parameter)),*
                    })?,)*
                }
            }
        }

        impl ObjectKind {
            /// Key of an object of this kind. Kinds that are not namespaced ignore the namespace.
            #[must_use]
            pub fn key(&self, namespace: &str, name: &str) -> ObjectKey {
                match self {
                    $(Self::$name $({ $($parameter),* })? => ObjectKey::$name(by_parameters!(
                        [$($($parameter)*)?]
                        { <$key as WatchedKey>::from_names(namespace, name) }
                        { <$key>::new($($(Arc::clone($parameter),)*)? name) }
                    )),)*
                }
            }

            /// Deserializes an object of this kind.
            ///
            /// # Errors
            /// The input is not an object of this kind.
            pub fn deserialize<'de, D: Deserializer<'de>>(
                &self,
                deserializer: D,
            ) -> Result<Object, D::Error> {
                Ok(match self {
                    $(Self::$name $({ $($parameter),* })? => Object::$name(Box::new(by_parameters!(
                        [$($($parameter)*)?]
                        { <$type as Deserialize>::deserialize(deserializer)? }
                        { <$type>::deserialize($($(Arc::clone($parameter),)*)? deserializer)? }
                    ))),)*
                })
            }
        }

        impl fmt::Display for ObjectKind {
            #[allow(unused_variables, reason = "only the last parameter is the kind")]
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $(Self::$name $({ $($parameter),* })? => by_parameters!(
                        [$($($parameter)*)?]
                        { <$type as ApiObject>::KIND.unique_name() }
                        { last_parameter!($($($parameter)*)?) }
                    ),)*
                })
            }
        }

        impl ResourceKind {
            /// Every row of the table, in order, except node classes: which of them there are depends on the providers.
            #[must_use]
            pub fn table() -> Vec<Self> {
                let rows = [$(by_parameters!(
                    [$($($parameter)*)?]
                    {
                        Some(Self {
                            index: ObjectKind::$name,
                            api: <$type as ApiObject>::KIND,
                            condition: WatchCondition::$condition,
                        })
                    }
                    { None }
                ),)*];
                rows.into_iter().flatten().collect()
            }
        }

        $(
            impl From<$type> for Object {
                fn from(object: $type) -> Self {
                    Self::$name(Box::new(object))
                }
            }

            by_parameters!(
                [$($($parameter)*)?]
                {
                    impl Watched for $type {
                        type Key = $key;

                        fn key(&self) -> $key {
                            let metadata = self.metadata();
                            <$key as WatchedKey>::from_names(
                                metadata.namespace.as_deref().unwrap_or_default(),
                                metadata.name.as_deref().unwrap_or_default(),
                            )
                        }

                        fn resource_version(&self) -> Option<&str> {
                            self.metadata().resource_version.as_deref()
                        }
                    }
                }
                {}
            );
        )*
    };
}
watched_kinds!(define_objects);

impl ObjectKind {
    /// Parses the JSON text of an object of this kind.
    ///
    /// # Errors
    /// The text is not an object of this kind.
    pub fn parse(&self, text: &str) -> Result<Object, serde_json::Error> {
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let object = self.deserialize(&mut deserializer)?;
        deserializer.end()?;
        Ok(object)
    }
}

impl From<&ObjectRef> for ObjectKey {
    fn from(target: &ObjectRef) -> Self {
        match target {
            ObjectRef::Node(name) => Self::Node(name.clone()),
            ObjectRef::Claim(name) => Self::Claim(name.clone()),
            ObjectRef::Pool(name) => Self::Pool(name.clone()),
            ObjectRef::NodeClass(key) => Self::NodeClass(key.clone()),
            ObjectRef::Overlay(name) => Self::Overlay(Arc::clone(name)),
            ObjectRef::Policy(name) => Self::Policy(Arc::clone(name)),
            ObjectRef::Pod(key) => Self::Pod(key.clone()),
            ObjectRef::Buffer(key) => Self::Buffer(key.clone()),
            ObjectRef::Request(key) => Self::Request(key.clone()),
            ObjectRef::Deployment(key) => Self::Deployment(key.clone()),
        }
    }
}
