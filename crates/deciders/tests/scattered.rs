//! Consolidation where kube-scheduler asks no extender, and so places evicted pods otherwise than planned.

use std::collections::BTreeMap;
use std::sync::Arc;

use mortise_cloudprovider::InstanceType;
use mortise_engine::record::Verdict;
use mortise_planning::disruption::candidate::{Candidate, DisruptionClass};
use mortise_planning::disruption::command::{
    CommandPhase, DisruptedNode, DisruptionCommand, Method, RelocationPlan,
};
use mortise_planning::disruption::disruption_view::DisruptionView;
use mortise_planning::disruption::simulation::{SimulationRules, what_if};
use mortise_planning::reason::Reason;
use mortise_planning::settings::Settings;
use mortise_sim::test_cluster::{TestCluster, instance_type, ordinary_types};
use serde_json::json;

use crate::automatic_cluster::{automatic_cluster, fleet, plan};

const MINUTE: i64 = 60_000;

/// Whether kube-scheduler asks the extender.
#[derive(Clone, Copy, Debug)]
enum Scheduler {
    Asks,
    AsksNot,
}

/// Nodes of 8 CPUs with these pods, in thousandths of a CPU, after half an hour. Only the first one may be disrupted.
fn nodes(types: Vec<InstanceType>, pods: &[&[i64]], scheduler: Scheduler) -> TestCluster {
    let mut world = automatic_cluster(types, Settings::default());
    for (at, of_node) in pods.iter().enumerate() {
        let name = format!("m{at}");
        world.running_node(&name, "large", "default");
        for cpu in *of_node {
            let bound = json!({ "spec": { "nodeName": name }, "status": { "phase": "Running" } });
            world.pods("web", 1, *cpu, &bound);
        }
        if at > 0 {
            let annotations = json!({ "karpenter.sh/do-not-disrupt": "true" });
            let protected = json!({ "metadata": { "annotations": annotations } });
            world.edit(&format!("Node/{name}"), &protected);
        }
    }
    if let Scheduler::Asks = scheduler {
        world.ask_extender("some-pod");
    }
    world.pass(30 * MINUTE);
    assert_eq!(world.violations(), [] as [String; 0]);
    world
}

/// Whether a record says that a command needs the planned placement.
fn is_told(world: &TestCluster) -> bool {
    let records = world.records_of(Verdict::Refused).into_iter();
    let mut reasons = records.flat_map(|record| &record.reasons);
    reasons.any(|reason| matches!(reason, Reason::NeedsPlannedPlacement))
}

#[test]
fn pods_that_fit_only_where_they_are_planned_stay_where_no_extender_is_asked() {
    // The big pod and a small one, on the nodes that have most free, leave no room for the other small one.
    let pods: [&[i64]; 3] = [&[2900, 1900, 1900], &[4700], &[3800]];
    let large = || vec![instance_type("large", 8, &[("on-demand", 400)])];
    let world = nodes(large(), &pods, Scheduler::AsksNot);
    assert_eq!(world.names("Node"), ["m0", "m1", "m2"]);
    assert!(is_told(&world));
    // The scheduler of this cluster is not guided: this is what happens otherwise.
    let world = nodes(large(), &pods, Scheduler::Asks);
    assert!(!world.has("Node/m0"));
    assert_eq!(world.claim_times().len(), 1, "one pod needs a new node");
}

#[test]
fn pods_that_fit_anywhere_are_moved() {
    let pods: [&[i64]; 3] = [&[1900, 1900], &[4700], &[3800]];
    let world = nodes(ordinary_types(), &pods, Scheduler::AsksNot);
    assert_eq!(world.node_types(), ["large", "large"]);
}

/// A node whose pods need one CPU more than the cheaper type has, and another node with room for one of them.
fn too_small(price: i64, scheduler: Scheduler) -> TestCluster {
    let types = vec![
        instance_type("six", 6, &[("on-demand", price)]),
        instance_type("large", 8, &[("on-demand", 400)]),
    ];
    let pods: [&[i64]; 2] = [&[900; 7], &[6500]];
    nodes(types, &pods, scheduler)
}

#[test]
fn a_new_node_has_room_for_all_pods_where_no_extender_is_asked() {
    let world = too_small(300, Scheduler::Asks);
    assert_eq!(world.node_types(), ["large", "six"]);
    let world = too_small(300, Scheduler::AsksNot);
    assert_eq!(world.node_types(), ["large", "large"]);
    assert!(is_told(&world));
}

#[test]
fn a_new_node_without_room_for_all_pods_must_save_much() {
    let world = too_small(200, Scheduler::AsksNot);
    assert_eq!(world.node_types(), ["large", "six"]);
}

/// Several commands may be under way: what one removes is no room for the pods of another.
#[test]
fn pods_get_no_room_on_nodes_that_other_commands_remove() {
    let types = vec![
        instance_type("six", 6, &[("on-demand", 300)]),
        instance_type("large", 8, &[("on-demand", 400)]),
    ];
    let mut world = automatic_cluster(types, Settings::default());
    // The pods of the second node need a node of 8 CPUs, or one of 6 and room next to the third pod.
    fleet(&mut world, "large", &[900, 900, 6500]);
    let bound = json!({ "spec": { "nodeName": "m1" }, "status": { "phase": "Running" } });
    world.pods("web", 6, 900, &bound);
    let found = plan(&mut world, |context| {
        let none = BTreeMap::new();
        let view = DisruptionView::new(context, &none, None);
        let candidate = |name: &str| {
            let node = view.snapshot().named.get(name).unwrap();
            Candidate::new(node, &view, DisruptionClass::Graceful).unwrap()
        };
        let (taken, other) = (candidate("m0"), candidate("m1"));
        let command = DisruptionCommand {
            id: 0,
            method: Method::Single,
            targets: vec![DisruptedNode::from(&taken)],
            moves: Arc::new(RelocationPlan::default()),
            decided: context.now,
            phase: CommandPhase::Held(context.now),
            replacements: Vec::new(),
        };
        let commands = BTreeMap::from([(0, command)]);
        let view = DisruptionView::new(context, &commands, None).waiting_for_others();
        what_if(&[&other], SimulationRules::Cheaper, &view, &|| false)
    });
    let reasons = found.expect_err("nothing is cheaper and holds").reasons;
    assert!(
        matches!(*reasons, [Reason::NeedsPlannedPlacement]),
        "{reasons:?}"
    );
}
