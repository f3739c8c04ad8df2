//! The events of simulated histories, pinned: a change of how decisions are represented must not change a byte of what users
//! read, nor its order.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::world::{options, template};
use mortise_apis::values::after;
use mortise_engine::effect::Event;
use mortise_sim::{Deployment, SimOptions, Simulation};
use mortise_state::resource_kinds::ObjectKey;
use serde_json::json;

/// Digest and counts of the events of one history.
#[derive(Debug, PartialEq, Eq)]
struct EventLog {
    /// FNV-1a over all of them in order.
    digest: u64,
    /// By reason.
    counts: BTreeMap<String, usize>,
}

impl EventLog {
    fn new(events: &[Event]) -> Self {
        let mut log = Self {
            digest: 0xcbf2_9ce4_8422_2325,
            counts: BTreeMap::new(),
        };
        for event in events {
            *log.counts.entry(event.reason.to_string()).or_default() += 1;
            let mut line = String::new();
            let type_ = if event.warning { "Warning" } else { "Normal" };
            let Event {
                target,
                reason,
                message,
                ..
            } = event;
            let every_ms = event.dedupe_ms;
            writeln!(line, "{type_} {reason} {target} {every_ms} {message}").unwrap();
            for byte in line.bytes() {
                log.digest = (log.digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
        }
        log
    }
}

fn run(simulation: &mut Simulation, minutes: i64) {
    simulation.run_until(after(simulation.now(), minutes * 60_000));
}

/// Workloads come and go, and spot instances are interrupted.
fn ordinary(seed: u64) -> Vec<Event> {
    let mut simulation = Simulation::new(options(seed), mortise_deciders::all());
    run(&mut simulation, 40);
    simulation.take_events()
}

/// One pool that scores its consolidations, one without a usable type, pods that fit nowhere, protected pods, and claims that
/// expire.
fn troubled_options(seed: u64) -> SimOptions {
    let mut options = options(seed);
    let pool = &mut options.pools[0];
    pool["spec"]["disruption"]["consolidationPolicy"] = json!("Balanced");
    let spec = &mut pool["spec"]["template"]["spec"];
    spec["expireAfter"] = json!("50m");
    spec["terminationGracePeriod"] = json!("2m");
    let mut other = pool.clone();
    other["metadata"]["name"] = json!("typeless");
    other["spec"]["template"]["spec"]["requirements"] = json!([
        { "key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["t1"] },
    ]);
    options.pools.push(other);
    let mut closed = options.pools[0].clone();
    closed["metadata"]["name"] = json!("closed");
    closed["spec"]["weight"] = json!(50);
    closed["spec"]["limits"] = json!({ "cpu": "40" });
    closed["spec"]["disruption"] =
        json!({ "consolidateAfter": "30s", "budgets": [{ "nodes": "0" }] });
    options.pools.push(closed);
    let mut protected = template("protected", "700m", "1Gi");
    protected["metadata"]["annotations"] = json!({ "karpenter.sh/do-not-disrupt": "8m" });
    let mut misspelled = template("misspelled", "300m", "1Gi");
    misspelled["metadata"]["annotations"] = json!({ "karpenter.sh/do-not-disrupt": "for a while" });
    let workloads = [
        ("huge", template("huge", "64", "1Gi"), None),
        ("protected", protected, Some(0)),
        ("misspelled", misspelled, Some(0)),
    ];
    let workloads = workloads
        .into_iter()
        .map(|(name, template, max_unavailable)| Deployment {
            name: name.to_owned(),
            template,
            low: 2,
            high: 6,
            period_s: 1200,
            max_unavailable,
        });
    options.deployments.extend(workloads);
    options
}

/// Images that do not start, nodes that are smaller than their instance type says, a process that is killed.
fn troubled(seed: u64) -> Vec<Event> {
    let mut simulation = Simulation::new(troubled_options(seed), mortise_deciders::all());
    run(&mut simulation, 20);
    simulation.restart_engine(mortise_deciders::all());
    simulation.withhold_capacity(30);
    run(&mut simulation, 20);
    simulation.break_images(true);
    run(&mut simulation, 40);
    simulation.break_images(false);
    simulation.withhold_capacity(0);
    run(&mut simulation, 40);
    let labels = json!({ "metadata": { "labels": { "team": "blue" } } });
    let pool = ObjectKey::Pool("general".into());
    simulation
        .edit(&pool, json!({ "spec": { "template": labels } }))
        .unwrap();
    run(&mut simulation, 20);
    simulation.take_events()
}

#[test]
fn events_of_a_history_stay_as_they_are() {
    let logs = [
        EventLog::new(&ordinary(1)),
        EventLog::new(&ordinary(7)),
        EventLog::new(&troubled(2)),
    ];
    let digests = logs.each_ref().map(|log| log.digest);
    assert_eq!(
        digests,
        [
            16_965_245_817_783_407_628,
            9_599_179_501_919_332_808,
            18_100_393_031_166_451_708
        ],
        "{logs:#?}"
    );
}
