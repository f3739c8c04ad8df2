//! Edits of the list of finalizers.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use mortise_apis::labels;

/// All finalizers of an object after an edit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finalizers(pub Vec<String>);

impl Finalizers {
    /// Those of the object, and one more.
    #[must_use]
    pub fn with(meta: &ObjectMeta, finalizer: &str) -> Self {
        let mut all = meta.finalizers.clone().unwrap_or_default();
        all.push(finalizer.to_owned());
        Self(all)
    }

    /// Those of the object except one.
    #[must_use]
    pub fn without(meta: &ObjectMeta, finalizer: &str) -> Self {
        let mut all = meta.finalizers.clone().unwrap_or_default();
        all.retain(|each| each != finalizer);
        Self(all)
    }

    /// The termination finalizer is one of them.
    #[must_use]
    pub fn includes_ours(&self) -> bool {
        self.0
            .iter()
            .any(|each| each == labels::TERMINATION_FINALIZER)
    }
}
