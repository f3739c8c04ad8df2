//! The simulated cluster of integration tests: provisioning and disruption are stepped, the lifecycle of nodes is
//! automatic.

#![allow(
    dead_code,
    reason = "each test binary uses its own part of this module"
)]

use mortise_cloudprovider::InstanceType;
use mortise_deciders::{DisruptionDecider, ProvisioningDecider};
use mortise_engine::decider::Decider;
use mortise_engine::record::Verdict;
use mortise_planning::context::PlanningContext;
use mortise_planning::reason::{DisruptionBlocker, Reason};
use mortise_planning::settings::Settings;
use mortise_sim::test_cluster::{TestCluster, ordinary_types};
use mortise_state::feasible_pods::FeasiblePods;
use serde_json::json;

fn deciders(_: &Settings) -> Vec<Box<dyn Decider>> {
    vec![
        Box::new(ProvisioningDecider::new()),
        Box::new(DisruptionDecider::new()),
    ]
}

/// A cluster with one NodePool `default` and these instance types.
pub(crate) fn automatic_cluster(types: Vec<InstanceType>, settings: Settings) -> TestCluster {
    let mut cluster = TestCluster::with_types(deciders, settings, types);
    cluster.put_automatic_pool();
    cluster
}

/// The same with types of 2, 4 and 8 CPUs, and default settings.
pub(crate) fn ordinary_cluster() -> TestCluster {
    automatic_cluster(ordinary_types(), Settings::default())
}

/// Nodes `m0`, `m1`, ... of 2 CPUs, each with a ready pod that requests this much, in thousandths of a CPU.
pub(crate) fn nodes_with_a_pod(world: &mut TestCluster, nodes: usize, cpu: i64) {
    for at in 0..nodes {
        let name = format!("m{at}");
        world.running_node(&name, "small", "default");
        let ready = world.true_condition("Ready");
        let running = json!({
            "spec": { "nodeName": name },
            "status": { "phase": "Running", "conditions": [ready] },
        });
        world.pods("web", 1, cpu, &running);
    }
}

/// Why nodes were not disrupted.
pub(crate) fn refusals(world: &TestCluster) -> impl Iterator<Item = &DisruptionBlocker> {
    let records = world.records_of(Verdict::Refused).into_iter();
    records
        .flat_map(|record| &record.reasons)
        .filter_map(|reason| match reason {
            Reason::NotDisrupted(blocker) => Some(blocker),
            _ => None,
        })
}

/// Nodes of a type with one pod of this much CPU on each.
pub(crate) fn fleet(world: &mut TestCluster, of: &str, cpus: &[i64]) {
    for (at, cpu) in cpus.iter().enumerate() {
        let name = format!("m{at}");
        world.running_node(&name, of, "default");
        world.pods(
            "web",
            1,
            *cpu,
            &json!({ "spec": { "nodeName": name }, "status": { "phase": "Running" } }),
        );
    }
}

/// What a planner says of the cluster as it is now.
pub(crate) fn plan<T>(cluster: &mut TestCluster, with: impl FnOnce(PlanningContext<'_>) -> T) -> T {
    let snapshot = cluster.snapshot();
    with(PlanningContext {
        now: cluster.now(),
        snapshot: &snapshot,
        settings: &cluster.settings,
        feasible: &FeasiblePods::default(),
        seed: 0,
    })
}

/// Marks a NodeClaim as drifted; nothing if there is none of this name.
pub(crate) fn drift(world: &mut TestCluster, name: &str) {
    let claim = world.get(&format!("NodeClaim/{name}"));
    let Some(conditions) = claim["status"]["conditions"].as_array() else {
        return;
    };
    let mut drifted = world.true_condition("Drifted");
    drifted["reason"] = json!("NodePoolDrifted");
    let conditions = [conditions.as_slice(), &[drifted]].concat();
    let change = json!({ "status": { "conditions": conditions } });
    world.edit(&format!("NodeClaim/{name}"), &change);
}

/// Pods of an app that are bound to nodes.
pub(crate) fn running(world: &TestCluster, app: &str) -> usize {
    let prefix = format!("default/{app}-");
    let bound = world.bound();
    let pods = bound.values().flatten();
    pods.filter(|name| name.starts_with(&prefix)).count()
}

/// Numbers below a bound, the same for the same seed.
pub(crate) fn random(seed: u64) -> impl FnMut(u64) -> usize {
    let mut state = seed;
    move |below| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from((state >> 33) % below).unwrap_or(0)
    }
}
