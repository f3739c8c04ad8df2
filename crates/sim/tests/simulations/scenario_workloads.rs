//! StatefulSets, Jobs and CronJobs in a scenario.

use crate::world::scenarios::{document, long, objects, played_with, pool};
use crate::world::template;
use mortise_sim::scenario::{ScenarioReport, ScenarioSample};
use serde_json::{Value, json};

fn stateful_set(replicas: u32) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": { "name": "db" },
        "spec": {
            "replicas": replicas, "serviceName": "db",
            "selector": { "matchLabels": { "app": "db" } },
            "template": template("db", "1500m", "2Gi"),
        },
    })
}

/// A set whose pods have a volume each.
fn with_volumes(replicas: u32) -> Value {
    let claim = json!({
        "metadata": { "name": "data" },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
    });
    with(
        stateful_set(replicas),
        "/spec",
        "volumeClaimTemplates",
        json!([claim]),
    )
}

/// Pods of a job that run for a time.
fn job_spec(completions: u32, parallelism: u32, runs: &str) -> Value {
    let mut template = template("work", "1", "1Gi");
    template["metadata"]["annotations"] = json!({ "mortise.sh/simulated-run-time": runs });
    template["spec"]["restartPolicy"] = json!("Never");
    json!({ "completions": completions, "parallelism": parallelism, "template": template })
}

fn job(completions: u32, parallelism: u32, runs: &str) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "work" },
        "spec": job_spec(completions, parallelism, runs),
    })
}

fn cron_job(schedule: &str, policy: &str, runs: &str) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "CronJob", "metadata": { "name": "report" },
        "spec": {
            "schedule": schedule, "concurrencyPolicy": policy,
            "jobTemplate": { "spec": job_spec(2, 2, runs) },
        },
    })
}

/// The first sample at a time or later.
fn at(report: &ScenarioReport, seconds: i64) -> &ScenarioSample {
    let mut samples = report.samples.iter();
    samples.find(|sample| sample.seconds >= seconds).unwrap()
}

#[test]
fn a_stateful_set_grows_and_shrinks_one_pod_at_a_time() {
    let timeline = json!([
        { "at": "10m", "scale": { "statefulSet": "db", "replicas": 5 } },
        { "at": "20m", "scale": { "statefulSet": "db", "replicas": 1 } },
    ]);
    let report = played_with(&long("30m", &timeline), &[pool(), stateful_set(3)]).unwrap();
    let running = |seconds| at(&report, seconds).pods_running;
    assert_eq!((running(580), running(1_180), running(1_790)), (3, 5, 1));
    // Each waits for the one before it.
    let waiting = report.samples.iter().map(|sample| sample.pods_pending);
    assert!(waiting.max().unwrap() <= 1, "{report:#?}");
    assert_eq!(report.totals.violations, Vec::<String>::new());
}

#[test]
fn a_rolling_update_of_a_stateful_set_stops_one_pod_at_a_time() {
    let budget = json!({
        "kind": "PodDisruptionBudget", "metadata": { "name": "db" },
        "spec": { "maxUnavailable": 1, "selector": { "matchLabels": { "app": "db" } } },
    });
    let timeline = json!([{ "at": "10m", "roll": { "statefulSet": "db" } }]);
    let manifests = [pool(), stateful_set(4), budget];
    let rolled = played_with(&long("20m", &timeline), &manifests).unwrap();
    let still = played_with(&long("20m", &json!([])), &manifests).unwrap();
    let placed = |report: &ScenarioReport| report.totals.pods_placed;
    assert!(placed(&rolled) >= placed(&still) + 4, "{}", placed(&rolled));
    let during = rolled.samples.iter().filter(|sample| sample.seconds >= 600);
    let running: Vec<u64> = during.map(|sample| sample.pods_running).collect();
    assert!(running.iter().all(|count| *count >= 3), "{running:?}");
    assert_eq!(running.last(), Some(&4));
    assert_eq!(rolled.totals.violations, Vec::<String>::new());
}

/// Drift moves the pods; they come back under their names.
#[test]
fn pods_of_a_stateful_set_survive_the_move_to_other_nodes() {
    let timeline = json!([{ "at": "10m", "image": { "nodeClass": "default", "name": "image-2" } }]);
    let report = played_with(&long("40m", &timeline), &[pool(), stateful_set(3)]).unwrap();
    let last = report.samples.last().unwrap();
    assert_eq!((last.pods_running, last.pods_pending), (3, 0));
    assert!(last.evicted >= 3, "{last:?}");
    assert_eq!(report.totals.violations, Vec::<String>::new());
}

