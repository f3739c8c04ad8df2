//! Nodes have less than their types say, as when a system takes more memory than is known: what cannot be right is not bought
//! over and over, what can be placed is placed, and nothing is left to mend once the types are right.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod world;

use mortise_sim::{Deployment, Simulation};
use serde_json::json;
use world::{options, stuck, template};

const MINUTE: i64 = 60_000;

fn run(simulation: &mut Simulation, minutes: i64) {
    simulation.run_until(mortise_apis::values::after(
        simulation.now(),
        minutes * MINUTE,
    ));
}

fn waiting(simulation: &mut Simulation, app: &str) -> usize {
    let snapshot = simulation.snapshot();
    let pods = snapshot.pending.values();
    pods.filter(|pod| pod.key.name.starts_with(app)).count()
}

#[test]
fn pods_that_no_node_has_room_for_in_the_end_cost_a_handful_of_nodes() {
    let mut options = options(3);
    options.interruption_every_s = 0;
    options.shortage_per_mille = 0;
    options.jobs.clear();
    for deployment in &mut options.deployments {
        deployment.period_s = 0;
        deployment.high = 20;
    }
    // Of 32 CPUs a node says that 31.9 can be had.
    let huge = Deployment {
        name: "huge".to_owned(),
        template: template("huge", "30", "8Gi"),
        low: 3,
        high: 3,
        period_s: 0,
        max_unavailable: None,
    };
    options.deployments.push(huge);
    // What was bought in vain stays, so that it can be counted.
    options.pools[0]["spec"]["disruption"]["consolidateAfter"] = json!("Never");
    options.pools[0]["spec"]["limits"] = json!({});
    let mut simulation = Simulation::new(options, mortise_deciders::all());
    simulation.withhold(10);
    run(&mut simulation, 10);
    let early = simulation.stats().nodes_launched;
    assert_eq!(waiting(&mut simulation, "huge"), 3);
    assert_eq!(
        waiting(&mut simulation, "web") + waiting(&mut simulation, "api"),
        0
    );
    run(&mut simulation, 110);
    let stats = simulation.stats();
    // Three pods, each with a node every half hour at last.
    let late = stats.nodes_launched - early;
    assert!(late <= 3 * 7, "{early}, then {late}");
    assert!(stats.events.contains_key("FailedScheduling"), "{stats:#?}");
    simulation.withhold(0);
    run(&mut simulation, 40);
    assert_eq!(stuck(&mut simulation), Vec::<String>::new());
    assert_eq!(simulation.stats().violations, Vec::<String>::new());
}
