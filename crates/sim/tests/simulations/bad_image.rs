//! A bad image: the whole service, from pods to instances, wastes a handful of instances at most and recovers automatically.

use crate::world::options;
use mortise_apis::karpenter::nodepool::LAUNCHES_PAUSED;
use mortise_sim::Simulation;

const MINUTE: i64 = 60_000;

fn small(seed: u64) -> Simulation {
    let mut options = options(seed);
    options.interruption_every_s = 0;
    options.shortage_per_mille = 0;
    let mut simulation = Simulation::new(options, mortise_deciders::all());
    simulation.apply_scale(30);
    simulation
}

fn has_paused_launches(simulation: &mut Simulation) -> bool {
    let snapshot = simulation.snapshot();
    snapshot
        .pools
        .values()
        .any(|pool| pool.launch_pause().is_some())
}

fn run(simulation: &mut Simulation, minutes: i64) {
    simulation.run_until(mortise_apis::values::after(
        simulation.now(),
        minutes * MINUTE,
    ));
}

#[test]
fn a_bad_image_costs_ten_instances_in_the_first_hour_and_one_that_joins_ends_the_pause() {
    let mut simulation = small(1);
    simulation.break_images(true);
    run(&mut simulation, 60);
    let stats = simulation.stats();
    let first = stats.nodes_launched;
    assert!((3..=10).contains(&first), "{first} in the first hour");
    assert!(has_paused_launches(&mut simulation));
    assert!(stats.events.contains_key(LAUNCHES_PAUSED), "{stats:#?}");
    // Claims are objects too: few are created while no node can become ready.
    let created = stats.effects.get("create_claim").copied().unwrap_or(0);
    assert!(created <= 60, "{created} claims");
    // The image is fixed; NodePool and node class do not change, so the next launch discovers it.
    simulation.break_images(false);
    run(&mut simulation, 30);
    assert!(!has_paused_launches(&mut simulation));
    let stats = simulation.stats();
    assert!(stats.nodes_launched > first + 1, "{stats:#?}");
    assert_eq!(stats.violations, Vec::<String>::new());
}
