//! The scheduler's extender, as a port: this crate does not know the webhooks.

use std::sync::Arc;

use jiff::Timestamp;
use mortise_apis::k8s;
use mortise_state::snapshot::Snapshot;

/// What the virtual scheduler asks after its own filters.
pub trait Extender: Send {
    /// Names that stay, of those offered.
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
