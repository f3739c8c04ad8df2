//! When a workload ends, the nodes that it leaves go, and pods of others stay where they are.

use mortise_sim::{Deployment, Simulation};

use crate::world::{minutes, quiet, template};

/// Pods of `web` fill nodes before `batch` comes. Their nodes may be consolidated at once when it ends, and the others a bit later: they
/// must not be emptied onto nodes that are about to go.
#[test]
fn nodes_that_a_workload_leaves_go_without_moving_pods_of_others() {
    for seed in 1..=5 {
        let mut options = quiet(seed);
        let deployment = |name: &str, size| Deployment {
            name: name.to_owned(),
            template: template(name, "900m", "1500Mi"),
            low: size,
            high: size,
            period_s: 0,
            max_unavailable: None,
        };
        options.deployments = vec![deployment("web", 40), deployment("batch", 0)];
        let mut simulation = Simulation::new(options, mortise_deciders::all());
        simulation.run_until(minutes(20));
        simulation.scale("batch", 160);
        simulation.run_until(minutes(60));
        let before = simulation.stats();
        simulation.scale("batch", 0);
        simulation.run_until(minutes(120));
        let stats = simulation.stats();
        assert_eq!(stats.violations, Vec::<String>::new());
        let removed = stats.nodes_removed - before.nodes_removed;
        assert!(removed >= 3, "{removed} nodes removed");
        assert_eq!(stats.evictions, before.evictions, "seed {seed}");
    }
}
