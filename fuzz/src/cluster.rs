//! The cluster state on which the targets evaluate reviews and extender calls.

use std::sync::{Arc, LazyLock};

use jiff::Timestamp;
use mortise_state::snapshot::Snapshot;

#[path = "../../webhooks/tests/test_cluster/mod.rs"]
#[expect(
    clippy::indexing_slicing,
    reason = "test support of mortise-webhooks, shared by path"
)]
mod test_cluster;

/// A pool with nodes and pods, the same for every input.
static SNAPSHOT: LazyLock<Arc<Snapshot>> = LazyLock::new(|| {
    let mut cluster = test_cluster::TestCluster::new();
    for name in ["web", "batch"] {
        cluster.pool(&test_cluster::pool(name, &serde_json::json!({})));
        for number in 0..3 {
            cluster.node(name, "m5.xlarge", number, number);
        }
    }
    Arc::new(cluster.snapshot())
});

/// The fixed cluster state as the webhook handlers read it.
#[derive(Debug)]
pub(crate) struct Cluster;

impl mortise_webhooks::ClusterView for Cluster {
    fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&SNAPSHOT)
    }

    fn age_ms(&self) -> i64 {
        0
    }

    fn now(&self) -> Timestamp {
        test_cluster::now()
    }
}
