//! Searches nodes to disrupt: emptiness, drift, and consolidation of several nodes or one.
//!
//! # Heuristic
//! Consolidation first tries prefixes of the candidates in order of savings per disruption (binary search for the longest
//! feasible one), then pairs that are no prefix, then single nodes, round robin over NodePools. Where a prefix of more than ten
//! nodes launches a node, several that are cheaper take its place. If none finds anything, [`NeighborhoodSearch`] replaces groups
//! of nodes by several new ones, if that is switched on, and makes smaller commands better. A search may take several steps.
//!
//! A node that was refused on its own stays refused while it does not change and no pod can find more room than before: a command
//! only uses room up, so the search after it goes on where the last one was. When there is more room it stays refused while that
//! is certain not to be enough: some of its pods need a new node all the same, at no lower price.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::candidate::{Candidate, Policy};
use super::candidate_cache::CandidateCache;
use super::command::{DisruptionReason, Method, RelocationPlan};
use super::command_improvement::by_several;
use super::cost;
use super::disruption_view::DisruptionView;
use super::drift_holds::HeldDrift;
use super::neighborhood_search::NeighborhoodSearch;
use super::node_blockers::{never_consolidated, occupied};
use super::refusals::Refusals;
use super::rejection::DisruptionRejection;
use super::rest::rests_until;
use super::simulation::{SimulationRules, what_if};
use crate::reason::DisruptionBlocker;
use mortise_apis::names::{ClaimName, PoolName};
use mortise_state::snapshot::StateNode;

/// Most nodes that one command consolidates.
const MOST_TOGETHER: usize = 100;

/// Pairs are searched among this many of the best candidates ...
const PAIRED: usize = 12;

/// ... and this many pairs are tried.
const PAIRS: usize = 20;

/// A command that was found.
pub struct FoundCommand {
    /// The method.
    pub method: Method,
    /// Nodes to remove. Never empty.
    pub candidates: Vec<Candidate>,
    /// Relocations of their pods.
    pub moves: RelocationPlan,
}

impl FoundCommand {
    /// A command that removes these nodes.
    #[must_use]
    pub fn new(method: Method, candidates: &[&Candidate], moves: RelocationPlan) -> Self {
        Self {
            method,
            candidates: candidates.iter().copied().cloned().collect(),
            moves,
        }
    }
}

/// Outcome of a search.
pub enum SearchOutcome {
    /// A command.
    Found(Box<FoundCommand>),
    /// Out of time; some candidates were not examined.
    Unfinished,
    /// All candidates were rejected recently; the first is due again at this time.
    Waiting(Timestamp),
    /// Nothing to do until something changes.
    Nothing,
}

/// Whether the node may be removed because it is empty, if budgets allow.
fn is_empty(candidate: &Candidate, view: &DisruptionView<'_>) -> bool {
    candidate.is_empty()
        && candidate.is_consolidatable()
        && !candidate.pool.is_static()
        && !view.is_destination(candidate.key())
        && view.room().pods_on(candidate.key()) == 0
}

/// How many nodes may be removed because they are empty, regardless of budgets.
pub fn count_empty(candidates: &[Candidate], view: &DisruptionView<'_>) -> usize {
    let empty = candidates.iter().filter(|each| is_empty(each, view));
    empty.count()
}

/// How many nodes may be replaced because they are drifted, regardless of budgets.
pub fn count_drifted(candidates: &[Candidate]) -> usize {
    let drifted = candidates.iter().filter(|each| each.drifted().is_some());
    drifted.count()
}

