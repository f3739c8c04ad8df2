//! What only the draining process knows: responses to its own requests.

use std::collections::BTreeMap;

use mortise_apis::names::{ObjectRef, PodKey, ProviderId, Uid};
use mortise_state::snapshot::Snapshot;

/// How the eviction of a pod failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvictionFailure {
    /// A permission is missing.
    Forbidden,
    /// An admission webhook or a policy denied it.
    Denied,
    /// The API server, or a webhook that it calls, does not respond.
    Unavailable,
    /// A PodDisruptionBudget, or another temporary cause.
    Blocked,
}

/// The last failure to evict a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvictionError {
    /// How it failed.
    pub failure: EvictionFailure,
    /// The message.
    pub message: String,
}

/// Last failures of the requests of one process. Other replicas work without them.
#[derive(Clone, Debug, Default)]
pub struct DrainErrors {
    /// Evictions that failed, with the UID of the pod.
    pub evictions: BTreeMap<PodKey, (Uid, EvictionError)>,
    /// Instances that the cloud did not terminate, with the message.
    pub instances: BTreeMap<ProviderId, String>,
    /// Writes that the API server rejected, with the message.
    pub writes: BTreeMap<ObjectRef, String>,
}

impl DrainErrors {
    /// Removes pods, instances and objects that no longer exist.
    pub fn prune(&mut self, snapshot: &Snapshot) {
        self.evictions
            .retain(|key, (uid, _)| snapshot.pods.get(key).is_some_and(|pod| pod.uid == *uid));
        self.instances
            .retain(|id, _| snapshot.nodes.contains(&**id));
        self.writes.retain(|target, _| match target {
            ObjectRef::Node(name) => snapshot.named.contains(name),
            ObjectRef::Claim(name) => snapshot.claims.contains(name),
            _ => false,
        });
    }
}
