//! One watch alone is silent, late, or expires repeatedly, while the cluster scales up and down. Irreversible effects wait;
//! nothing is lost, duplicated or leaked; and the cluster recovers when the fault ends.

use crate::world::{left, options, stuck};
use mortise_engine::record::Record;
use mortise_planning::reason::Reason;
use mortise_sim::{Simulation, WatchFault};
use mortise_state::resource_kinds::ObjectKind;

const NOTHING: Vec<String> = Vec::new();
const FAULTS: [WatchFault; 3] = [
    WatchFault::Silent,
    WatchFault::Late(40_000),
    WatchFault::Expired,
];

/// 15 minutes without a fault, four minutes with it, recovery, and scale to zero. Returns how often a decider waited for a
/// fresh watch.
fn run_with_fault(seed: u64, kind: &ObjectKind, fault: WatchFault) -> usize {
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
    let waited = |record: &Record| {
        let is_outdated = |reason: &Reason| matches!(reason, Reason::Outdated(_));
        record.reasons.iter().any(is_outdated)
    };
    let waited = simulation
        .take_records()
        .iter()
        .filter(|each| waited(each))
        .count();
    simulation.disturb_watch(kind, None);
    pass(&mut simulation, 10);
    assert_eq!(stuck(&mut simulation), NOTHING, "{what}");
    simulation.apply_scale(0);
    pass(&mut simulation, 20);
    assert_eq!(left(&simulation), NOTHING, "{what}");
    assert_eq!(simulation.stats().violations, NOTHING, "{what}");
    waited
}

#[test]
fn the_cluster_recovers_from_a_fault_of_one_watch() {
    for kind in [ObjectKind::Claim, ObjectKind::Node, ObjectKind::Pdb] {
        for (seed, fault) in (21..).zip(FAULTS) {
            let waited = run_with_fault(seed, &kind, fault);
            assert!(
                waited > 0 || fault == WatchFault::Expired || kind == ObjectKind::Pdb,
                "no decider waited: {kind}, {fault:?}"
            );
        }
    }
}