/// A volume stays in its zone: without capacity there its pod waits, where a pod without a volume goes to another zone.
#[test]
fn a_pod_with_a_volume_comes_back_in_the_zone_of_its_volume() {
    let timeline = json!([
        { "at": "10m", "shortage": { "zones": ["a"], "for": "20m" } },
        { "at": "11m", "delete": { "nodePool": "general", "nodes": 1 } },
    ]);
    let played = |set| played_with(&long("60m", &timeline), &[pool(), set]).unwrap();
    let (with, without) = (played(with_volumes(1)), played(stateful_set(1)));
    for report in [&with, &without] {
        assert_eq!(at(report, 590).pods_running, 1, "{report:#?}");
        assert_eq!(at(report, 3_600).pods_running, 1, "{report:#?}");
        assert!(report.totals.evictions >= 1, "{report:#?}");
        assert_eq!(report.totals.violations, Vec::<String>::new());
    }
    assert_eq!(at(&without, 1_200).pods_running, 1, "{without:#?}");
    assert_eq!(at(&with, 1_200).pods_pending, 1, "{with:#?}");
    assert_eq!(with.nodes[0].zone, "a", "{with:#?}");
}

#[test]
fn an_evicted_pod_of_a_job_is_followed_by_one_that_starts_again() {
    let timeline = json!([{ "at": "8m", "delete": { "nodePool": "general", "nodes": 1 } }]);
    let played = |timeline: &Value| {
        let manifests = [pool(), job(1, 1, "10m")];
        played_with(&long("40m", timeline), &manifests).unwrap()
    };
    let (moved, still) = (played(&timeline), played(&json!([])));
    // The pod began before minute 5, so it ends before minute 15 if nothing happens, and after minute 18 if it begins again.
    assert_eq!(at(&still, 300).pods_running, 1, "{still:#?}");
    assert_eq!(at(&still, 1_000).pods_running, 0, "{still:#?}");
    assert_eq!(at(&moved, 1_000).pods_running, 1, "{moved:#?}");
    assert_eq!(at(&moved, 2_400).pods_running, 0, "{moved:#?}");
    assert_eq!((still.totals.pods_placed, moved.totals.pods_placed), (1, 2));
}

#[test]
fn pods_of_a_parallel_set_are_created_at_once() {
    let parallel = with(
        stateful_set(6),
        "/spec",
        "podManagementPolicy",
        json!("Parallel"),
    );
    let launched = |set| {
        let report = played_with(&long("10m", &json!([])), &[pool(), set]).unwrap();
        let running = report.samples.last().unwrap().pods_running;
        assert_eq!(running, 6, "{report:#?}");
        report.totals.nodes_launched
    };
    // One after the other, the first node is launched for one pod.
    assert!(launched(parallel) < launched(stateful_set(6)));
}

#[test]
fn a_job_runs_its_pods_and_leaves_no_node() {
    let report = played_with(&long("40m", &json!([])), &[pool(), job(6, 2, "4m")]).unwrap();
    let most = report.samples.iter().map(|sample| sample.pods_running);
    assert_eq!(most.max(), Some(2));
    // Three rounds of four minutes.
    assert_eq!(at(&report, 590).pods_running, 2, "{report:#?}");
    let last = report.samples.last().unwrap();
    assert_eq!((last.pods_running, last.nodes), (0, 0));
    assert!(report.totals.pods_placed >= 6);
    assert_eq!(report.totals.violations, Vec::<String>::new());
}

#[test]
fn a_cron_job_creates_jobs_by_its_policy() {
    for (policy, placed) in [("Allow", 8), ("Forbid", 6), ("Replace", 8)] {
        // Due at 15, 30, 45 and 60 minutes; each runs for twenty.
        // Consolidation would move them, and they would begin again.
        let cron = with(
            cron_job("*/15 * * * *", policy, "20m"),
            "/spec/jobTemplate/spec/template/metadata/annotations",
            "karpenter.sh/do-not-disrupt",
            json!("true"),
        );
        let report = played_with(&long("65m", &json!([])), &[pool(), cron]).unwrap();
        assert_eq!(at(&report, 800).pods_running, 0, "{policy}");
        assert_eq!(report.totals.pods_placed, placed, "{policy}");
        let most = report.samples.iter().map(|sample| sample.pods_running);
        let wanted = if policy == "Allow" { 4 } else { 2 };
        assert_eq!(most.max(), Some(wanted), "{policy}: {report:#?}");
        assert_eq!(report.totals.violations, Vec::<String>::new());
    }
}

#[test]
fn a_seed_gives_one_history_of_all_workloads() {
    let history = |seed: u64| {
        let mut document = long("40m", &json!([]));
        document["spec"]["seed"] = json!(seed);
        let cron = cron_job("*/10 * * * *", "Allow", "5m");
        let manifests = [pool(), stateful_set(2), job(3, 1, "5m"), cron];
        played_with(&document, &manifests).unwrap().history
    };
    assert_eq!(history(7), history(7));
    assert_ne!(history(7), history(8));
}

/// A manifest with another value at a place.
fn with(mut manifest: Value, pointer: &str, key: &str, value: Value) -> Value {
    manifest.pointer_mut(pointer).unwrap()[key] = value;
    manifest
}

/// Each manifest is refused for a field, in these words among others.
fn refused(cases: impl IntoIterator<Item = (Value, &'static str, &'static str)>) {
    for (manifest, field, part) in cases {
        let error = objects(&[pool(), manifest]).unwrap_err();
        assert_eq!(error.field, field, "{error}");
        assert!(error.problem.contains(part), "{error}");
    }
}

