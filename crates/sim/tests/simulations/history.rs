//! Histories of a small virtual cluster.

use crate::world::{left, minutes, options, stuck};
use mortise_sim::Simulation;

const NOTHING: Vec<String> = Vec::new();

#[test]
fn no_invariant_is_violated_in_two_hours_and_nothing_is_left() {
    let mut simulation = Simulation::new(options(1), mortise_deciders::all());
    for minute in (10..=120).step_by(10) {
        simulation.run_until(minutes(minute));
        assert_eq!(
            stuck(&mut simulation),
            NOTHING,
            "pods that are pending for more than three minutes after {minute} minutes"
        );
    }
    let stats = simulation.stats();
    assert_eq!(stats.violations, NOTHING);
    // The history must contain growth, shrinking, and interrupted instances.
    let counts = [
        stats.nodes_launched,
        stats.nodes_removed,
        stats.pods_placed,
        stats.evictions,
        stats.interruptions,
    ];
    assert!(counts.iter().all(|count| *count > 0), "{stats:#?}");

    simulation.apply_scale(0);
    simulation.run_until(minutes(150));
    assert_eq!(left(&simulation), NOTHING, "{:#?}", simulation.stats());
}

#[test]
fn the_same_seed_gives_the_same_history_however_it_is_cut() {
    let play = |seed, cuts: &[i64]| {
        let mut simulation = Simulation::new(options(seed), mortise_deciders::all());
        for cut in cuts {
            simulation.run_until(mortise_apis::values::after(minutes(0), *cut));
        }
        simulation.run_until(minutes(15));
        (
            serde_json::to_string(&simulation.take_records()).unwrap(),
            simulation.stats(),
        )
    };
    let first = play(7, &[]);
    assert!(
        first.0.len() > 10_000,
        "a history that is long enough to tell histories apart"
    );
    assert!(first == play(7, &[]), "repeated");
    assert!(
        first == play(7, &[1, 777, 60_000, 60_001, 433_333]),
        "run in parts"
    );
    assert!(first.0 != play(8, &[]).0, "another seed");
}