/// Empty nodes, within the budgets.
pub fn empty(
    candidates: &[Candidate],
    view: &DisruptionView<'_>,
    refusals: &mut Refusals,
    stop: &dyn Fn() -> bool,
) -> SearchOutcome {
    let mut left = Left::default();
    let mut allocation = view.budgets.allocation(DisruptionReason::Empty);
    let mut chosen: Vec<Candidate> = Vec::new();
    let mut moves = RelocationPlan::default();
    for candidate in candidates.iter().filter(|each| is_empty(each, view)) {
        if !candidate.pods.is_empty() {
            if left.record_wait(refusals.waits_until(candidate, view.now)) {
                continue;
            }
            // Its pods cost nothing to evict, but they need free capacity on an existing node.
            let mut all: Vec<&Candidate> = chosen.iter().collect();
            all.push(candidate);
            match what_if(&all, SimulationRules::ExistingOnly, view, stop) {
                Ok(found) => moves = found,
                Err(refusal) if refusal.stopped => {
                    left.stopped = true;
                    continue;
                }
                Err(_) => {
                    refusals.refused(candidate, view.now);
                    continue;
                }
            }
        }
        if allocation.allocate(&candidate.pool_name) {
            chosen.push(candidate.clone());
        }
    }
    if chosen.is_empty() {
        return left.outcome();
    }
    SearchOutcome::Found(Box::new(FoundCommand {
        method: Method::Emptiness,
        candidates: chosen,
        moves,
    }))
}

/// What a method did not examine.
#[derive(Debug, Default)]
struct Left {
    /// There was no time for it.
    stopped: bool,
    /// It was rejected recently, and may be evaluated again from this time on.
    again: Option<Timestamp>,
}

impl Left {
    /// Records that a node waits, if it does.
    fn record_wait(&mut self, until: Option<Timestamp>) -> bool {
        self.again = self.again.into_iter().chain(until).min();
        until.is_some()
    }

    const fn outcome(self) -> SearchOutcome {
        match self {
            Self { stopped: true, .. } => SearchOutcome::Unfinished,
            Self {
                again: Some(at), ..
            } => SearchOutcome::Waiting(at),
            Self { again: None, .. } => SearchOutcome::Nothing,
        }
    }
}

/// The node that has been drifted longest and can be replaced; empty nodes first.
pub fn drifted(
    candidates: &[Candidate],
    view: &DisruptionView<'_>,
    is_resting: impl Fn(&PoolName) -> bool,
    refusals: &mut Refusals,
    mut refused: impl FnMut(&Candidate, &DisruptionRejection),
    stop: &dyn Fn() -> bool,
) -> SearchOutcome {
    let mut left = Left::default();
    let mut drifted: Vec<(bool, Timestamp, &Candidate)> = candidates
        .iter()
        .filter(|each| !each.pool.is_static())
        .filter_map(|each| Some((!each.pods.is_empty(), each.drifted()?.0, each)))
        .collect();
    drifted.sort_by_key(|(pods, since, each)| {
        let rank = refusals.rank(each);
        (rank, *pods, *since, each.claim_name.clone())
    });
    let mut held = HeldDrift::default();
    for (_, _, candidate) in drifted {
        let budget = view
            .budgets
            .remaining(&candidate.pool_name, DisruptionReason::Drifted);
        if budget == 0 || is_resting(&candidate.pool_name) {
            continue;
        }
        if held.blocks(candidate, view, &mut refused) {
            continue;
        }
        if left.record_wait(refusals.waits_until(candidate, view.now)) {
            continue;
        }
        match what_if(&[candidate], SimulationRules::AnyPrice, view, stop) {
            Ok(moves) => {
                return SearchOutcome::Found(Box::new(FoundCommand {
                    method: Method::Drift,
                    candidates: vec![candidate.clone()],
                    moves,
                }));
            }
            Err(refusal) if refusal.stopped => return SearchOutcome::Unfinished,
            Err(refusal) => {
                refusals.refused(candidate, view.now);
                refused(candidate, &refusal);
            }
        }
    }
    left.record_wait(held.next_at());
    left.outcome()
}

/// Why a node is no candidate for consolidation.
pub enum Ineligible {
    /// For this reason, which gets an event.
    Refused(DisruptionRejection),
    /// It is in cooldown until this time.
    Resting(Timestamp),
    /// Its condition `Consolidatable` is not true.
    NotYet,
}