#[test]
fn what_is_not_simulated_of_a_stateful_set_is_refused() {
    let claim = json!([{ "name": "v", "persistentVolumeClaim": { "claimName": "c" } }]);
    refused([
        (
            with(stateful_set(1), "/spec", "volumeClaimTemplates", json!({})),
            "spec.volumeClaimTemplates",
            "must be a list",
        ),
        (
            with(
                stateful_set(1),
                "/spec",
                "volumeClaimTemplates",
                json!([{ "spec": {} }]),
            ),
            "spec.volumeClaimTemplates[0].metadata.name",
            "missing",
        ),
        (
            with(
                with_volumes(1),
                "/spec/volumeClaimTemplates/0/spec",
                "selector",
                json!({}),
            ),
            "spec.volumeClaimTemplates[0].spec.selector",
            "not simulated",
        ),
        (
            with(
                with_volumes(1),
                "/spec/volumeClaimTemplates/0/spec",
                "storageClassName",
                json!(""),
            ),
            "spec.volumeClaimTemplates[0].spec.storageClassName",
            "without a storage class",
        ),
        (
            with(stateful_set(1), "/spec/template/spec", "volumes", claim),
            "spec.template.spec.volumes[0].persistentVolumeClaim",
            "use volumeClaimTemplates",
        ),
        (
            with(stateful_set(1), "/spec", "minReadySeconds", json!(5)),
            "spec.minReadySeconds",
            "not simulated",
        ),
        (
            with(
                stateful_set(1),
                "/spec",
                "updateStrategy",
                json!({ "type": "OnDelete" }),
            ),
            "spec.updateStrategy.type",
            "must be one of RollingUpdate",
        ),
        (
            with(
                stateful_set(1),
                "/spec",
                "podManagementPolicy",
                json!("Paralel"),
            ),
            "spec.podManagementPolicy",
            "did you mean \"Parallel\"",
        ),
        (
            with(stateful_set(1), "/spec", "replicas", json!(-1)),
            "spec.replicas",
            "whole number",
        ),
    ]);
}

#[test]
fn what_is_not_simulated_of_a_job_is_refused() {
    let no_run_time = with(
        job(1, 1, "1m"),
        "/spec/template/metadata",
        "annotations",
        json!({}),
    );
    let no_policy = with(
        job(1, 1, "1m"),
        "/spec/template",
        "spec",
        json!({ "containers": [] }),
    );
    let queue = with(job(1, 2, "1m"), "/spec", "completions", json!("many"));
    refused([
        (
            no_run_time,
            "spec.template.metadata.annotations.mortise.sh/simulated-run-time",
            "missing",
        ),
        (
            job(1, 1, "soon"),
            "spec.template.metadata.annotations.mortise.sh/simulated-run-time",
            "soon",
        ),
        (
            job(1, 1, "0s"),
            "spec.template.metadata.annotations.mortise.sh/simulated-run-time",
            "1s",
        ),
        (
            no_policy,
            "spec.template.spec.restartPolicy",
            "OnFailure or Never",
        ),
        (queue, "spec.completions", "whole number"),
        (
            with(job(1, 1, "1m"), "/spec", "backoffLimit", json!(3)),
            "spec.backoffLimit",
            "not simulated",
        ),
    ]);
}

#[test]
fn what_is_not_simulated_of_a_cron_job_is_refused() {
    refused([
        (
            cron_job("* * * *", "Allow", "1m"),
            "spec.schedule",
            "five fields",
        ),
        (
            cron_job("@every 5m", "Allow", "1m"),
            "spec.schedule",
            "@every is not simulated",
        ),
        (
            cron_job("@daily", "Alow", "1m"),
            "spec.concurrencyPolicy",
            "did you mean \"Allow\"",
        ),
        (
            with(
                cron_job("@daily", "Allow", "1m"),
                "/spec",
                "timeZone",
                json!("Europe/Rome"),
            ),
            "spec.timeZone",
            "UTC",
        ),
        (
            with(
                cron_job("@daily", "Allow", "1m"),
                "/spec",
                "suspend",
                json!(true),
            ),
            "spec.suspend",
            "not simulated",
        ),
    ]);
}

#[test]
fn an_entry_means_one_workload_that_is_there() {
    let twice = objects(&[
        pool(),
        stateful_set(1),
        with(job(1, 1, "1m"), "/metadata", "name", json!("db")),
    ]);
    assert!(twice.unwrap_err().problem.contains("two workloads"));
    for (entry, field, part) in [
        (
            json!({ "scale": { "statefulSet": "dp", "replicas": 1 } }),
            "scale.statefulSet",
            "did you mean \"db\"",
        ),
        (
            json!({ "scale": { "replicas": 1 } }),
            "scale",
            "add deployment or statefulSet",
        ),
        (
            json!({ "roll": { "deployment": "web", "statefulSet": "db" } }),
            "roll",
            "two workloads",
        ),
    ] {
        let entry = with(json!([entry]), "/0", "at", json!("1m"));
        let error = played_with(&document(&entry), &[pool(), stateful_set(1)]).unwrap_err();
        assert_eq!(error.field, format!("spec.timeline[0].{field}"), "{error}");
        assert!(error.problem.contains(part), "{error}");
    }
}
