//! Edits of the list of finalizers.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use mortise_apis::labels;

/// The finalizers of an object after an edit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finalizers {
    /// All of them.
    pub all: Vec<String>,
    /// The termination finalizer is one of them.
    pub includes_ours: bool,
}

impl Finalizers {
    /// Those of the object, and one more.
    #[must_use]
    pub fn with(meta: &ObjectMeta, finalizer: &str) -> Self {
        let mut all = meta.finalizers.clone().unwrap_or_default();
        all.push(finalizer.to_owned());
        Self::new(all)
    }

    /// Those of the object except one.
    #[must_use]
    pub fn without(meta: &ObjectMeta, finalizer: &str) -> Self {
        let mut all = meta.finalizers.clone().unwrap_or_default();
        all.retain(|each| each != finalizer);
        Self::new(all)
    }

    fn new(all: Vec<String>) -> Self {
        let includes_ours = all.iter().any(|each| each == labels::TERMINATION_FINALIZER);
        Self { all, includes_ours }
    }
}