/// Whether a node may be consolidated. `received`: end of the cooldown of nodes that got relocated pods.
pub fn eligible(
    candidate: &Candidate,
    view: &DisruptionView<'_>,
    received: &BTreeMap<ClaimName, Timestamp>,
) -> Result<(), Ineligible> {
    let reject = |blocker: DisruptionBlocker| {
        let rejection = DisruptionRejection::from_reason(blocker);
        Err(Ineligible::Refused(rejection))
    };
    if candidate.pool.is_static() {
        return Err(Ineligible::NotYet);
    }
    if let Some(blocker) = never_consolidated(candidate, view.snapshot()) {
        return reject(blocker);
    }
    let buffer_pods = view.room().pods_on(candidate.key());
    if candidate.is_empty() && candidate.pods.is_empty() {
        if buffer_pods == 0 {
            return Err(Ineligible::NotYet); // emptiness deals with it
        }
        if candidate.policy() == Policy::WhenEmpty {
            let node = candidate.node_name.to_string();
            return reject(DisruptionBlocker::BufferRoom {
                node,
                pods: buffer_pods,
            });
        }
    }
    if let Some(blocker) = occupied(candidate, view.snapshot()) {
        return reject(blocker);
    }
    if !candidate.is_consolidatable() || view.is_destination(candidate.key()) {
        return Err(Ineligible::NotYet);
    }
    let rest = view.context.settings.disruption_cooldown_ms;
    let launched = rests_until(&candidate.claim, candidate.node.created(), rest);
    let until = received.get(&candidate.claim_name).copied().max(launched);
    match until {
        Some(until) if until > view.now => Err(Ineligible::Resting(until)),
        _ => Ok(()),
    }
}

/// State of a consolidation search, which may take several steps.
#[derive(Clone, Debug, Default)]
pub struct ConsolidationSearch {
    stage: SearchStage,
    /// Nodes that were refused one by one.
    examined: BTreeMap<ClaimName, ExaminedNode>,
    neighborhoods: NeighborhoodSearch,
}

#[derive(Clone, Debug)]
struct ExaminedNode {
    node: Arc<StateNode>,
    /// The refusal compares the node with its NodePool, which every command changes.
    scored: bool,
    /// No price lets a new node replace it.
    is_irreplaceable: bool,
    /// Since it was refused, pods can find more room.
    is_doubtful: bool,
}

impl ExaminedNode {
    fn new(candidate: &Candidate, refusal: &DisruptionRejection) -> Self {
        Self {
            node: Arc::clone(&candidate.node),
            scored: refusal.scored.is_some(),
            is_irreplaceable: refusal.is_spot_to_spot_disabled(),
            is_doubtful: false,
        }
    }

    /// Whether it is certain to be refused again.
    fn stays_refused(&mut self, candidate: &Candidate, view: &DisruptionView<'_>) -> bool {
        // What it costs may have changed with any other node.
        if view.has_commitments() {
            return false;
        }
        if self.is_doubtful {
            let removed = &[candidate];
            let stays = if self.is_irreplaceable {
                !view.bound().lacking(removed, view).is_zero()
            } else {
                view.bound().certainly_refuses(removed, view)
            };
            self.is_doubtful = !stays;
        }
        !self.is_doubtful
    }
}

#[derive(Clone, Debug)]
enum SearchStage {
    /// Binary search for the longest feasible prefix: between these lengths, the upper one unknown at first.
    Prefixes {
        low: usize,
        high: Option<usize>,
        best: Option<(Vec<ClaimName>, RelocationPlan)>,
    },
    /// Trying pairs, from this one on.
    Pairs(usize),
    /// Trying nodes one by one.
    Single,
}

impl Default for SearchStage {
    fn default() -> Self {
        Self::Prefixes {
            low: 2,
            high: None,
            best: None,
        }
    }
}

impl ConsolidationSearch {
    /// Starts again, with nothing remembered: what was refused may be possible now.
    pub fn restart(&mut self) {
        *self = Self::default();
    }

