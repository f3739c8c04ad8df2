//! The service is killed around every kind of effect, and every kind of effect is executed twice; nothing is lost or duplicated.

use crate::world::{left, options, stuck};
use mortise_sim::{Fault, FaultTarget, Simulation};

const NOTHING: Vec<String> = Vec::new();
/// Every kind of [`mortise_engine::effect::Effect`] except `find_instance`, which no healthy cluster needs.
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

/// Injects a fault into one effect of every kind, one after the other, waits until the cluster is stable, scales to zero, and
/// checks that nothing is left.
fn inject_into_every_effect(fault: Fault) {
    let mut options = options(11);
    // Frequent enough for every kind of effect to occur soon.
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
    inject_into_every_effect(Fault::CrashBefore);
}

#[test]
fn a_crash_after_an_effect_duplicates_nothing() {
    inject_into_every_effect(Fault::CrashAfter);
}

#[test]
fn an_effect_that_is_executed_twice_has_one_result() {
    inject_into_every_effect(Fault::Twice);
}
