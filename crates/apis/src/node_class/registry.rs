//! The node classes of all providers.

use std::fmt;
use std::sync::Arc;

use super::api::NodeClassApi;
use super::kind::NodeClassKind;
use crate::labels::WellKnown;

/// Every kind of node class that this program knows, also those whose provider is not served: older versions of all kinds are
/// converted, and manifests of all providers get advice.
///
/// # Shape
/// The first is the default: what an object of an older version means that names no kind of class, and the example in
/// messages.
#[derive(Clone)]
pub struct NodeClassRegistry(Arc<[&'static dyn NodeClassApi]>);

impl NodeClassRegistry {
    /// These classes, the default one first.
    #[must_use]
    pub fn new<const N: usize>(classes: [&'static dyn NodeClassApi; N]) -> Self {
        Self(Arc::new(classes))
    }

    /// All classes.
    pub fn iter(&self) -> impl Iterator<Item = &'static dyn NodeClassApi> {
        self.0.iter().copied()
    }

    /// The default kind.
    #[must_use]
    pub fn default_kind(&self) -> Option<NodeClassKind> {
        self.0.first().map(|class| class.kind())
    }

    /// Kinds of all classes.
    pub fn kinds(&self) -> impl Iterator<Item = NodeClassKind> {
        self.0.iter().map(|class| class.kind())
    }

    /// The class of this kind, in whatever group.
    #[must_use]
    pub fn of_kind(&self, kind: &str) -> Option<&'static dyn NodeClassApi> {
        self.iter().find(|class| class.kind().kind == kind)
    }

    /// The class of this group.
    #[must_use]
    pub fn of_group(&self, group: &str) -> Option<&'static dyn NodeClassApi> {
        self.iter().find(|class| class.kind().group == group)
    }

    /// Labels with a meaning of their own, with those of all classes.
    #[must_use]
    pub fn well_known(&self) -> WellKnown {
        self.iter().fold(WellKnown::core(), |known, class| {
            class.labels().added_to(known)
        })
    }
}

impl FromIterator<&'static dyn NodeClassApi> for NodeClassRegistry {
    fn from_iter<I: IntoIterator<Item = &'static dyn NodeClassApi>>(classes: I) -> Self {
        Self(classes.into_iter().collect())
    }
}

impl Default for NodeClassRegistry {
    /// No class at all.
    fn default() -> Self {
        Self(Arc::new([]))
    }
}

impl fmt::Debug for NodeClassRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.kinds()).finish()
    }
}
