//! Karpenter's way on the simulated cluster: every pod gets its node, and nodes that are not needed go.

use crate::world::scenarios::{deployment, long, objects, pool};
use mortise_planning::settings::Settings;
use mortise_sim::baseline::SimulatedPolicy;
use mortise_sim::scenario::{ScenarioReport, ScenarioSpec, SimulatedService, play};
use serde_json::{Value, json};

fn played(timeline: &Value, more: &[Value]) -> ScenarioReport {
    let world = crate::world::options(1);
    let spec = ScenarioSpec::from_document(&long("1h", timeline)).unwrap();
    let mut pool = pool();
    pool["spec"]["disruption"] = json!({
        "consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "1m",
        "budgets": [{ "nodes": "100%" }],
    });
    let manifests: Vec<Value> = [pool, deployment(4)]
        .into_iter()
        .chain(more.iter().cloned())
        .collect();
    let objects = objects(&manifests).unwrap();
    let cloud = (world.catalog, world.well_known);
    let baseline = SimulatedPolicy::Karpenter;
    let service = SimulatedService {
        settings: baseline.settings(Settings::default()),
        deciders: Box::new(move || baseline.deciders(mortise_deciders::all())),
        extender: None,
    };
    play(&spec, objects, cloud, service).unwrap()
}

#[test]
fn every_pod_gets_a_node_and_unused_nodes_go() {
    let timeline = json!([
        { "at": "5m", "scale": { "deployment": "web", "replicas": 20 } },
        { "at": "20m", "scale": { "deployment": "web", "replicas": 2 } },
        { "at": "30m", "crash": {} },
        { "at": "40m", "interrupt": { "count": 1 } },
    ]);
    let report = played(&timeline, &[]);
    let at = |minute: i64| {
        let mut samples = report.samples.iter().rev();
        samples.find(|each| each.seconds <= minute * 60).unwrap()
    };
    assert_eq!(at(18).pods_running, 20);
    assert_eq!((at(60).pods_running, at(60).pods_pending), (2, 0));
    assert!(at(60).price_micro_usd * 4 < at(18).price_micro_usd);
    assert_eq!(report.totals.violations, Vec::<String>::new());
    // A batch of 1 s, and kube-scheduler's word before it: slower than mortise.
    assert!(report.scores.pending_s.p50 >= 1, "{:?}", report.scores);
}

#[test]
fn a_buffer_that_pods_have_used_is_filled_again() {
    let buffer = json!({
        "kind": "CapacityBuffer", "metadata": { "name": "web" },
        "spec": { "scalableRef": { "apiGroup": "apps", "kind": "Deployment", "name": "web" }, "replicas": 12 },
    });
    let timeline = json!([{ "at": "5m", "scale": { "deployment": "web", "replicas": 16 } }]);
    let price = |more: &[Value]| {
        let report = played(&timeline, more);
        report.samples.last().unwrap().price_micro_usd
    };
    let (with, without) = (price(&[buffer]), price(&[]));
    assert!(with * 4 > without * 5, "{with} {without}");
}

#[test]
fn one_seed_gives_one_history() {
    let timeline = json!([{ "at": "5m", "scale": { "deployment": "web", "replicas": 9 } }]);
    assert_eq!(played(&timeline, &[]), played(&timeline, &[]));
}
