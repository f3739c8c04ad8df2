//! Drifted machines of pools with a fixed number of nodes: replaced one by one from the template, whatever runs on them.
//!
//! # Source
//! karpenter-core 5.10 (static).

use std::collections::BTreeMap;

use super::candidate::Candidate;
use super::command::{DisruptionCommand, Method, RelocationPlan};
use super::disruption_view::DisruptionView;
use super::search::{FoundCommand, SearchOutcome};
use super::simulation::DisruptionRejection;
use crate::reason::Reason;
use crate::replica_counts::ReplicaCounts;
use crate::scheduling::plan_static_claim;
use mortise_apis::names::PoolName;

/// The machine that has been drifted longest and whose replacement the pool allows.
pub fn drifted(
    candidates: &[Candidate],
    world: &DisruptionView<'_>,
    is_resting: impl Fn(&PoolName) -> bool,
    mut refused: impl FnMut(&Candidate, &DisruptionRejection),
) -> SearchOutcome {
    if !world.context.settings.gates.static_capacity {
        return SearchOutcome::Nothing;
    }
    let mut drifted: Vec<_> = candidates
        .iter()
        .filter(|each| each.pool.is_static())
        .filter_map(|each| Some((each.drifted()?.0, each)))
        .collect();
    drifted.sort_by_key(|(since, each)| (*since, each.claim_name.clone()));
    // What is in the way of a replacement is in the way of all machines of the pool.
    let mut in_the_way: BTreeMap<&PoolName, DisruptionRejection> = BTreeMap::new();
    for (_, candidate) in drifted {
        if let Some(refusal) = in_the_way.get(&candidate.pool_name) {
            refused(candidate, refusal);
            continue;
        }
        let reason = Method::Drift.reason();
        let budget = world.budgets.remaining(&candidate.pool_name, reason);
        if budget == 0 || is_resting(&candidate.pool_name) {
            continue;
        }
        match replacement(candidate, world) {
            Ok(moves) => {
                return SearchOutcome::Found(Box::new(FoundCommand {
                    method: Method::Drift,
                    candidates: vec![candidate.clone()],
                    moves,
                }));
            }
            Err(refusal) => {
                refused(candidate, &refusal);
                in_the_way.insert(&candidate.pool_name, refusal);
            }
        }
    }
    SearchOutcome::Nothing
}

/// A new machine in place of the candidate.
pub fn replacement(
    candidate: &Candidate,
    world: &DisruptionView<'_>,
) -> Result<RelocationPlan, DisruptionRejection> {
    let Candidate {
        pool, pool_name, ..
    } = candidate;
    let all = world.static_pools();
    let census = all
        .get(pool_name)
        .cloned()
        .unwrap_or_else(ReplicaCounts::default);
    let replicas = pool.spec.replicas.unwrap_or_default();
    if census.missing(replicas) < 0 {
        return Err(DisruptionRejection::note(format!(
            "NodePool \"{pool_name}\" has more than its {replicas} replicas"
        )));
    }
    let planned_by_others = world.planned(pool_name);
    if let Some(limit) = pool.limits().nodes
        && census.machines() + planned_by_others + 1 > limit
    {
        let message = format!(
            "limit of nodes is {limit}, and {} nodes exist or are planned: no replacement can be launched",
            census.machines() + planned_by_others
        );
        return Err(DisruptionRejection::new(
            format!("NodePool \"{pool_name}\": {message}"),
            vec![Reason::Limit {
                pool: pool_name.clone(),
                message,
            }],
        ));
    }
    let planned = plan_static_claim(
        pool,
        world.snapshot(),
        &world.context.settings.solve_options(),
    )
    .map_err(|why| DisruptionRejection::note(format!("NodePool \"{pool_name}\": {why}")))?;
    Ok(RelocationPlan {
        old: candidate.price(),
        new: planned
            .cheapest
            .as_ref()
            .and_then(|cheapest| cheapest.price),
        claims: vec![planned],
        placements: Vec::new(),
    })
}

/// Machines that a command will ask for and that the ledger does not know yet.
pub fn not_asked_for(command: &DisruptionCommand) -> impl Iterator<Item = &PoolName> {
    let open = !command.phase.is_promised();
    command
        .moves
        .claims
        .iter()
        .filter(move |_| open)
        .map(|claim| &claim.pool)
}
