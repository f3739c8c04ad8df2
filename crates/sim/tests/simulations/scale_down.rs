//! When a workload ends, the nodes that it leaves go, and pods of others stay where they are.

use mortise_sim::{Deployment, Simulation};

use crate::world::{minutes, quiet, template};

fn deployment(name: &str, size: u32) -> Deployment {
    Deployment {
        name: name.to_owned(),
        template: template(name, "900m", "1500Mi"),
        low: size,
        high: size,
        period_s: 0,
        max_unavailable: None,
    }
}

/// Pods of `web` fill nodes before `batch` comes. Their nodes may be consolidated at once when it ends, and the others a bit later: they
/// must not be emptied onto nodes that are about to go.
#[test]
fn nodes_that_a_workload_leaves_go_without_moving_pods_of_others() {
    for seed in 1..=5 {
        let mut options = quiet(seed);
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

/// `web` shrinks to a third next to another workload whose pods are on the same nodes. Without costs it leaves all nodes a bit emptier.
#[test]
fn with_deletion_costs_a_workload_that_shrinks_leaves_whole_nodes() {
    let evictions = |seed, pod_deletion_costs| {
        let mut options = quiet(seed);
        options.settings.pod_deletion_costs = pod_deletion_costs;
        options.deployments = vec![deployment("web", 120), deployment("api", 40)];
        let mut simulation = Simulation::new(options, mortise_deciders::all());
        simulation.run_until(minutes(60));
        let before = simulation.stats();
        simulation.scale("web", 40);
        simulation.run_until(minutes(4 * 60));
        let stats = simulation.stats();
        assert_eq!(stats.violations, Vec::<String>::new());
        assert!(stats.nodes_removed > before.nodes_removed, "{stats:?}");
        stats.evictions - before.evictions
    };
    let sum = |is_on| (1..=5).map(|seed| evictions(seed, is_on)).sum::<u64>();
    let (with, without) = (sum(true), sum(false));
    assert!(2 * with < without, "{with} evictions instead of {without}");
}
