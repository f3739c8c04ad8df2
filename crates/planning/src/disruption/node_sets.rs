//! Sets of nodes that one command may remove together.

use jiff::Timestamp;

use super::candidate::Candidate;
use super::command::DisruptionReason;
use super::disruption_view::DisruptionView;
use super::rest::rests_until;

/// Most pods that a neighborhood of several nodes moves: repacking takes some 10 us for each.
const MOST_PODS: usize = 200;

/// Most pods that the replacement of one node by several moves.
const MOST_PODS_OF_ONE: usize = 1_000;

/// Among up to this many candidates, every set is tried.
pub(super) const EVERY_SET: usize = 8;

/// How long a node that replaced others is in no neighborhood; twice as long each time.
const REST_MS: i64 = 3_600_000;

/// Whether a node replaced others a short time ago. It was chosen for its pods: moving them again soon would be churn.
pub(super) fn rests(candidate: &Candidate, now: Timestamp) -> bool {
    rests_until(&candidate.claim, candidate.node.created(), REST_MS)
        .is_some_and(|until| now < until)
}

/// The first of these nodes, as many as the budgets and the number of their pods allow.
pub(super) fn within_limits<'a>(
    nodes: Vec<&'a Candidate>,
    view: &DisruptionView<'_>,
) -> Vec<&'a Candidate> {
    let mut allocation = view.budgets.allocation(DisruptionReason::Underutilized);
    let mut pods = 0_usize;
    let most = if nodes.len() > 1 {
        MOST_PODS
    } else {
        MOST_PODS_OF_ONE
    };
    let mut kept = nodes;
    kept.retain(|each| {
        let fits = pods + each.pods.len() <= most;
        let kept = fits && allocation.allocate(&each.pool_name);
        pods += if kept { each.pods.len() } else { 0 };
        kept
    });
    kept
}

/// Whether budgets and the number of their pods allow all of these nodes.
pub(super) fn is_within_limits(nodes: &[&Candidate], view: &DisruptionView<'_>) -> bool {
    within_limits(nodes.to_vec(), view).len() == nodes.len()
}

/// Every set of a few nodes, from all of them down to one.
pub(super) struct EverySet<'a> {
    of: Vec<&'a Candidate>,
    next: usize,
}

impl<'a> EverySet<'a> {
    /// None when there are many.
    pub(super) fn of(candidates: &[&'a Candidate], now: Timestamp) -> Self {
        let mut of: Vec<&Candidate> = candidates.to_vec();
        of.retain(|each| !rests(each, now));
        if of.len() > EVERY_SET {
            of.clear();
        }
        Self { of, next: 0 }
    }
}

impl<'a> Iterator for EverySet<'a> {
    type Item = Vec<&'a Candidate>;

    fn next(&mut self) -> Option<Self::Item> {
        let all = (1_usize << self.of.len()) - 1;
        let set = all.checked_sub(self.next).filter(|set| *set > 0)?;
        self.next += 1;
        let each = self.of.iter().enumerate();
        let chosen = each.filter(|(at, _)| set & (1 << at) != 0);
        Some(chosen.map(|(_, each)| *each).collect())
    }
}
