//! Karpenter's search: the longest prefix of the candidates that saves money, then single nodes.

use mortise_planning::disruption::candidate::Candidate;
use mortise_planning::disruption::command::{DisruptionReason, Method};
use mortise_planning::disruption::disruption_view::DisruptionView;
use mortise_planning::disruption::search::{FoundCommand, interleaved};
use mortise_planning::disruption::simulation::{SimulationRules, what_if};

/// Most nodes that one command consolidates.
const MOST_TOGETHER: usize = 101;

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
                best = Some(FoundCommand::new(Method::Multi, prefix, moves));
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
    let reason = DisruptionReason::Underutilized;
    let mut allowed = interleaved(candidates)
        .into_iter()
        .filter(|each| view.budgets.remaining(&each.pool_name, reason) > 0);
    allowed.find_map(|candidate| {
        let moves = what_if(&[candidate], SimulationRules::Cheaper, view, stop).ok()?;
        Some(FoundCommand::new(Method::Single, &[candidate], moves))
    })
}
