//! Scenarios: what a person writes is played as written, one seed gives one history, and faults in it are named with their place.

use crate::world::scenarios::{deployment, document, objects, played};
use mortise_sim::scenario::{ScenarioReport, scenario_schema};
use serde_json::{Value, json};

#[test]
fn the_timeline_is_played() {
    let timeline = json!([
        { "at": "5m", "scale": { "deployment": "web", "replicas": 9 } },
        { "at": "8m", "interrupt": { "count": 1 } },
        { "at": "9m", "crash": {} },
    ]);
    let report = played(&document(&timeline)).unwrap();
    let running = |seconds: i64| {
        let mut samples = report.samples.iter();
        let sample = samples.find(|sample| sample.seconds >= seconds);
        sample.unwrap().pods_running
    };
    assert_eq!((running(290), running(475)), (4, 9));
    assert_eq!(report.totals.interruptions, 1);
    assert!(report.totals.longest_pending_s > 0);
    assert_eq!(report.totals.violations, Vec::<String>::new());
    let last = report.samples.last().unwrap();
    assert_eq!((last.seconds, last.pods_pending), (600, 0));
    assert!(last.price_micro_usd > 0);
}

#[test]
fn a_rolling_update_replaces_every_pod_and_keeps_three_of_four() {
    let timeline = json!([{ "at": "5m", "roll": { "deployment": "web" } }]);
    let rolled = played(&document(&timeline)).unwrap();
    let still = played(&document(&json!([]))).unwrap();
    let placed = |report: &ScenarioReport| report.totals.pods_placed;
    assert!(placed(&rolled) >= placed(&still) + 4, "{}", placed(&rolled));
    let after = rolled.samples.iter().filter(|sample| sample.seconds >= 300);
    let running: Vec<u64> = after.map(|sample| sample.pods_running).collect();
    assert!(running.iter().all(|count| *count >= 3), "{running:?}");
    assert_eq!(running.last(), Some(&4));
}

#[test]
fn a_spot_shortage_is_met_on_demand() {
    let shortage = |capacity_type: &str| {
        let timeline = json!([
            { "at": "0s", "shortage": { "capacityType": capacity_type, "for": "10m" } },
        ]);
        let report = played(&document(&timeline)).unwrap();
        report.samples.last().unwrap().price_micro_usd
    };
    let (without_spot, without_on_demand) = (shortage("spot"), shortage("on-demand"));
    assert!(
        without_spot > 2 * without_on_demand,
        "{without_spot} and {without_on_demand}"
    );
}

#[test]
fn a_seed_gives_one_history() {
    let history = |seed: u64| {
        let mut document = document(&json!([]));
        document["spec"]["seed"] = json!(seed);
        played(&document).unwrap().history
    };
    assert_eq!(history(7), history(7));
    assert_ne!(history(7), history(8));
}

#[test]
fn faults_are_named_with_their_place() {
    let of_entry = |entry: Value| document(&json!([entry]));
    let with = |pointer: &str, value: Value| {
        let mut changed = document(&json!([]));
        *changed.pointer_mut(pointer).unwrap() = value;
        changed
    };
    let cases: [(Value, &str, &str); 12] = [
        (
            with("/kind", json!("Scenari")),
            "kind",
            "did you mean \"Scenario\"",
        ),
        (
            with("/apiVersion", json!("v1")),
            "apiVersion",
            "mortise.sh/v1alpha1",
        ),
        (
            with("/spec/duration", json!("1d")),
            "spec.duration",
            "h, m, s",
        ),
        (
            with("/spec/duration", json!("-1h")),
            "spec.duration",
            "a year",
        ),
        (
            with("/spec", json!({ "duration": "1h", "timelin": [] })),
            "spec.timelin",
            "did you mean \"timeline\"",
        ),
        (
            with("/spec", json!({ "duration": "1h", "replicas": 9 })),
            "spec.replicas",
            "from 1 to 5",
        ),
        (
            of_entry(json!({ "at": "11m", "crash": {} })),
            "spec.timeline[0].at",
            "the duration, 10m0s",
        ),
        (
            of_entry(json!({ "at": "1m" })),
            "spec.timeline[0]",
            "add one of scale",
        ),
        (
            of_entry(json!({ "at": "1m", "crash": {}, "interrupt": { "count": 1 } })),
            "spec.timeline[0]",
            "two things",
        ),
        (
            of_entry(json!({ "at": "1m", "scale": { "deploymnt": "web", "replicas": 1 } })),
            "spec.timeline[0].scale.deploymnt",
            "did you mean \"deployment\"",
        ),
        (
            of_entry(json!({ "at": "1m", "scale": { "deployment": "wep", "replicas": 1 } })),
            "spec.timeline[0].scale.deployment",
            "did you mean \"web\"",
        ),
        (
            of_entry(json!({ "at": "1m", "shortage": { "zones": ["c"], "for": "1m" } })),
            "spec.timeline[0].shortage.zones",
            "must be one of a, b",
        ),
    ];
    for (document, field, part) in cases {
        let error = played(&document).unwrap_err();
        assert_eq!(error.field, field, "{error}");
        assert!(error.problem.contains(part), "{error}");
    }
    let unknown = objects(&[json!({ "kind": "ReplicaSet", "metadata": { "name": "db" } })]);
    assert!(
        unknown
            .unwrap_err()
            .problem
            .contains("must be one of NodePool, Deployment")
    );
    assert!(
        objects(&[deployment(1)])
            .unwrap_err()
            .problem
            .contains("no NodePool")
    );
}

/// Every field of the schema has a description for the reader.
#[test]
fn the_schema_describes_every_field() {
    fn walk(schema: &Value, path: &str, missing: &mut Vec<String>) {
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            let path = format!("{path}.{name}");
            if field.get("description").is_none() && name != "spec" && path.starts_with(".spec") {
                missing.push(path.clone());
            }
            for inner in [field, &field["items"], &field["anyOf"][0]] {
                walk(inner, &path, missing);
            }
        }
    }
    let mut missing = Vec::new();
    walk(scenario_schema().as_value(), "", &mut missing);
    assert_eq!(missing, Vec::<String>::new());
}
