//! What consolidation remembers: a node that was refused is examined again when it changes, or when pods can find room enough.

use std::collections::{BTreeMap, BTreeSet};

use crate::automatic_cluster::{ordinary_cluster, plan};
use mortise_planning::context::PlanningContext;
use mortise_planning::disruption::candidate::{Candidate, DisruptionClass};
use mortise_planning::disruption::candidate_cache::CandidateCache;
use mortise_planning::disruption::disruption_view::DisruptionView;
use mortise_planning::disruption::search::{self, ConsolidationSearch, SearchOutcome};
use mortise_sim::test_cluster::TestCluster;
use serde_json::json;

/// A search and its memory, from evaluation to evaluation.
#[derive(Default)]
struct Memory {
    nodes: CandidateCache,
    search: ConsolidationSearch,
}

impl Memory {
    /// Goes on as the decider does after a change. Returns whether there is more room than before, and the nodes that were
    /// examined and refused.
    fn examine(&mut self, world: &mut TestCluster) -> (bool, BTreeSet<String>) {
        plan(world, |context| self.examine_now(context))
    }

    fn examine_now(&mut self, context: PlanningContext<'_>) -> (bool, BTreeSet<String>) {
        let none = BTreeMap::new();
        let view = DisruptionView::new(context, &none, None).without_bound();
        let grew = self.nodes.refresh(&view);
        if grew {
            self.search.restart_with_room(&self.nodes, false);
        } else {
            self.search.resume(&self.nodes);
        }
        let mut candidate = |node| {
            let class = DisruptionClass::Graceful;
            let found = self.nodes.candidate(node, &view, class).ok()?;
            let fresh = Candidate::new(node, &view, class).ok().unwrap();
            assert_eq!(format!("{found:?}"), format!("{fresh:?}"));
            Some(found)
        };
        let all: Vec<Candidate> = view
            .nodes()
            .into_iter()
            .filter_map(&mut candidate)
            .collect();
        let received = BTreeMap::new();
        let eligible = all
            .iter()
            .filter(|each| search::eligible(each, &view, &received).is_ok());
        let mut refused = BTreeSet::new();
        let outcome = self.search.evaluate(
            eligible.collect(),
            &view,
            |candidate, _| {
                refused.insert(candidate.node_name.to_string());
            },
            &|| false,
        );
        assert!(matches!(outcome, SearchOutcome::Nothing));
        (grew, refused)
    }
}

fn names(all: &[&str]) -> BTreeSet<String> {
    all.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn a_refused_node_is_examined_again_for_a_reason_only() {
    let mut world = ordinary_cluster();
    for name in ["a", "b", "c"] {
        world.running_node(name, "small", "default");
        let running = json!({ "spec": { "nodeName": name }, "status": { "phase": "Running" } });
        world.pods("web", 1, 1_000, &running);
        world.pods("web", 1, 200, &running);
    }
    let mut memory = Memory::default();
    let first = memory.examine(&mut world);
    assert_eq!(
        first,
        (true, names(&["a", "b", "c"])),
        "all of them are new"
    );
    assert_eq!(memory.examine(&mut world), (false, names(&[])), "the same");

    // A pod more: its node changed, and no pod finds more room than before.
    let running = json!({ "spec": { "nodeName": "b" }, "status": { "phase": "Running" } });
    world.pods("late", 1, 200, &running);
    assert_eq!(memory.examine(&mut world), (false, names(&["b"])));

    // A pod less: only its node changed, and the large pods of the others still need a new node, at the same price.
    world.scale_down("late", 1);
    assert_eq!(memory.examine(&mut world), (true, names(&["b"])));

    // A node goes: no room more. A node comes: room, and not enough.
    world.erase("Node/c");
    world.erase("NodeClaim/c");
    assert_eq!(memory.examine(&mut world), (false, names(&[])));
    world.running_node("d", "small", "default");
    let running = json!({ "spec": { "nodeName": "d" }, "status": { "phase": "Running" } });
    world.pods("web", 1, 1_900, &running);
    assert_eq!(memory.examine(&mut world), (true, names(&["d"])));

    // A node with room for every pod, for which none of them has a toleration: its taint is not known to the bound.
    let taints = |all| json!({ "spec": { "taints": all } });
    let taint = json!([{ "key": "busy", "effect": "NoSchedule" }]);
    world.running_node("e", "large", "default");
    world.edit("Node/e", &taints(taint.clone()));
    world.edit(
        "Node/e",
        &json!({ "metadata": { "annotations": { "karpenter.sh/do-not-disrupt": "true" } } }),
    );
    assert_eq!(memory.examine(&mut world), (true, names(&["a", "b", "d"])));
    assert_eq!(memory.examine(&mut world), (false, names(&[])));

    // A taint is removed: its node takes pods that it did not take, and not enough.
    world.edit("Node/d", &taints(taint));
    memory.examine(&mut world);
    assert_eq!(memory.examine(&mut world), (false, names(&[])));
    world.edit("Node/d", &taints(json!([])));
    assert_eq!(memory.examine(&mut world), (true, names(&["a", "b", "d"])));
}
