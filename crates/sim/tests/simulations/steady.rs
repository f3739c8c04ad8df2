//! A cluster without changes gets no writes, and a busy one gets a bounded number of events.

use std::collections::BTreeMap;

use crate::world::{minutes, options, quiet};
use jiff::Timestamp;
use mortise_engine::record::Verdict;
use mortise_sim::{SimOptions, Simulation};

/// Workloads of constant size, a cloud without interruptions.
fn unchanging() -> SimOptions {
    let mut options = quiet(5);
    for deployment in &mut options.deployments {
        deployment.period_s = 0;
    }
    options
}

/// Increase between two counts.
fn grown<K: Ord + Clone>(after: &BTreeMap<K, u64>, before: &BTreeMap<K, u64>) -> BTreeMap<K, u64> {
    let mut grown = after.clone();
    for (kind, count) in before {
        *grown.entry(kind.clone()).or_default() -= count;
    }
    grown.retain(|_, count| *count > 0);
    grown
}

#[test]
fn a_cluster_at_rest_gets_no_writes_and_few_events() {
    let mut simulation = Simulation::new(unchanging(), mortise_deciders::all());
    // Long enough for the last consolidation and every cooldown after it.
    simulation.run_until(minutes(60));
    let before = simulation.stats();
    simulation.take_records();
    simulation.run_until(minutes(120));
    let after = simulation.stats();
    assert_eq!(after.violations, Vec::<String>::new());
    let nodes = after.nodes_launched - after.nodes_removed;
    assert!(nodes >= 3, "too few nodes: {after:#?}");

    let mut effects = grown(&after.effects, &before.effects);
    // Reads are allowed: instances every two minutes, the class and each claim every five.
    assert!(effects.remove("list_instances").unwrap_or(0) <= 31);
    assert!(effects.remove("resolve").unwrap_or(0) <= 13);
    assert!(effects.remove("check_drift").unwrap_or(0) <= 13 * nodes);
    // The event that explains why a node stays is repeated every 15 minutes, on Node and claim.
    let events = grown(&after.events, &before.events);
    let sent = effects.remove("event").unwrap_or(0);
    assert!(
        sent <= 2 * nodes * 4,
        "{sent} events of {nodes} nodes in an hour: {events:?}"
    );
    assert_eq!(effects, BTreeMap::new(), "nothing is written");
    let records = simulation.take_records();
    assert!(
        records.len() as u64 <= nodes * 4,
        "{} records of {nodes} nodes in an hour: {:#?}",
        records.len(),
        records.iter().rev().take(5).collect::<Vec<_>>()
    );
}

#[test]
fn a_busy_cluster_gets_each_event_once() {
    let mut simulation = Simulation::new(options(1), mortise_deciders::all());
    simulation.run_until(minutes(60));
    let stats = simulation.stats();
    let count = |reason: &str| stats.events.get(reason).copied().unwrap_or(0);
    let launched = stats.nodes_launched;
    assert!(
        launched > 50 && stats.pods_placed > 350,
        "a busy hour: {stats:#?}"
    );
    // A node lives for some twenty minutes here. Its events are sent twice (Node and claim), at most once per period; those
    // about blockers for each kind (nominated, not initialized, a pod, a budget), two of them at a time.
    assert!(count("Unconsolidatable") <= 2 * 2 * launched, "{stats:#?}");
    assert!(
        count("DisruptionBlocked") <= 2 * 2 * 6 * launched,
        "{stats:#?}"
    );
    assert!(count("FailedDraining") <= 4 * launched, "{stats:#?}");
    for reason in ["Launched", "Registered", "Initialized"] {
        assert!(count(reason) <= launched, "{reason}: {stats:#?}");
    }
    // Per pod: one nomination, at most two if its first node is deleted before it is ready.
    assert!(count("Nominated") <= 2 * stats.pods_placed, "{stats:#?}");
    let mut seen: BTreeMap<String, Timestamp> = BTreeMap::new();
    for record in simulation.take_records() {
        if matches!(record.verdict, Verdict::Refused | Verdict::Blocked) {
            // A refusal that was only logged so far may be announced: that is news for its readers.
            let what = format!(
                "{} {} {:?} {:?} {:?}",
                record.decider, record.subject, record.verdict, record.reasons, record.visibility
            );
            if let Some(before) = seen.insert(what.clone(), record.at) {
                let passed = mortise_apis::values::since(record.at, before);
                assert!(passed >= 60_000, "{what} again after {passed} ms");
            }
        }
    }
}
