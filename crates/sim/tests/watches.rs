//! One watch alone is silent, late, or too old again and again, while the cluster scales up and down. What cannot be taken
//! back waits; nothing is lost, doubled or leaked; and when the watch is well again, everything goes on.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod world;

use mortise_engine::record::Record;
use mortise_planning::reason::Reason;
use mortise_sim::{Simulation, WatchFault};
use mortise_state::resource_kinds::ObjectKind;
use world::{left, options, stuck};

const NOTHING: Vec<String> = Vec::new();
const FAULTS: [WatchFault; 3] = [
    WatchFault::Silent,
    WatchFault::Late(40_000),
    WatchFault::Expired,
];

/// A quarter of an hour of life, four minutes of the fault, rest, and scale to zero. Returns how often somebody held.
fn weathers(seed: u64, kind: &ObjectKind, fault: WatchFault) -> usize {
    let what = format!("seed {seed}, {kind} {fault:?}");
    let mut simulation = Simulation::new(options(seed), mortise_deciders::all());
    let pass = |simulation: &mut Simulation, minutes: i64| {
        simulation.run_until(mortise_apis::values::after(
            simulation.now(),
            minutes * 60_000,
        ));
    };
    pass(&mut simulation, 15);
    drop(simulation.take_records());
    simulation.disturb_watch(kind, Some(fault));
    pass(&mut simulation, 4);
    let held = |record: &Record| {
        let old = |reason: &Reason| matches!(reason, Reason::Outdated(_));
        record.reasons.iter().any(old)
    };
    let held = simulation
        .take_records()
        .iter()
        .filter(|each| held(each))
        .count();
    simulation.disturb_watch(kind, None);
    pass(&mut simulation, 10);
    assert_eq!(stuck(&mut simulation), NOTHING, "{what}");
    simulation.apply_scale(0);
    pass(&mut simulation, 20);
    assert_eq!(left(&simulation), NOTHING, "{what}");
    assert_eq!(simulation.stats().violations, NOTHING, "{what}");
    held
}

#[test]
fn a_fault_of_one_watch_is_weathered() {
    for kind in [ObjectKind::Claim, ObjectKind::Node, ObjectKind::Pdb] {
        for (seed, fault) in (21..).zip(FAULTS) {
            let held = weathers(seed, &kind, fault);
            assert!(
                held > 0 || fault == WatchFault::Expired || kind == ObjectKind::Pdb,
                "nobody held: {kind}, {fault:?}"
            );
        }
    }
}
