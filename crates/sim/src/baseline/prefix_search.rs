//! Karpenter's search: the longest prefix of the candidates that saves money, then single nodes.

use std::collections::BTreeMap;

use mortise_apis::names::PoolName;
use mortise_planning::disruption::candidate::Candidate;
use mortise_planning::disruption::command::{DisruptionReason, Method, RelocationPlan};
use mortise_planning::disruption::cost;
use mortise_planning::disruption::disruption_view::DisruptionView;
use mortise_planning::disruption::search::FoundCommand;
use mortise_planning::disruption::simulation::{SimulationRules, what_if};

/// Most nodes that one command consolidates.
const MOST_TOGETHER: usize = 101;

/// The candidates in the order in which they are tried.
pub(super) fn sorted(mut candidates: Vec<&Candidate>) -> Vec<&Candidate> {
    candidates.sort_by(|a, b| {
        cost::by_savings_ratio((a.price(), a.cost), (b.price(), b.cost))
            .then_with(|| a.claim_name.cmp(&b.claim_name))
    });
    candidates
}

/// Several nodes.
pub(super) fn several(
    candidates: &[&Candidate],
    view: &DisruptionView<'_>,
    stop: &dyn Fn() -> bool,
) -> Option<FoundCommand> {
    let mut allocation = view.budgets.allocation(DisruptionReason::Underutilized);
    let within: Vec<&Candidate> = candidates
        .iter()
        .copied()
        .filter(|each| allocation.allocate(&each.pool_name))
        .take(MOST_TOGETHER)
        .collect();
    let (mut low, mut high) = (2, within.len());
    let mut best = None;
    while low <= high {
        let middle = usize::midpoint(low, high);
        let prefix = within.get(..middle).unwrap_or_default();
        match what_if(prefix, SimulationRules::Cheaper, view, stop) {
            Ok(moves) => {
                best = Some(found(Method::Multi, prefix, moves));
                low = middle + 1;
            }
            Err(_) => high = middle - 1,
        }
    }
    best
}

/// One node; NodePools take turns.
pub(super) fn one(
    candidates: &[&Candidate],
    view: &DisruptionView<'_>,
    stop: &dyn Fn() -> bool,
) -> Option<FoundCommand> {
    let mut seen: BTreeMap<&PoolName, usize> = BTreeMap::new();
    let mut turns: Vec<(usize, &PoolName, &Candidate)> = Vec::new();
    for candidate in candidates {
        let turn = seen.entry(&candidate.pool_name).or_insert(0);
        *turn += 1;
        turns.push((*turn, &candidate.pool_name, candidate));
    }
    turns.sort_by_key(|(turn, pool, _)| (*turn, *pool));
    let reason = DisruptionReason::Underutilized;
    let mut allowed = turns
        .iter()
        .map(|(_, _, candidate)| *candidate)
        .filter(|each| view.budgets.remaining(&each.pool_name, reason) > 0);
    allowed.find_map(|candidate| {
        let moves = what_if(&[candidate], SimulationRules::Cheaper, view, stop).ok()?;
        Some(found(Method::Single, &[candidate], moves))
    })
}

fn found(method: Method, candidates: &[&Candidate], moves: RelocationPlan) -> FoundCommand {
    FoundCommand {
        method,
        candidates: candidates.iter().copied().cloned().collect(),
        moves,
    }
}
