//! Finalizers of an object.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// The object has this finalizer.
#[must_use]
pub fn has_finalizer(meta: &ObjectMeta, finalizer: &str) -> bool {
    meta.finalizers
        .as_ref()
        .is_some_and(|all| all.iter().any(|each| each == finalizer))
}
