//! The cluster that reviews and extender calls are asked about.

use std::sync::{Arc, LazyLock};

use jiff::Timestamp;
use mortise_state::snapshot::Snapshot;

#[path = "../../webhooks/tests/world/mod.rs"]
#[expect(
    clippy::indexing_slicing,
    reason = "support of the tests of the webhooks, which are the same cluster's"
)]
mod world;

/// A pool with nodes and pods, the same for every input.
static SNAPSHOT: LazyLock<Arc<Snapshot>> = LazyLock::new(|| {
    let mut world = world::World::new();
    for name in ["web", "batch"] {
        world.pool(&world::pool(name, &serde_json::json!({})));
        for number in 0..3 {
            world.node(name, "m5.xlarge", number, number);
        }
    }
    Arc::new(world.snapshot())
});

/// The cluster as handlers see it.
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
        world::now()
    }
}
