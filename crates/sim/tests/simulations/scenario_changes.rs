//! Prices and images that change in a scenario, and several node classes.

use crate::world::scenarios::{deployment, document, long, played, played_with, pool};
use mortise_apis::karpenter::nodepool::LAUNCHES_PAUSED;
use mortise_sim::NodeClaimStage;
use mortise_sim::scenario::{ScenarioReport, ScenarioSample};
use serde_json::{Value, json};

/// The sample that an entry made.
fn after<'a>(report: &'a ScenarioReport, happened: &str) -> &'a ScenarioSample {
    let mut samples = report.samples.iter();
    let found = samples.find(|sample| {
        let text = sample.happened.as_deref();
        text.is_some_and(|text| text == happened)
    });
    let all = || {
        report
            .samples
            .iter()
            .filter_map(|each| each.happened.clone())
    };
    found.ok_or_else(|| all().collect::<Vec<_>>()).unwrap()
}

/// The last sample before a time.
fn before(report: &ScenarioReport, seconds: i64) -> &ScenarioSample {
    let samples = report.samples.iter();
    let earlier = samples.take_while(|sample| sample.seconds < seconds);
    earlier.last().unwrap()
}

#[test]
fn running_instances_cost_the_price_of_the_moment() {
    let timeline = json!([{ "at": "5m", "price": { "factor": 2, "for": "2m" } }]);
    let (changed, still) = (
        played(&document(&timeline)).unwrap(),
        played(&document(&json!([]))).unwrap(),
    );
    let price = before(&still, 300).price_micro_usd;
    let said = after(&changed, "price of any type in any zone times 2 for 2m0s");
    assert_eq!(said.price_micro_usd, 2 * price);
    let ended = after(&changed, "price of any type in any zone is as before");
    assert_eq!((ended.seconds, ended.price_micro_usd), (420, price));
    let more = changed.totals.spent_micro_usd - still.totals.spent_micro_usd;
    let want = price * 2 / 60;
    assert!((more - want).abs() <= 1, "{more}, not {want}");
}

#[test]
fn consolidation_leaves_what_became_expensive() {
    let mut pool = pool();
    let requirements = "/spec/template/spec/requirements/0/values";
    *pool.pointer_mut(requirements).unwrap() = json!(["on-demand"]);
    let timeline = json!([{ "at": "15m", "price": { "instanceTypes": ["t8"], "factor": 3 } }]);
    let report = played_with(&long("40m", &timeline), &[pool, deployment(4)]).unwrap();
    let cheap = before(&report, 900).price_micro_usd;
    let last = report.samples.last().unwrap();
    // The next larger type is twice as expensive.
    assert_eq!(last.price_micro_usd, cheap * 2, "{report:#?}");
    assert!(last.evicted >= 4, "{last:?}");
    assert_eq!(report.totals.violations, Vec::<String>::new());
}

#[test]
fn launches_choose_by_the_new_prices() {
    let timeline = json!([
        { "at": "0s", "price": { "instanceTypes": ["t32"], "zones": ["a"], "dollarsPerHour": 0.001 } },
    ]);
    let report = played(&document(&timeline)).unwrap();
    let last = report.samples.last().unwrap();
    assert_eq!((last.nodes, last.price_micro_usd), (1, 1_000), "{last:?}");
}

#[test]
fn all_nodes_of_a_class_get_its_new_image() {
    let timeline = json!([{ "at": "10m", "image": { "nodeClass": "default", "name": "image-2" } }]);
    let report = played(&long("40m", &timeline)).unwrap();
    let said = after(&report, "node class default gets image-2");
    let last = report.samples.last().unwrap();
    assert!(said.terminated < last.terminated, "{report:#?}");
    assert!(last.terminated >= said.nodes, "{report:#?}");
    assert_eq!((last.pods_running, last.pods_pending), (4, 0));
    // The name that it has already changes nothing.
    let same = json!([{ "at": "10m", "image": { "nodeClass": "default", "name": "image-1" } }]);
    let report = played(&long("40m", &same)).unwrap();
    assert_eq!(
        report.samples.last().unwrap().evicted,
        before(&report, 600).evicted
    );
}

#[test]
fn a_bad_image_costs_few_instances_and_no_pod() {
    let image = |name: &str, percent: u64| json!({ "nodeClass": "default", "name": name, "bootFailurePercent": percent });
    let timeline = json!([
        { "at": "10m", "image": image("image-2", 100) },
        { "at": "2h", "image": image("image-1", 0) },
    ]);
    let report = played(&long("3h", &timeline)).unwrap();
    let fine = before(&report, 600);
    let during = || report.samples.iter().filter(|sample| sample.seconds > 600);
    assert!(
        during().all(|sample| sample.pods_running == 4),
        "{report:#?}"
    );
    let wasted = before(&report, 7_200).launched - fine.launched;
    assert!((1..=12).contains(&wasted), "{wasted}");
    let last = report.samples.last().unwrap();
    assert_eq!(last.nodes, fine.nodes);
    assert_eq!(report.totals.violations, Vec::<String>::new());
}

