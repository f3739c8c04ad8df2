//! What handlers see of the process around them.

use std::sync::Arc;

use jiff::Timestamp;
use mortise_state::snapshot::Snapshot;

/// The living process as handlers see it: an immutable snapshot, its freshness, and the clock.
pub trait ClusterView: Send + Sync + 'static {
    /// The newest snapshot. One atomic load.
    fn snapshot(&self) -> Arc<Snapshot>;

    /// Milliseconds since the snapshot was last known to be complete: since the last news, or since the watches last
    /// proved that there is none. A stalled watch lets this grow.
    fn age_ms(&self) -> i64;

    /// Now.
    fn now(&self) -> Timestamp;
}
