//! A cloud and kubelets that are not ideal: quotas, throttled calls, lists that lag behind, images and volumes that take their time.

use crate::world::scenarios::{cloud, deployment, long, objects, played_with, pool, service};
use crate::world::{options, template};
use mortise_planning::settings::{RebalancePolicy, Settings};
use mortise_sim::NodeClaimStage;
use mortise_sim::scenario::{ScenarioReport, ScenarioRun, ScenarioSample, ScenarioSpec, play};
use serde_json::{Value, json};

/// A quiet scenario with these fields.
fn quiet(duration: &str, fields: &Value) -> Value {
    let mut document = long(duration, &json!([]));
    let spec = document["spec"].as_object_mut().unwrap();
    spec.extend(fields.as_object().unwrap().clone());
    document
}

/// vCPUs of the nodes of a capacity type at the end.
fn vcpus(report: &ScenarioReport, capacity_type: &str) -> i64 {
    let catalog = options(1).catalog;
    let nodes = report.nodes.iter();
    let of_type = nodes.filter(|node| node.capacity_type == capacity_type);
    of_type
        .map(|node| {
            let mut types = catalog.iter();
            let own = types.find(|each| *each.name == *node.instance_type);
            own.unwrap().capacity.cpu / 1000
        })
        .sum()
}

fn last(report: &ScenarioReport) -> &ScenarioSample {
    report.samples.last().unwrap()
}

#[test]
fn what_exceeds_a_quota_is_launched_elsewhere_or_not_at_all() {
    // 40 pods of 1.5 CPUs.
    let played = |quota: Value| {
        let document = quiet("40m", &json!({ "vcpuQuota": quota }));
        let report = played_with(&document, &[pool(), deployment(40)]).unwrap();
        assert_eq!(report.totals.violations, Vec::<String>::new(), "{quota}");
        let sample = last(&report);
        let vcpus = ["spot", "on-demand"].map(|kind| vcpus(&report, kind));
        (vcpus, sample.pods_running, sample.pods_pending)
    };
    let ([spot, on_demand], running, pending) = played(json!({ "spot": 24 }));
    assert!(spot <= 24 && on_demand > 0, "{spot} and {on_demand}");
    assert_eq!((running, pending), (40, 0));
    let ([spot, on_demand], running, pending) = played(json!({ "spot": 24, "onDemand": 16 }));
    assert!(spot <= 24 && on_demand <= 16, "{spot} and {on_demand}");
    assert!(running > 16 && pending > 0, "{running} run, {pending} wait");
}

#[test]
fn throttled_launches_are_asked_for_again() {
    let document = quiet("40m", &json!({ "throttledLaunchPercent": 60 }));
    let report = played_with(&document, &[pool(), deployment(40)]).unwrap();
    assert_eq!(report.totals.violations, Vec::<String>::new());
    assert_eq!(last(&report).pods_running, 40, "{:?}", last(&report));
}

/// The service lists instances every two minutes, and may not take for lost what a list does not have yet.
#[test]
fn an_instance_that_is_not_listed_yet_is_neither_lost_nor_launched_twice() {
    let visible = json!({ "instanceVisibleAfter": { "from": "30s", "to": "3m" } });
    let mut document = quiet("1h", &visible);
    let timeline: Vec<Value> = (0..6)
        .flat_map(|nth| {
            let at = |second: i64| format!("{}s", nth * 540 + second);
            [
                json!({ "at": at(0), "scale": { "deployment": "web", "replicas": 4 + 5 * nth } }),
                json!({ "at": at(4), "crash": {} }),
            ]
        })
        .collect();
    document["spec"]["timeline"] = json!(timeline);
    for seed in 1..=8 {
        document["spec"]["seed"] = json!(seed);
        let report = played_with(&document, &[pool(), deployment(4)]).unwrap();
        assert_eq!(
            report.totals.violations,
            Vec::<String>::new(),
            "seed {seed}"
        );
        assert_eq!(last(&report).pods_running, 29, "seed {seed}");
        let steps = report.node_claims.iter();
        let lost = steps.filter(|step| matches!(step.stage, NodeClaimStage::Deleted));
        assert_eq!(lost.count(), 0, "seed {seed}: {:?}", report.node_claims);
    }
}

