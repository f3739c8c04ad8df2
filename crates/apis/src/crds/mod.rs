//! The CustomResourceDefinitions, generated from the types.
//!
//! The types carry the rules of their fields. Here are added the rules that depend on the provider (which label domains
//! are its own) and what a definition has next to the schema: names, printer columns and subresources.

mod defaults;
mod kinds;
mod restrictions;
mod v1beta1;

use std::fmt;
use std::sync::{Arc, OnceLock};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde::Deserialize as _;

use crate::node_class::{NodeClassApi, NodeClassKind, NodeClassRegistry};
use crate::schema::crd_manifest::CrdManifest;

pub use v1beta1::with_conversion;

/// The definitions of a cluster: the kinds that every provider needs, and the node classes that are served. The definitions
/// of all kinds depend on the classes, whose label domains they protect.
#[derive(Clone, Default)]
pub struct CrdSet(Arc<Definitions>);

#[derive(Default)]
struct Definitions {
    known: NodeClassRegistry,
    kinds: Vec<NodeClassKind>,
    served: NodeClassRegistry,
    manifests: OnceLock<Vec<CrdManifest>>,
}

impl CrdSet {
    /// The definitions without a provider.
    #[must_use]
    pub fn core() -> &'static Self {
        static CORE: OnceLock<CrdSet> = OnceLock::new();
        CORE.get_or_init(Self::default)
    }

    /// The definitions where these kinds of node classes are served, out of those that the program knows.
    #[must_use]
    pub fn for_classes(known: &NodeClassRegistry, served: &[NodeClassKind]) -> Self {
        Self(Arc::new(Definitions {
            known: known.clone(),
            kinds: served.to_vec(),
            served: served
                .iter()
                .filter_map(|kind| known.iter().find(|class| class.kind() == *kind))
                .collect(),
            manifests: OnceLock::new(),
        }))
    }

    /// The definitions where this is the only class that the program knows, and it is served.
    #[must_use]
    pub fn of_class(class: &'static dyn NodeClassApi) -> Self {
        Self::for_classes(&NodeClassRegistry::new([class]), &[class.kind()])
    }

    /// Node classes that the program knows, also those that are not served.
    #[must_use]
    pub fn known(&self) -> &NodeClassRegistry {
        &self.0.known
    }

    /// Node classes that are served.
    #[must_use]
    pub fn served(&self) -> &NodeClassRegistry {
        &self.0.served
    }

    /// Kinds of node classes that are served, in the order in which they were given.
    #[must_use]
    pub fn kinds(&self) -> &[NodeClassKind] {
        &self.0.kinds
    }

    /// The definitions as plain JSON, in the order of their file names. They are generated once per set.
    #[must_use]
    pub fn manifests(&self) -> &[CrdManifest] {
        let Definitions {
            served, manifests, ..
        } = &*self.0;
        manifests.get_or_init(|| kinds::manifests(served))
    }

    /// The definitions as typed objects, in the same order.
    ///
    /// # Errors
    /// When a schema does not fit the typed form; a test generates every set, so this means a broken build.
    pub fn definitions(&self) -> Result<Vec<CustomResourceDefinition>, serde_json::Error> {
        self.manifests()
            .iter()
            .map(|each| CustomResourceDefinition::deserialize(&each.definition))
            .collect()
    }
}

impl fmt::Debug for CrdSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CrdSet").field(&self.0.kinds).finish()
    }
}
