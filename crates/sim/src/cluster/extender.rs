//! Port for the scheduler's extender: this crate does not depend on the webhooks.

use std::sync::Arc;

use jiff::Timestamp;
use mortise_apis::k8s;
use mortise_state::snapshot::Snapshot;

/// An extender, called by the virtual scheduler after its own filters.
pub trait Extender: Send {
    /// The given nodes that pass the filter.
    fn filter(
        &self,
        snapshot: &Arc<Snapshot>,
        now: Timestamp,
        pod: &k8s::Pod,
        nodes: &[String],
    ) -> Vec<String>;

    /// Scores 0 to 10.
    fn prioritize(
        &self,
        snapshot: &Arc<Snapshot>,
        now: Timestamp,
        pod: &k8s::Pod,
        nodes: &[String],
    ) -> Vec<(String, i64)>;
}