    /// Starts again after a change that gives pods more room, or time in which they may have got it unseen. Nodes that were
    /// refused on their own are examined again where the room may be enough.
    ///
    /// Groups of nodes that were refused are examined again if one of them changed, or with `regroup`: more room elsewhere rarely
    /// makes several new nodes worth their moves.
    pub fn restart_with_room(&mut self, nodes: &CandidateCache, regroup: bool) {
        self.resume(nodes);
        for known in self.examined.values_mut() {
            known.is_doubtful = true;
        }
        if regroup {
            self.neighborhoods = NeighborhoodSearch::default();
        }
    }

    /// Starts again after a change that gives no pod more room. Nodes that were refused on their own are not examined again
    /// unless they changed.
    pub fn resume(&mut self, nodes: &CandidateCache) {
        self.stage = SearchStage::default();
        self.neighborhoods.resume(nodes);
        self.examined
            .retain(|_, known| !known.scored && nodes.is_unchanged(&known.node));
    }

    /// Continues the search. `candidates` are eligible ones.
    pub fn evaluate(
        &mut self,
        candidates: Vec<&Candidate>,
        view: &DisruptionView<'_>,
        refused: impl FnMut(&Candidate, &DisruptionRejection),
        stop: &dyn Fn() -> bool,
    ) -> SearchOutcome {
        let candidates = best_first(candidates);
        let groups = view.context.settings.consolidate_groups;
        let found = match self.several(&candidates, view, stop) {
            SearchOutcome::Nothing => self.one(&candidates, view, refused, stop),
            other => other,
        };
        match found {
            SearchOutcome::Found(found) if groups => {
                let improved = self.neighborhoods.improve(*found, &candidates, view, stop);
                SearchOutcome::Found(Box::new(improved))
            }
            SearchOutcome::Nothing if groups => {
                self.neighborhoods.evaluate(&candidates, view, stop)
            }
            other => other,
        }
    }

    /// Both methods independently: several nodes, and one.
    pub fn both(
        &mut self,
        candidates: Vec<&Candidate>,
        view: &DisruptionView<'_>,
        refused: impl FnMut(&Candidate, &DisruptionRejection),
        stop: &dyn Fn() -> bool,
    ) -> (SearchOutcome, SearchOutcome) {
        let candidates = best_first(candidates);
        let multi = self.several(&candidates, view, stop);
        (multi, self.one(&candidates, view, refused, stop))
    }

    fn several(
        &mut self,
        candidates: &[&Candidate],
        view: &DisruptionView<'_>,
        stop: &dyn Fn() -> bool,
    ) -> SearchOutcome {
        let mut allocation = view.budgets.allocation(DisruptionReason::Underutilized);
        let within: Vec<&Candidate> = candidates
            .iter()
            .copied()
            .filter(|each| allocation.allocate(&each.pool_name))
            .take(MOST_TOGETHER)
            .collect();
        if let SearchStage::Prefixes { low, high, best } = &mut self.stage {
            let mut most = high.unwrap_or(within.len()).min(within.len());
            while *low <= most {
                let middle = usize::midpoint(*low, most);
                let prefix = within.get(..middle).unwrap_or_default();
                match what_if(prefix, SimulationRules::Cheaper, view, stop) {
                    Ok(moves) => {
                        let names = prefix.iter().map(|each| each.claim_name.clone()).collect();
                        *best = Some((names, moves));
                        *low = middle + 1;
                    }
                    Err(refusal) if refusal.stopped => return SearchOutcome::Unfinished,
                    Err(_) => most = middle - 1,
                }
                *high = Some(most);
            }
            let best = best.take();
            self.stage = SearchStage::Pairs(0);
            if let Some((names, moves)) = best {
                // A candidate may be removed between steps; the search continues without it.
                let all: Option<Vec<&Candidate>> = names
                    .iter()
                    .map(|name| within.iter().copied().find(|each| each.claim_name == *name))
                    .collect();
                if let Some(all) = all {
                    let found = FoundCommand::new(Method::Multi, &all, moves);
                    let better = by_several(found, &within, view, stop);
                    return SearchOutcome::Found(Box::new(better));
                }
            }
        }
        if let SearchStage::Pairs(next) = &mut self.stage {
            let all = pairs(within.len().min(PAIRED)).take(PAIRS);
            for (a, b) in all.skip(*next) {
                let (Some(a), Some(b)) = (within.get(a), within.get(b)) else {
                    continue;
                };
                match what_if(&[*a, *b], SimulationRules::Cheaper, view, stop) {
                    Ok(moves) => return found(Method::Multi, &[*a, *b], moves),
                    Err(refusal) if refusal.stopped => return SearchOutcome::Unfinished,
                    Err(_) => *next += 1,
                }
            }
            self.stage = SearchStage::Single;
        }
        SearchOutcome::Nothing
    }