/// Eight pods with a node each, whose image breaks pods for two hours; the fewest pods that were ready meanwhile, and at the end.
fn ready_through_a_bad_image(policy: Option<Value>) -> (u64, u64) {
    let image = |name: &str, percent: u64| json!({ "nodeClass": "default", "name": name, "podFailurePercent": percent });
    let timeline = json!([
        { "at": "20m", "image": image("image-2", 100) },
        { "at": "140m", "image": image("image-3", 0) },
    ]);
    let mut web = deployment(8);
    web["spec"]["template"]["spec"]["containers"][0]["ports"] =
        json!([{ "containerPort": 80, "hostPort": 80 }]);
    let manifests: Vec<Value> = [pool(), web].into_iter().chain(policy).collect();
    let report = played_with(&long("4h", &timeline), &manifests).unwrap();
    assert_eq!(report.totals.violations, Vec::<String>::new());
    let during = report.samples.iter();
    let during = during.filter(|sample| (1_200..8_400).contains(&sample.seconds));
    let fewest = during.map(|sample| sample.pods_running).min().unwrap();
    (fewest, report.samples.last().unwrap().pods_running)
}

/// Nodes of such an image join, so that nothing but their pods shows that it is bad.
#[test]
fn waves_keep_an_image_that_breaks_pods_from_all_nodes_but_one() {
    let policy = json!({
        "apiVersion": "mortise.sh/v1alpha1", "kind": "NodePoolPolicy", "metadata": { "name": "team", "generation": 1 },
        "spec": { "nodePools": ["general"], "disruption": { "drift": { "readyFor": "2m" } } },
    });
    assert_eq!(ready_through_a_bad_image(Some(policy)), (7, 8));
    assert_eq!(ready_through_a_bad_image(None), (0, 8));
}

/// New pods need nodes, and the image of the class starts none of them.
#[test]
fn launches_pause_while_an_image_does_not_start() {
    let timeline = json!([
        { "at": "10m", "image": { "nodeClass": "default", "name": "image-2", "bootFailurePercent": 100 } },
        { "at": "11m", "scale": { "deployment": "web", "replicas": 40 } },
        { "at": "90m", "image": { "nodeClass": "default", "name": "image-3" } },
    ]);
    let report = played(&long("3h", &timeline)).unwrap();
    assert!(
        report.totals.events.contains_key(LAUNCHES_PAUSED),
        "{report:#?}"
    );
    let last = report.samples.last().unwrap();
    assert_eq!((last.pods_running, last.pods_pending), (40, 0));
    assert_eq!(report.totals.violations, Vec::<String>::new());
}

/// A second NodePool with a class of its own, and a Deployment for it.
fn two_classes() -> Vec<Value> {
    let mut other = pool();
    other["metadata"]["name"] = json!("other");
    other["spec"]["template"]["spec"]["nodeClassRef"]["name"] = json!("second");
    let mut web = deployment(4);
    web["spec"]["template"]["spec"]["nodeSelector"] = json!({ "karpenter.sh/nodepool": "general" });
    let mut api = deployment(2);
    api["metadata"]["name"] = json!("api");
    api["spec"]["template"]["metadata"]["labels"] = json!({ "app": "api" });
    api["spec"]["template"]["spec"]["nodeSelector"] = json!({ "karpenter.sh/nodepool": "other" });
    vec![pool(), other, web, api]
}

#[test]
fn an_image_is_that_of_one_class() {
    let manifests = two_classes();
    let timeline = json!([{ "at": "10m", "image": { "nodeClass": "second", "name": "image-2" } }]);
    let report = played_with(&long("40m", &timeline), &manifests).unwrap();
    let still = played_with(&long("40m", &json!([])), &manifests).unwrap();
    let (last, without) = (
        report.samples.last().unwrap(),
        still.samples.last().unwrap(),
    );
    assert_eq!((last.pods_running, last.pods_pending), (6, 0));
    // Both pods of the second class moved, and none of the four of the first.
    assert_eq!(last.evicted - without.evicted, 2, "{report:#?}");
    assert_eq!(report.totals.violations, Vec::<String>::new());
}

#[test]
fn a_seed_gives_one_history_of_all_changes() {
    let timeline = json!([
        { "at": "5m", "price": { "instanceTypes": ["t1*"], "factor": 0.5, "for": "10m" } },
        { "at": "10m", "image": { "nodeClass": "default", "name": "image-2", "bootFailurePercent": 50 } },
    ]);
    let history = |seed: u64| {
        let mut document = long("30m", &timeline);
        document["spec"]["seed"] = json!(seed);
        played(&document).unwrap().history
    };
    assert_eq!(history(7), history(7));
    assert_ne!(history(7), history(8));
}

