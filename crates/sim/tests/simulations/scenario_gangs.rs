//! Gangs in a scenario: PodGroups, and Jobs that entries of the timeline create.

use crate::world::scenarios::{document, long, objects, played_with, pool};
use crate::world::template;
use mortise_sim::scenario::ScenarioSpec;
use serde_json::{Value, json};

fn group(name: &str, min: u32) -> Value {
    json!({
        "apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup",
        "metadata": { "name": name, "namespace": "research" },
        "spec": { "minMember": min, "scheduleTimeoutSeconds": 60 },
    })
}

/// Pods that need a node each.
fn job(name: &str, pods: u32) -> Value {
    let mut template = template(name, "17", "1Gi");
    template["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] = json!(name);
    template["metadata"]["annotations"] = json!({ "mortise.sh/simulated-run-time": "10m" });
    template["spec"]["restartPolicy"] = json!("Never");
    json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": name },
        "spec": { "completions": pods, "parallelism": pods, "template": template },
    })
}

#[test]
fn a_gang_runs_when_its_job_is_created_and_another_one_when_there_is_room() {
    let timeline = json!([
        { "at": "10m", "create": { "job": "first" } },
        { "at": "11m", "create": { "job": "second" } },
    ]);
    let mut small = pool();
    small["spec"]["limits"] = json!({ "cpu": "160" });
    let manifests = [
        small,
        group("first", 3),
        job("first", 3),
        group("second", 4),
        job("second", 4),
    ];
    let report = played_with(&long("1h", &timeline), &manifests).unwrap();
    assert_eq!(report.totals.violations, Vec::<String>::new());
    assert_eq!(report.scores.gangs, 2);
    assert_eq!(report.totals.pods_placed, 7);
    // There is room for five nodes.
    assert!(report.scores.gang_wait_s.p50 < 90, "{:?}", report.scores);
    assert!(report.scores.gang_wait_s.most > 480, "{:?}", report.scores);
    let happened = report
        .samples
        .iter()
        .filter_map(|sample| sample.happened.as_deref());
    let happened: Vec<&str> = happened.collect();
    assert_eq!(happened, ["create Job first", "create Job second"]);
    assert_eq!(
        report.samples[0].pods_pending + report.samples[0].pods_running,
        0
    );
}

#[test]
fn what_cannot_be_a_gang_is_refused_with_its_field() {
    let with = |pointer: &str, value: Value| {
        let mut group = group("first", 3);
        *group.pointer_mut(pointer).unwrap() = value;
        group
    };
    let of_kubernetes = with("/apiVersion", json!("scheduling.k8s.io/v1alpha2"));
    let quorum = with(
        "/spec",
        json!({ "minMember": 2, "minResources": { "cpu": "4" } }),
    );
    let lost = group("frist", 3);
    for (group, field, problem) in [
        (
            of_kubernetes,
            "apiVersion",
            "must be one of scheduling.x-k8s.io/v1alpha1",
        ),
        (
            with("/spec/minMember", json!(0)),
            "spec.minMember",
            "must be 1 or more",
        ),
        (
            with("/spec/minMember", json!("3")),
            "spec.minMember",
            "must be a whole number",
        ),
        (with("/spec", json!({})), "spec.minMember", "missing"),
        (
            quorum,
            "spec.minResources",
            "not simulated: \"minResources\"",
        ),
        (
            lost,
            "Job first: label scheduling.x-k8s.io/pod-group of the pod template",
            "did you mean \"frist\"?",
        ),
    ] {
        let error = objects(&[pool(), group, job("first", 3)]).unwrap_err();
        assert_eq!(error.field, field);
        assert!(error.problem.contains(problem), "{error}");
    }
}

#[test]
fn an_entry_creates_a_job_that_is_there_and_was_not_created_before() {
    let manifests = [pool(), group("first", 3), job("first", 3)];
    let create = |job: &str| json!({ "at": "1m", "create": { "job": job } });
    let error = played_with(&document(&json!([create("frist")])), &manifests).unwrap_err();
    assert_eq!(error.field, "spec.timeline[0].create.job");
    assert!(error.problem.contains("\"first\""), "{error}");
    let twice = document(&json!([create("first"), create("first")]));
    let error = ScenarioSpec::from_document(&twice).unwrap_err();
    assert_eq!(error.field, "spec.timeline[1].create.job");
    assert_eq!(error.problem, "spec.timeline[0] creates Job \"first\" too");
}
