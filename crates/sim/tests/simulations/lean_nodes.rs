//! Nodes have less capacity than their instance types, as when the system uses more memory than expected: launches that cannot
//! help are not repeated, all other pods are scheduled, and the cluster recovers once the capacity is correct.

use crate::world::{quiet, stuck, template};
use mortise_sim::{Deployment, Simulation};
use serde_json::json;

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
fn pods_that_fit_no_node_cost_a_handful_of_nodes() {
    let mut options = quiet(3);
    for deployment in &mut options.deployments {
        deployment.period_s = 0;
        deployment.high = 20;
    }
    // Of 32 CPUs 31.9 are expected to be allocatable.
    let huge = Deployment {
        name: "huge".to_owned(),
        template: template("huge", "30", "8Gi"),
        low: 3,
        high: 3,
        period_s: 0,
        max_unavailable: None,
    };
    options.deployments.push(huge);
    // Unused nodes stay, so that they can be counted.
    options.pools[0]["spec"]["disruption"]["consolidateAfter"] = json!("Never");
    options.pools[0]["spec"]["limits"] = json!({});
    let mut simulation = Simulation::new(options, mortise_deciders::all());
    simulation.withhold_capacity(10);
    run(&mut simulation, 10);
    let early = simulation.stats().nodes_launched;
    assert_eq!(waiting(&mut simulation, "huge"), 3);
    assert_eq!(
        waiting(&mut simulation, "web") + waiting(&mut simulation, "api"),
        0
    );
    run(&mut simulation, 110);
    let stats = simulation.stats();
    // Three pods, each finally with a node every half hour.
    let late = stats.nodes_launched - early;
    assert!(late <= 3 * 7, "{early}, then {late}");
    assert!(stats.events.contains_key("FailedScheduling"), "{stats:#?}");
    simulation.withhold_capacity(0);
    run(&mut simulation, 40);
    assert_eq!(stuck(&mut simulation), Vec::<String>::new());
    assert_eq!(simulation.stats().violations, Vec::<String>::new());
}
