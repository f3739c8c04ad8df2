//! A workload that grows every morning, and a CapacityBuffer that learns it.

use mortise_sim::scenario::ScenarioReport;
use serde_json::{Value, json};

use crate::world::scenarios::{deployment, document, played_with, pool};

/// A Monday.
const START: &str = "2026-01-05T00:00:00Z";
const DAY_S: i64 = 86_400;

/// Days on which the workload has 20 replicas from nine to eleven, and else 4.
fn days(days: i64) -> Value {
    let mut timeline = Vec::new();
    for day in 0..days {
        for (hour, replicas) in [(9, 20), (11, 4)] {
            let at = format!("{}h", day * 24 + hour);
            timeline
                .push(json!({ "at": at, "scale": { "deployment": "web", "replicas": replicas } }));
        }
    }
    let mut document = document(&json!(timeline));
    document["spec"]["duration"] = json!(format!("{}h", days * 24));
    document["spec"]["start"] = json!(START);
    document
}

fn buffer(annotations: &Value) -> Value {
    json!({
        "apiVersion": "autoscaling.x-k8s.io/v1beta1", "kind": "CapacityBuffer",
        "metadata": { "name": "room", "annotations": annotations },
        "spec": { "scalableRef": { "apiGroup": "apps", "kind": "Deployment", "name": "web" } },
    })
}

fn played(number: i64, buffers: &[Value]) -> ScenarioReport {
    let mut pool = pool();
    // Spot nodes are replaced by spot nodes only behind a feature gate.
    pool["spec"]["template"]["spec"]["requirements"][0]["values"] = json!(["on-demand"]);
    let manifests = [&[pool, deployment(4)], buffers].concat();
    let report = played_with(&days(number), &manifests).unwrap();
    assert_eq!(report.totals.violations, Vec::<String>::new());
    report
}

/// Minutes of the first half hour of a day's rush at whose end pods wait.
fn waits(report: &ScenarioReport, day: i64) -> usize {
    let from = usize::try_from((day * DAY_S + 9 * 3_600) / 60).unwrap();
    let minutes = report.minutes.iter().skip(from).take(30);
    minutes.filter(|minute| minute.pods_waiting > 0).count()
}

#[test]
fn the_rush_of_a_calendar_day_finds_the_room_that_was_learned() {
    let peaks = format!("2025-12-08T00:00:00Z {}", "4*9 20*2 4*13 ".repeat(28));
    let learned = |mode: &str| {
        buffer(&json!({ "mortise.sh/buffer-learning": mode, "mortise.sh/replica-peaks": peaks }))
    };
    let without = played(1, &[]);
    let observed = played(1, &[learned("observe")]);
    let applied = played(1, &[learned("apply")]);
    println!(
        "pending p50 and p99, and $: without {:?} {}, observed {:?} {}, applied {:?} {}",
        without.scores.pending_s,
        without.scores.spent_micro_usd,
        observed.scores.pending_s,
        observed.scores.spent_micro_usd,
        applied.scores.pending_s,
        applied.scores.spent_micro_usd,
    );
    assert!(waits(&without, 0) > 0);
    assert_eq!(waits(&applied, 0), 0);
    // Four pods of twenty wait, those of the beginning.
    assert!(without.scores.pending_s.p50 >= 10, "{:?}", without.scores);
    assert!(applied.scores.pending_s.p50 <= 1, "{:?}", applied.scores);
    // Who observes launches what would be launched without a buffer.
    let launched = |report: &ScenarioReport| report.totals.nodes_launched;
    assert_eq!(launched(&observed), launched(&without));
    // The room costs an hour of nodes, not a day.
    let more = applied.scores.spent_micro_usd - without.scores.spent_micro_usd;
    assert!(more > 0, "{more}");
    let rush = without.minutes[10 * 60].price_micro_usd;
    assert!(more < 2 * rush, "{more} more, at {rush} an hour");
}

/// Nothing is known on the first Monday.
#[test]
fn a_week_is_learned_from_the_workload_alone() {
    let learns = buffer(&json!({ "mortise.sh/buffer-learning": "apply" }));
    let report = played(9, &[learns]);
    for day in [0, 1, 6] {
        assert!(waits(&report, day) > 0, "day {day}");
    }
    for day in [7, 8] {
        assert_eq!(waits(&report, day), 0, "day {day}");
    }
}
