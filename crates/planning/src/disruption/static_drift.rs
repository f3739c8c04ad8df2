//! Drifted nodes of static NodePools: replaced one by one from the template, regardless of their pods.
//!
//! # Source
//! karpenter-core 5.10 (static).

use std::collections::BTreeMap;

use super::candidate::Candidate;
use super::command::{DisruptionCommand, Method, RelocationPlan};
use super::disruption_view::DisruptionView;
use super::drift_holds::HeldDrift;
use super::rejection::DisruptionRejection;
use super::search::{FoundCommand, SearchOutcome};
use crate::reason::{DisruptionBlocker, Reason};
use crate::replica_counts::ReplicaCounts;
use crate::scheduling::{SolveOptions, StaticClaimPlanner};
use mortise_apis::names::PoolName;

/// The node that has been drifted longest and whose replacement the NodePool allows.
pub fn drifted(
    candidates: &[Candidate],
    view: &DisruptionView<'_>,
    is_resting: impl Fn(&PoolName) -> bool,
    mut refused: impl FnMut(&Candidate, &DisruptionRejection),
) -> SearchOutcome {
    if !view.context.settings.gates.static_capacity {
        return SearchOutcome::Nothing;
    }
    let mut drifted: Vec<_> = candidates
        .iter()
        .filter(|each| each.pool.is_static())
        .filter_map(|each| Some((each.drifted()?.0, each)))
        .collect();
    drifted.sort_by_key(|(since, each)| (*since, each.claim_name.clone()));
    // A blocker of one replacement blocks all nodes of the NodePool.
    let mut blocked_pools: BTreeMap<&PoolName, DisruptionRejection> = BTreeMap::new();
    let mut held = HeldDrift::default();
    for (_, candidate) in drifted {
        if let Some(refusal) = blocked_pools.get(&candidate.pool_name) {
            refused(candidate, refusal);
            continue;
        }
        let reason = Method::Drift.reason();
        let budget = view.budgets.remaining(&candidate.pool_name, reason);
        if budget == 0 || is_resting(&candidate.pool_name) {
            continue;
        }
        if held.blocks(candidate, view, &mut refused) {
            continue;
        }
        match replacement(candidate, view) {
            Ok(moves) => {
                return SearchOutcome::Found(Box::new(FoundCommand {
                    method: Method::Drift,
                    candidates: vec![candidate.clone()],
                    moves,
                }));
            }
            Err(refusal) => {
                refused(candidate, &refusal);
                blocked_pools.insert(&candidate.pool_name, refusal);
            }
        }
    }
    held.next_at()
        .map_or(SearchOutcome::Nothing, SearchOutcome::Waiting)
}

/// The replacement of the candidate.
pub fn replacement(
    candidate: &Candidate,
    view: &DisruptionView<'_>,
) -> Result<RelocationPlan, DisruptionRejection> {
    let Candidate {
        pool, pool_name, ..
    } = candidate;
    let all = view.static_pools();
    let census = all
        .get(pool_name)
        .cloned()
        .unwrap_or_else(ReplicaCounts::default);
    let replicas = pool.spec.replicas.unwrap_or_default();
    if census.missing(replicas) < 0 {
        let blocker = DisruptionBlocker::SurplusReplicas {
            pool: pool_name.clone(),
            replicas,
        };
        return Err(DisruptionRejection::from_reason(blocker));
    }
    let planned_by_others = view.planned(pool_name);
    if let Some(limit) = pool.limits().nodes
        && census.nodes() + planned_by_others + 1 > limit
    {
        let message = format!(
            "limit of nodes is {limit}, and {} nodes exist or are planned: no replacement can be launched",
            census.nodes() + planned_by_others
        );
        return Err(DisruptionRejection::from_reason(Reason::Limit {
            pool: pool_name.clone(),
            message,
        }));
    }
    // It takes the place of the candidate, also in its zone, and in what is on-demand and paid for, next to what other commands launch.
    let options = SolveOptions {
        without: [candidate.key().clone()].into(),
        commitments: view.commitments_without(&[candidate], false),
        on_demand: view.on_demand().without(&[candidate], view.snapshot()),
        ..view.context.settings.solve_options()
    };
    let mut planner = StaticClaimPlanner::new(view.snapshot(), &options);
    let template = planner.template(pool).map_err(|why| {
        DisruptionRejection::from_reason(DisruptionBlocker::NoReplacement {
            pool: pool_name.clone(),
            why,
        })
    })?;
    let planned = planner.plan(&template);
    Ok(RelocationPlan {
        old: candidate.price(),
        new: planned.cost(),
        claims: vec![planned],
        placements: Vec::new(),
    })
}

/// NodePools of the NodeClaims that a command will create and the ledger does not contain yet.
pub fn not_asked_for(command: &DisruptionCommand) -> impl Iterator<Item = &PoolName> {
    let open = !command.phase.is_nominated();
    command
        .moves
        .claims
        .iter()
        .filter(move |_| open)
        .map(|claim| &claim.pool)
}