#[test]
fn faults_are_named_with_their_place() {
    let cases = [
        (
            json!({ "price": {} }),
            "price",
            "add factor or dollarsPerHour",
        ),
        (
            json!({ "price": { "factor": 2, "dollarsPerHour": 1 } }),
            "price",
            "keep factor or dollarsPerHour",
        ),
        (
            json!({ "price": { "factor": 0 } }),
            "price.factor",
            "from 0.000001 to 1000",
        ),
        (
            json!({ "price": { "factor": "2" } }),
            "price.factor",
            "invalid type",
        ),
        (
            json!({ "price": { "dollarsPerHour": -1 } }),
            "price.dollarsPerHour",
            "from 0.000001 to 10000",
        ),
        (
            json!({ "price": { "factor": 2, "for": "0s" } }),
            "price.for",
            "more than 0s",
        ),
        (
            json!({ "price": { "factor": 2, "instanceTypes": ["t33"] } }),
            "price.instanceTypes",
            "did you mean \"t32\"?",
        ),
        (
            json!({ "price": { "factor": 2, "instanceTypes": ["m5.*"] } }),
            "price.instanceTypes",
            "unknown instance type \"m5.*\"",
        ),
        (
            json!({ "price": { "factor": 2, "zones": ["c"] } }),
            "price.zones",
            "must be one of a, b",
        ),
        (
            json!({ "price": { "factor": 2, "capacityType": "spto" } }),
            "price.capacityType",
            "did you mean \"spot\"",
        ),
        (
            json!({ "price": { "factr": 2 } }),
            "price.factr",
            "did you mean \"factor\"",
        ),
        (
            json!({ "image": { "nodeClass": "defaul", "name": "x" } }),
            "image.nodeClass",
            "did you mean \"default\"",
        ),
        (
            json!({ "image": { "nodeClass": "default", "name": "" } }),
            "image.name",
            "is empty",
        ),
        (
            json!({ "image": { "nodeClass": "default", "name": "x", "bootFailurePercent": 101 } }),
            "image.bootFailurePercent",
            "from 0 to 100",
        ),
        (
            json!({ "image": { "nodeClass": "default", "name": "x", "podFailurePercent": 101 } }),
            "image.podFailurePercent",
            "from 0 to 100",
        ),
    ];
    for (mut entry, field, part) in cases {
        entry["at"] = json!("1m");
        let error = played(&document(&json!([entry]))).unwrap_err();
        assert_eq!(error.field, format!("spec.timeline[0].{field}"), "{error}");
        assert!(error.problem.contains(part), "{error}");
    }
    let mut manifests = two_classes();
    manifests[1]["spec"]["template"]["spec"]["nodeClassRef"]["kind"] = json!("KWOKNodeClass");
    let error = played_with(&document(&json!([])), &manifests).unwrap_err();
    assert!(error.problem.contains("one cloud"), "{error}");
}

#[test]
fn deleted_nodes_are_replaced_and_the_report_says_what_became_of_them() {
    let timeline = json!([{ "at": "10m", "delete": { "nodePool": "general", "nodes": 1 } }]);
    let report = played_with(&long("20m", &timeline), &[pool(), deployment(4)]).unwrap();
    let still = played_with(&long("20m", &json!([])), &[pool(), deployment(4)]).unwrap();
    let launched = |report: &ScenarioReport| report.totals.nodes_launched;
    assert_eq!(launched(&report), launched(&still) + 1, "{report:#?}");
    let pods: u64 = report.nodes.iter().map(|node| node.pods).sum();
    assert_eq!(pods, 4, "{report:#?}");
    assert!(
        report
            .nodes
            .iter()
            .all(|node| node.node_pool == "general" && node.zone == "a"),
        "{report:#?}"
    );
    let count = |stage| {
        let steps = report.node_claims.iter();
        steps.filter(|step| step.stage == stage).count() as u64
    };
    assert_eq!(count(NodeClaimStage::Initialized), launched(&report));
    let left = report.nodes.len() as u64;
    assert_eq!(
        count(NodeClaimStage::Deleted),
        launched(&report) - left,
        "{report:#?}"
    );
}

#[test]
fn only_nodes_of_a_pool_that_is_there_are_deleted() {
    let timeline = json!([{ "at": "1m", "delete": { "nodePool": "genral", "nodes": 1 } }]);
    let error = played(&document(&timeline)).unwrap_err();
    assert_eq!(error.field, "spec.timeline[0].delete.nodePool");
    assert!(
        error.problem.contains("did you mean \"general\""),
        "{error}"
    );
}
