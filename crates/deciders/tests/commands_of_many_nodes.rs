//! Commands that remove more than ten nodes: several new ones take their place where that costs less.

use std::collections::BTreeMap;

use mortise_cloudprovider::InstanceType;
use mortise_planning::disruption::candidate::{Candidate, DisruptionClass};
use mortise_planning::disruption::command::Method;
use mortise_planning::disruption::disruption_view::DisruptionView;
use mortise_planning::disruption::search::{ConsolidationSearch, SearchOutcome};
use mortise_planning::settings::Settings;
use mortise_sim::test_cluster::{TestCluster, instance_type};
use serde_json::json;

use crate::automatic_cluster::{automatic_cluster, plan};

/// Runs a pod of this many thousandths of a CPU on each of these new nodes.
fn run(world: &mut TestCluster, of: &str, nodes: std::ops::Range<usize>, cpu: i64) {
    for at in nodes {
        let name = format!("m{at}");
        world.running_node(&name, of, "default");
        let running = json!({ "spec": { "nodeName": name }, "status": { "phase": "Running" } });
        world.pods("web", 1, cpu, &running);
    }
}

/// The method of the first command that is found, how many nodes it removes and launches, and what the new ones cost, in
/// thousandths of a dollar per hour.
fn found(world: &mut TestCluster) -> (Method, usize, usize, i64) {
    plan(world, |context| {
        let none = BTreeMap::new();
        let view = DisruptionView::new(context, &none, None);
        let nodes = view.nodes().into_iter();
        let candidate = |node| Candidate::new(node, &view, DisruptionClass::Graceful).ok();
        let all: Vec<Candidate> = nodes.filter_map(candidate).collect();
        let mut search = ConsolidationSearch::default();
        let outcome = search.evaluate(all.iter().collect(), &view, |_, _| {}, &|| false);
        let SearchOutcome::Found(found) = outcome else {
            panic!("no command is found")
        };
        let price = found.moves.new.unwrap().0 / 1_000;
        let (removed, launched) = (found.candidates.len(), found.moves.claims.len());
        (found.method, removed, launched, price)
    })
}

/// Nodes with one pod on each. A node that stays can take one more pod, a new one as many as ten.
fn cluster(nodes: usize) -> TestCluster {
    let types: Vec<InstanceType> = [
        ("old", 4, "on-demand", 400),
        ("dense", 8, "on-demand", 250),
        ("big", 16, "on-demand", 900),
        ("spare", 1, "spot", 100),
    ]
    .iter()
    .map(|(name, cpus, capacity_type, price)| {
        instance_type(name, *cpus, &[(*capacity_type, *price)])
    })
    .collect();
    let mut world = automatic_cluster(types, Settings::default());
    run(&mut world, "old", 0..nodes, 1_500);
    world
}

#[test]
fn several_nodes_take_the_place_of_more_than_ten() {
    assert_eq!(found(&mut cluster(11)), (Method::Multi, 10, 1, 900));
    assert_eq!(found(&mut cluster(12)), (Method::Repack, 12, 3, 750));
    let mut world = cluster(20);
    assert_eq!(found(&mut world), (Method::Repack, 20, 4, 1_000));
    world.pass(30 * 60_000);
    assert_eq!(world.node_types(), ["dense"; 4]);
    assert_eq!(world.pending(), 0);
    assert_eq!(world.violations(), [] as [String; 0]);
}

#[test]
fn no_others_are_added_where_a_spot_node_stays() {
    let mut world = cluster(12);
    run(&mut world, "spare", 12..13, 500);
    let protected =
        json!({ "metadata": { "annotations": { "karpenter.sh/do-not-disrupt": "true" } } });
    world.edit("Node/m12", &protected);
    assert_eq!(found(&mut world), (Method::Repack, 11, 2, 500));
    world.settings.gates.spot_to_spot_consolidation = true;
    assert_eq!(found(&mut world), (Method::Repack, 12, 3, 750));
}
