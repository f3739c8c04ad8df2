//! The structure that every Kubernetes object has: `metadata` and a few top-level fields.

// The macro names them, so that a crate with a kind need not.
#[doc(hidden)]
pub use {k8s_openapi, kube_core};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Declares one kind: a struct with `metadata` and the given fields, usable with a Kubernetes client.
///
/// Reading is lenient on purpose (absent fields take their default, unknown ones are ignored), because one odd object
/// must not stop the watch of its whole kind. Writing adds `apiVersion` and `kind` and leaves out fields that are at
/// their default, so that an object that was read and written again gained nothing.
#[macro_export]
macro_rules! object {
    (
        $(#[$doc:meta])*
        pub struct $root:ident($group:expr, $version:expr, $kind:expr, $plural:expr, $scope:ident) {
            $($(#[$field_doc:meta])* pub $field:ident as $json:literal: $ty:ty,)*
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct $root {
            /// Standard object metadata, without the record of field managers.
            pub metadata: $crate::schema::object::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
            $($(#[$field_doc])* pub $field: $ty,)*
        }

        impl<'de> serde::Deserialize<'de> for $root {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                // An attribute names a function by text, which would be searched for in the crate of the kind. The inner type has the
                // name of the kind because errors quote it.
                use $crate::schema::object::lean_metadata;

                #[derive(Default, serde::Deserialize)]
                #[serde(default)]
                struct $root {
                    #[serde(deserialize_with = "lean_metadata")]
                    metadata: $crate::schema::object::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
                    $(#[serde(rename = $json)] $field: $ty,)*
                }

                let $root { metadata, $($field),* } = $root::deserialize(deserializer)?;
                Ok(Self { metadata, $($field),* })
            }
        }

        impl serde::Serialize for $root {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                use serde::ser::SerializeMap as _;
                let mut map = serializer.serialize_map(None)?;
                map.serialize_entry("apiVersion", &<Self as $crate::schema::object::kube_core::Resource>::api_version(&()))?;
                map.serialize_entry("kind", $kind)?;
                map.serialize_entry("metadata", &self.metadata)?;
                $(if self.$field != <$ty>::default() {
                    map.serialize_entry($json, &self.$field)?;
                })*
                map.end()
            }
        }

        impl $crate::schema::api_kind::ApiObject for $root {
            const KIND: $crate::schema::api_kind::ApiKind = $crate::schema::api_kind::ApiKind {
                group: $group,
                version: $version,
                kind: $kind,
                plural: $plural,
                namespaced: $crate::is_namespaced!($scope),
            };

            fn metadata(&self) -> &$crate::schema::object::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &self.metadata
            }
        }

        impl $crate::schema::object::kube_core::Resource for $root {
            type DynamicType = ();
            type Scope = $crate::schema::object::kube_core::$scope;

            fn kind((): &()) -> std::borrow::Cow<'_, str> {
                $kind.into()
            }

            fn group((): &()) -> std::borrow::Cow<'_, str> {
                $group.into()
            }

            fn version((): &()) -> std::borrow::Cow<'_, str> {
                $version.into()
            }

            fn plural((): &()) -> std::borrow::Cow<'_, str> {
                $plural.into()
            }

            fn meta(&self) -> &$crate::schema::object::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut $crate::schema::object::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &mut self.metadata
            }
        }
    };
}
pub(crate) use object;

/// Whether a scope is that of namespaced kinds.
#[doc(hidden)]
#[macro_export]
macro_rules! is_namespaced {
    (NamespaceResourceScope) => {
        true
    };
    (ClusterResourceScope) => {
        false
    };
}

/// Reads `null` as the default of the type: Go programs write it for empty lists that they do not omit.
///
/// # Errors
/// The value is not of the type.
pub fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: serde::Deserialize<'de> + Default,
{
    use serde::Deserialize as _;
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// Deserializes metadata without the managed fields: they are often larger than the rest of the object and never read. Updates
/// that omit them do not change them.
///
/// # Errors
/// The value is no metadata.
pub fn lean_metadata<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<ObjectMeta, D::Error> {
    let mut metadata: ObjectMeta = null_as_default(deserializer)?;
    metadata.managed_fields = None;
    Ok(metadata)
}

/// `true` for the default of a type; default values are not serialized.
#[must_use]
pub fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
