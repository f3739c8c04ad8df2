//! A cluster as recorded at one time: the objects that the watches of the service would deliver, the instance types of its node
//! classes, and the settings. It is what decisions depend on, and nothing else.
//!
//! | what | where |
//! |---|---|
//! | the file: compressed lines of JSON, its version, its errors | `file.rs`, `file_error.rs` |
//! | names replaced by hashes | `hashed_names.rs` |
//!
//! Invariant: objects are of the types that the watches feed to the index, so there is no second reader of Kubernetes objects.

mod file;
mod file_error;
mod hashed_names;

use std::collections::BTreeMap;

use jiff::Timestamp;
use mortise_apis::labels::WellKnown;
use mortise_apis::names::NodeClassKey;
use mortise_apis::node_class::NodeClassKind;
use mortise_cloudprovider::InstanceType;
use mortise_planning::scheduling::SchedulerConfig;
use mortise_planning::settings::Settings;
use mortise_state::resource_kinds::{Object, ObjectKey, reduced};

pub use file::FORMAT_VERSION;
pub use file_error::SnapshotFileError;
pub use hashed_names::{Digest, NameHasher};

/// Everything that decisions depend on, at one time.
#[derive(Clone, Debug)]
pub struct RecordedCluster {
    /// When it was recorded.
    pub taken_at: Timestamp,
    /// Version of mortise that recorded it.
    pub recorded_by: String,
    /// Settings of the deciders. Default spread constraints are derived from [`Self::scheduler_config`].
    pub settings: Settings,
    /// Default spread constraints as configured.
    pub scheduler_config: SchedulerConfig,
    /// Label keys of the providers.
    pub well_known: WellKnown,
    /// Node classes that the providers serve. NodePools and NodeClaims of others are another autoscaler's.
    pub served: Vec<NodeClassKind>,
    /// Objects by key.
    pub objects: BTreeMap<ObjectKey, Object>,
    /// Instance types of each node class that could be resolved.
    pub catalogs: BTreeMap<NodeClassKey, Vec<InstanceType>>,
    /// Names were replaced by hashes.
    pub names_are_hashed: bool,
}

impl RecordedCluster {
    /// Adds an object, without what no decision reads.
    pub fn add(&mut self, object: Object) {
        let groups: Vec<&str> = self.served.iter().map(|kind| kind.group).collect();
        let object = reduced(object, &groups);
        self.objects.insert(object.key(), object);
    }

    /// Number of objects of each kind, by name of the kind.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for key in self.objects.keys() {
            *counts.entry(key.kind().to_string()).or_default() += 1;
        }
        counts
    }
}
