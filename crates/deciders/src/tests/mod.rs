//! The simulated cluster of unit tests, with the deciders of nodes in it, and tests of all of them together.

mod coexistence;
mod node_histories;
mod pauses;

use mortise_engine::decider::Decider;
use mortise_planning::settings::Settings;
use mortise_sim::test_cluster::TestCluster;

use crate::{
    ClaimConditionsDecider, DisruptionDecider, ExpirationDecider, GarbageCollectionDecider,
    InstanceTaggingDecider, InterruptionDecider, LifecycleDecider, NodeClassDecider,
    NodeOverlayDecider, NodePoolDecider, NodePoolPolicyDecider, RepairDecider,
    StaticCapacityDecider, TerminationDecider,
};

/// All but those that place pods; disruption only where pools have replicas, whose drift it replaces.
fn deciders(settings: &Settings) -> Vec<Box<dyn Decider>> {
    let mut all: Vec<Box<dyn Decider>> = vec![
        Box::new(NodeClassDecider::new()),
        Box::new(NodePoolDecider::new()),
        Box::new(NodeOverlayDecider::default()),
        Box::new(NodePoolPolicyDecider::default()),
        Box::new(InterruptionDecider::new()),
        Box::new(LifecycleDecider::new()),
        Box::new(TerminationDecider::new()),
        Box::new(ClaimConditionsDecider::new()),
        Box::new(ExpirationDecider::new()),
        Box::new(InstanceTaggingDecider::new()),
        Box::new(GarbageCollectionDecider::new()),
        Box::new(RepairDecider::new()),
        Box::new(StaticCapacityDecider::new()),
    ];
    if settings.gates.static_capacity {
        all.push(Box::new(DisruptionDecider::new()));
    }
    all
}

/// A cluster with one node class and one pool, both called `default`, ready.
pub(crate) fn cluster() -> TestCluster {
    cluster_with(Settings::default())
}

/// Status, reason and message of an object's `ValidationSucceeded`, and the status of its `Ready`.
pub(crate) fn validation(world: &TestCluster, object: &str) -> [String; 4] {
    let list = world.get(object)["status"]["conditions"]
        .as_array()
        .unwrap();
    let of = |type_: &str, field: &str| {
        let found = list.iter().find(|each| each["type"] == type_).unwrap();
        found[field].as_str().unwrap().to_owned()
    };
    let validation = |field: &str| of("ValidationSucceeded", field);
    [
        validation("status"),
        validation("reason"),
        validation("message"),
        of("Ready", "status"),
    ]
}

/// [`cluster`] with other settings.
pub(crate) fn cluster_with(settings: Settings) -> TestCluster {
    let mut cluster = bare_cluster(settings);
    cluster.put_default_pool();
    cluster.settle();
    cluster
}

/// A cluster without objects. Nodes and conditions are written at once, so that each test shows one thing at a time.
pub(crate) fn bare_cluster(settings: Settings) -> TestCluster {
    let settings = Settings {
        join_grace_ms: 0,
        held_grace_ms: 0,
        condition_grace_ms: 0,
        reason_grace_ms: 0,
        end_grace_ms: 0,
        ..settings
    };
    TestCluster::new(deciders, settings)
}
