//! The CustomResourceDefinitions, generated from the types.
//!
//! The types carry the rules of their fields. Here are added the rules that depend on the provider (which label domains
//! are its own) and what stands beside the schema: names, printer columns and subresources.

mod defaults;
mod kinds;
mod restrictions;
mod structural;
mod v1beta1;

use std::sync::OnceLock;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde::Deserialize as _;
use serde_json::Value;

pub use v1beta1::with_conversion;

/// Which definitions belong together. A cluster has one set: the sets differ in the label domains they protect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CrdSet {
    /// The kinds that every provider needs, without a provider.
    Core,
    /// With the simulated provider.
    Kwok,
    /// With Amazon EC2.
    Aws,
}

impl CrdSet {
    /// All sets.
    pub const ALL: [Self; 3] = [Self::Core, Self::Kwok, Self::Aws];

    /// Name of the set, as in the folder of its manifests.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Core => "core",
            Self::Kwok => "kwok",
            Self::Aws => "aws",
        }
    }

    /// The definitions as plain JSON, in the order of their file names. They are generated once per process.
    #[must_use]
    pub fn manifests(self) -> &'static [CrdManifest] {
        static CORE: OnceLock<Vec<CrdManifest>> = OnceLock::new();
        static KWOK: OnceLock<Vec<CrdManifest>> = OnceLock::new();
        static AWS: OnceLock<Vec<CrdManifest>> = OnceLock::new();
        let generated = match self {
            Self::Core => &CORE,
            Self::Kwok => &KWOK,
            Self::Aws => &AWS,
        };
        generated.get_or_init(|| kinds::manifests(self))
    }

    /// The definitions as typed objects, in the same order.
    ///
    /// # Errors
    /// When a schema does not fit the typed form; a test generates every set, so this means a broken build.
    pub fn definitions(self) -> Result<Vec<CustomResourceDefinition>, serde_json::Error> {
        self.manifests()
            .iter()
            .map(|each| CustomResourceDefinition::deserialize(&each.definition))
            .collect()
    }
}

/// One definition and the file that it belongs in.
#[derive(Clone, Debug, PartialEq)]
pub struct CrdManifest {
    /// File name: `<group>_<plural>.yaml`.
    pub file_name: String,
    /// The definition.
    pub definition: Value,
}

/// The definitions of a set.
///
/// # Errors
/// See [`CrdSet::definitions`].
pub fn crds(set: CrdSet) -> Result<Vec<CustomResourceDefinition>, serde_json::Error> {
    set.definitions()
}

/// The definitions of the set with this name, as plain JSON; `None` when there is no such set.
#[must_use]
pub fn set(name: &str) -> Option<Vec<Value>> {
    let set = CrdSet::ALL.into_iter().find(|set| set.as_str() == name)?;
    Some(
        set.manifests()
            .iter()
            .map(|each| each.definition.clone())
            .collect(),
    )
}