    fn one(
        &mut self,
        candidates: &[&Candidate],
        view: &DisruptionView<'_>,
        mut refused: impl FnMut(&Candidate, &DisruptionRejection),
        stop: &dyn Fn() -> bool,
    ) -> SearchOutcome {
        for candidate in interleaved(candidates) {
            let known = self.examined.get_mut(&candidate.claim_name);
            if known.is_some_and(|known| known.stays_refused(candidate, view)) {
                continue;
            }
            let reason = DisruptionReason::Underutilized;
            if view.budgets.remaining(&candidate.pool_name, reason) == 0 {
                continue;
            }
            match what_if(&[candidate], SimulationRules::Cheaper, view, stop) {
                Ok(moves) => return found(Method::Single, &[candidate], moves),
                Err(refusal) if refusal.stopped => return SearchOutcome::Unfinished,
                Err(refusal) => {
                    refused(candidate, &refusal);
                    if refusal.waits_until().is_some() {
                        continue; // it is examined again when others are consolidatable
                    }
                    let examined = ExaminedNode::new(candidate, &refusal);
                    self.examined.insert(candidate.claim_name.clone(), examined);
                }
            }
        }
        SearchOutcome::Nothing
    }
}

/// The candidates in the order in which they are tried: the largest savings for the least disruption first.
#[must_use]
pub fn best_first(mut candidates: Vec<&Candidate>) -> Vec<&Candidate> {
    candidates.sort_by(|a, b| {
        cost::by_savings_ratio((a.price(), a.cost), (b.price(), b.cost))
            .then_with(|| a.claim_name.cmp(&b.claim_name))
    });
    candidates
}

fn found(method: Method, candidates: &[&Candidate], moves: RelocationPlan) -> SearchOutcome {
    SearchOutcome::Found(Box::new(FoundCommand::new(method, candidates, moves)))
}

/// Pairs of indices below `count`, the best first; the first two are a prefix and left out.
fn pairs(count: usize) -> impl Iterator<Item = (usize, usize)> {
    (2..(2 * count).saturating_sub(2)).flat_map(move |sum| {
        (0..sum.div_ceil(2))
            .map(move |a| (a, sum - a))
            .filter(move |(_, b)| *b < count)
    })
}

/// One of each pool, then the next of each, and so on.
#[must_use]
pub fn interleaved<'a>(candidates: &[&'a Candidate]) -> Vec<&'a Candidate> {
    let mut seen: BTreeMap<&PoolName, usize> = BTreeMap::new();
    let mut ranked: Vec<(usize, &PoolName, &Candidate)> = candidates
        .iter()
        .map(|each| {
            let rank = seen.entry(&each.pool_name).or_insert(0);
            *rank += 1;
            (*rank, &each.pool_name, *each)
        })
        .collect();
    ranked.sort_by_key(|(rank, pool, _)| (*rank, *pool));
    ranked.into_iter().map(|(_, _, each)| each).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_come_in_order_of_rank_without_the_prefix() {
        let all: Vec<_> = pairs(4).collect();
        assert_eq!(all, [(0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]);
        assert_eq!(pairs(2).count(), 0);
        assert_eq!(pairs(0).count(), 0);
    }
}
