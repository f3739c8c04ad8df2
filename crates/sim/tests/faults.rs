//! The service is killed around every kind of effect, and every kind of effect is done twice; nothing is lost or doubled.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod world;

use mortise_sim::{Fault, FaultTarget, Simulation};
use world::{left, options, stuck};

const NOTHING: Vec<String> = Vec::new();
/// Every kind of [`mortise_engine::effect::Effect`] but `find_instance`, which no healthy cluster needs.
const EFFECTS: [&str; 12] = [
    "create_claim",
    "patch",
    "delete",
    "evict",
    "launch",
    "terminate",
    "list_pods",
    "list_instances",
    "resolve",
    "check_drift",
    "acknowledge",
    "event",
];

/// Disturbs one effect of every kind, one after the other, lets the cluster come to rest, scales to zero, and looks for what is left.
fn survives(fault: Fault) {
    let mut options = options(11);
    // Often enough that no kind of effect has to be waited for long.
    options.interruption_every_s = 240;
    let mut simulation = Simulation::new(options, mortise_deciders::all());
    for effect in EFFECTS {
        simulation.disturb(FaultTarget::Kind(effect), 1, fault, mortise_deciders::all());
        let begin = simulation.now();
        while !simulation.is_undisturbed() {
            assert!(
                mortise_apis::values::since(simulation.now(), begin) < 30 * 60_000,
                "no {effect} in half an hour: {:#?}",
                simulation.stats()
            );
            simulation.run_until(mortise_apis::values::after(simulation.now(), 10_000));
        }
    }
    let rest = |simulation: &mut Simulation, minutes: i64| {
        simulation.run_until(mortise_apis::values::after(
            simulation.now(),
            minutes * 60_000,
        ))
    };
    rest(&mut simulation, 5);
    assert_eq!(stuck(&mut simulation), NOTHING);
    simulation.apply_scale(0);
    rest(&mut simulation, 20);
    assert_eq!(left(&simulation), NOTHING, "{:#?}", simulation.stats());
    assert_eq!(simulation.stats().violations, NOTHING);
}

#[test]
fn a_crash_before_an_effect_loses_nothing() {
    survives(Fault::CrashBefore);
}

#[test]
fn a_crash_after_an_effect_doubles_nothing() {
    survives(Fault::CrashAfter);
}

#[test]
fn an_effect_that_is_done_twice_is_done_once() {
    survives(Fault::Twice);
}