/// Seconds from the start until a number of pods run.
fn run_after(fields: &Value, manifests: &[Value], pods: usize) -> i64 {
    let spec = ScenarioSpec::from_document(&quiet("20m", fields)).unwrap();
    let service = service(Settings::default());
    let mut run = ScenarioRun::new(spec, objects(manifests).unwrap(), cloud(), service).unwrap();
    let start = run.simulation().now();
    for second in 1..1_200 {
        let until = mortise_apis::values::after(start, second * 1_000);
        run.run_until(until, &mut |_| {}).unwrap();
        let all = run.simulation().api_server().iter();
        let ready = all.filter(|(_, object)| {
            let conditions = object["status"]["conditions"].as_array();
            let mut conditions = conditions.into_iter().flatten();
            object["status"]["phase"] == "Running"
                && conditions.any(|each| each["type"] == "Ready" && each["status"] == "True")
        });
        if ready.count() >= pods {
            return second;
        }
    }
    panic!("{pods} pods do not run");
}

#[test]
fn the_first_pod_on_a_node_waits_for_its_image() {
    let pull = json!({ "imagePullTime": { "from": "60s", "to": "60s" } });
    let pods = [pool(), deployment(4)];
    let (with, without) = (run_after(&pull, &pods, 4), run_after(&json!({}), &pods, 4));
    // No other pod has pulled it there. Other random numbers are drawn, too.
    assert!((55..=65).contains(&(with - without)), "{with}, {without}");
    // A pod that comes to a node which has it starts at once.
    let mut document = quiet("20m", &pull);
    document["spec"]["timeline"] = json!([
        { "at": "10m", "scale": { "deployment": "web", "replicas": 1 } },
        { "at": "12m", "scale": { "deployment": "web", "replicas": 2 } },
    ]);
    let mut pool = pool();
    pool["spec"]["disruption"]["consolidateAfter"] = json!("Never");
    let report = played_with(&document, &[pool, deployment(4)]).unwrap();
    let samples = report.samples.iter();
    let soon = samples.take_while(|each| each.seconds <= 12 * 60 + 30);
    assert_eq!(soon.last().unwrap().pods_running, 2, "{report:?}");
}

#[test]
fn volumes_take_their_time() {
    let set = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": { "name": "db" },
        "spec": {
            "replicas": 1, "template": template("db", "1", "1Gi"),
            "volumeClaimTemplates": [{ "metadata": { "name": "data" }, "spec": {} }],
        },
    });
    let attach = json!({ "volumeAttachTime": { "from": "45s", "to": "45s" } });
    let pods = [pool(), set];
    assert_eq!(
        run_after(&attach, &pods, 1) - run_after(&json!({}), &pods, 1),
        45
    );
    let pods = [pool(), deployment(1)];
    assert_eq!(
        run_after(&attach, &pods, 1),
        run_after(&json!({}), &pods, 1),
        "a pod without volumes"
    );
}

#[test]
fn what_the_cloud_recommends_to_leave_is_left_before_it_is_taken() {
    let played = |rebalance: RebalancePolicy| {
        let fields = json!({
            "spotInterruptionEvery": "20m", "rebalanceAhead": { "from": "5m", "to": "10m" },
            "timeline": [{ "at": "3h30m", "rebalance": { "count": 2 } }],
        });
        let spec = ScenarioSpec::from_document(&quiet("4h", &fields)).unwrap();
        let service = service(Settings {
            rebalance,
            ..Settings::default()
        });
        let objects = objects(&[pool(), deployment(30)]).unwrap();
        let report = play(&spec, objects, cloud(), service).unwrap();
        assert_eq!(report.totals.violations, Vec::<String>::new());
        let mut samples = report.samples.iter();
        let said = samples.find_map(|each| each.happened.clone());
        assert_eq!(said.unwrap(), "recommend to leave 2 spot instances");
        let reasons = &report.totals.events;
        let recommended = reasons["SpotRebalanceRecommendation"];
        (recommended, report.totals.interruptions)
    };
    let (recommended, interrupted) = played(RebalancePolicy::Ignore);
    assert!(recommended >= 8, "{recommended} events");
    assert!(interrupted >= 5, "{interrupted} interruptions");
    let (_, after_replacement) = played(RebalancePolicy::ReplaceFirst);
    assert_eq!(after_replacement, 0, "every node was left in time");
}
