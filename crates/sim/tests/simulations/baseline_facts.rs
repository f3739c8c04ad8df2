//! The baseline's consolidation against recorded decisions of Karpenter: that it is Karpenter's way is the point of it.
//!
//! Compared are the kind of the command and the number of nodes. `MORTISE_FACTS_DIR` points the comparison at another folder.

#[path = "../../../planning/tests/recorded/mod.rs"]
mod recorded;

use std::collections::BTreeMap;

use mortise_planning::context::PlanningContext;
use mortise_planning::disruption::search::FoundCommand;
use mortise_sim::baseline::baseline_proposals;
use mortise_state::feasible_pods::FeasiblePods;
use recorded::{Catalogs, disruptions, nominate, settings, world};
use serde_json::Value;

/// Of the answers in percent, how many must agree. The others: which of equal nodes goes first is chance there, limits hold here
/// while a replacement and what it replaces are both there, and pods that cost nothing to evict must have a place.
const FLOOR: usize = 94;

fn kind(deletes: bool, nodes: usize) -> String {
    let decision = if deletes { "delete" } else { "replace" };
    format!("{decision} {nodes}")
}

fn ours(found: Option<&FoundCommand>) -> String {
    found.map_or_else(
        || "nothing".to_owned(),
        |found| kind(found.moves.claims.is_empty(), found.candidates.len()),
    )
}

fn theirs(stage: &Value) -> String {
    let command = stage["commands"].as_array().and_then(|all| all.first());
    command.map_or_else(
        || "nothing".to_owned(),
        |command| {
            let nodes = command["candidates"].as_array().map_or(0, Vec::len);
            kind(command["decision"] == "delete", nodes)
        },
    )
}

/// A command was announced, and was not recorded any more.
fn is_unfinished(stage: &Value) -> bool {
    let events = stage["events"].as_array().into_iter().flatten();
    let mut announced = events.filter(|event| event["reason"] == "ConsolidationCandidate");
    theirs(stage) == "nothing" && announced.next().is_some()
}

#[test]
fn consolidation_decides_as_recorded() {
    let mut catalogs = Catalogs::read().and(disruptions(true));
    let mut scores: BTreeMap<&str, (usize, Vec<String>)> = BTreeMap::new();
    for record in disruptions(false) {
        let in_queue = record["providerIDsInQueue"].as_array();
        let in_queue = in_queue.is_some_and(|all| !all.is_empty());
        if record["kind"] != "pass" || in_queue {
            continue;
        }
        let Ok(mut world) = world(&record, &mut catalogs) else {
            continue;
        };
        nominate(&record, &mut world);
        let settings = settings(&record, &world);
        let context = PlanningContext {
            now: world.now,
            snapshot: &world.snapshot,
            settings: &settings,
            feasible: &FeasiblePods::default(),
            seed: 0,
        };
        let found = baseline_proposals(context);
        for stage in record["stages"].as_array().into_iter().flatten() {
            if stage["validationSnapshot"].is_object() || is_unfinished(stage) {
                continue; // the cluster or the test changed something in the middle
            }
            let (method, found) = match stage["method"].as_str() {
                Some("MultiNodeConsolidation") => ("multi", &found.multi),
                Some("SingleNodeConsolidation") => ("single", &found.single),
                _ => continue,
            };
            let (agree, differ) = scores.entry(method).or_default();
            let (ours, theirs) = (ours(found.as_ref()), theirs(stage));
            if ours == theirs {
                *agree += 1;
            } else {
                let id = record["id"].as_str().unwrap_or_default();
                differ.push(format!("{id}: {ours} instead of {theirs}"));
            }
        }
    }
    assert_eq!(scores.len(), 2);
    for (method, (agree, differ)) in &scores {
        println!("{method}: {agree} agree, {} differ", differ.len());
        differ.iter().for_each(|text| println!("  {text}"));
        assert!(*agree * 100 >= FLOOR * (agree + differ.len()), "{method}");
    }
}
