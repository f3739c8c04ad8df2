//! Replaces groups of overpaid nodes by several cheaper ones, and single ones by several smaller ones.
//!
//! # Heuristic
//! Large neighborhood search: a neighborhood is a few nodes that are overpaid most for the disruption that moving their pods is,
//! at the prices of [`ResourceValues`]. They are removed, and the scheduler places their pods on the nodes that stay and on as
//! many new ones as are cheapest (ruin and recreate). Neighborhoods of many nodes come first, then of a few, then single nodes.
//! Nodes that a plan would only launch again are kept, if that saves more for the disruption.
//!
//! # Cost
//! One simulation for each neighborhood that is not known to be refused. Which nodes begin a neighborhood depends on their names
//! alone, so a command or a change of a node leaves most refusals valid.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::candidate::Candidate;
use super::candidate_cache::CandidateCache;
use super::command::{Method, RelocationPlan};
use super::command_improvement::{best_set, by_one, extended, may_improve};
use super::disruption_view::DisruptionView;
use super::node_sets::{EVERY_SET, EverySet, rests, within_limits};
use super::price::repeated;
use super::resource_values::ResourceValues;
use super::search::{FoundCommand, SearchOutcome};
use super::simulation::{SimulationRules, what_if, worth_the_moves};
use mortise_apis::names::ClaimName;
use mortise_apis::values::fnv1a;
use mortise_apis::values::money::MicroUsd;
use mortise_cloudprovider::CapacityType;
use mortise_state::snapshot::StateNode;

/// Most nodes of a neighborhood, in the order in which they are tried.
const SIZES: [usize; 3] = [10, 4, 1];

/// Most neighborhoods that one search evaluates: less than a second among 2,000 nodes. Those that remain come in the next one.
const MOST_EVALUATED: usize = 100;

/// Plans without the nodes that the plan before would only launch again.
const SHRINKS: usize = 4;

/// Which neighborhoods were refused, and how much of a search is done.
#[derive(Clone, Debug, Default)]
pub struct NeighborhoodSearch {
    refused: BTreeMap<Vec<ClaimName>, RefusedNeighborhood>,
    values: Option<ResourceValues>,
    evaluated: usize,
}

/// The nodes of a neighborhood as they were when it was refused.
#[derive(Clone, Debug)]
struct RefusedNeighborhood {
    nodes: Vec<Arc<StateNode>>,
    /// The refusal compares the nodes with their NodePools, which every command changes.
    scored: bool,
}

impl NeighborhoodSearch {
    /// Begins a search that knows what was refused before, as far as the nodes are the same.
    pub(super) fn resume(&mut self, nodes: &CandidateCache) {
        self.refused.retain(|_, known| {
            !known.scored && known.nodes.iter().all(|node| nodes.is_unchanged(node))
        });
        self.values = None;
        self.evaluated = 0;
    }

    /// Continues the search among eligible candidates.
    pub(super) fn evaluate(
        &mut self,
        candidates: &[&Candidate],
        view: &DisruptionView<'_>,
        stop: &dyn Fn() -> bool,
    ) -> SearchOutcome {
        let overpaid = overpaid(candidates, self.values(view), view);
        for nodes in Neighborhoods::new(&overpaid, candidates, view.now) {
            let nodes = within_limits(nodes, view);
            let names: Vec<ClaimName> = nodes.iter().map(|each| each.claim_name.clone()).collect();
            if nodes.is_empty() || self.refused.contains_key(&names) || is_frozen(&nodes, view) {
                continue;
            }
            if self.evaluated >= MOST_EVALUATED {
                break;
            }
            match planned(&nodes, candidates.len() <= EVERY_SET, view, stop) {
                Planned::Found(found) => return SearchOutcome::Found(found),
                Planned::Unknown => return SearchOutcome::Unfinished,
                Planned::Refused { scored } => {
                    let nodes = nodes.iter().map(|each| Arc::clone(&each.node)).collect();
                    let refused = RefusedNeighborhood { nodes, scored };
                    self.refused.insert(names, refused);
                    self.evaluated += 1;
                }
            }
        }
        SearchOutcome::Nothing
    }

    /// A command that was found, improved where that saves more.
    pub(super) fn improve(
        &mut self,
        found: FoundCommand,
        candidates: &[&Candidate],
        view: &DisruptionView<'_>,
        stop: &dyn Fn() -> bool,
    ) -> FoundCommand {
        if !may_improve(&found, view) {
            return found;
        }
        if candidates.len() <= EVERY_SET {
            return best_set(found, candidates, view, stop);
        }
        let overpaid = overpaid(candidates, self.values(view), view);
        extended(found, &overpaid, view, stop)
    }

    /// Computed once for each search.
    fn values(&mut self, view: &DisruptionView<'_>) -> &ResourceValues {
        self.values
            .get_or_insert_with(|| ResourceValues::of_pods(view.snapshot()))
    }
}

/// Nodes that cost more than their pods are worth, by enough to be worth the moves; the best first.
fn overpaid<'a>(
    candidates: &[&'a Candidate],
    values: &ResourceValues,
    view: &DisruptionView<'_>,
) -> Vec<&'a Candidate> {
    let waste = |candidate: &Candidate| -> Option<MicroUsd> {
        if rests(candidate, view.now) {
            return None;
        }
        let price = candidate.price()?;
        let waste = price - values.value_of_pods(candidate);
        (waste >= worth_the_moves(price, &[candidate], view)).then_some(waste)
    };
    let each = candidates.iter();
    let mut all: Vec<(MicroUsd, &Candidate)> = each
        .filter_map(|candidate| Some((waste(candidate)?, *candidate)))
        .collect();
    all.sort_by(|(waste_a, a), (waste_b, b)| {
        let left = i128::from(waste_a.0).saturating_mul(i128::from(b.cost.0));
        let right = i128::from(waste_b.0).saturating_mul(i128::from(a.cost.0));
        right
            .cmp(&left)
            .then_with(|| a.claim_name.cmp(&b.claim_name))
    });
    all.into_iter().map(|(_, candidate)| candidate).collect()
}

/// Spot nodes that no other spot nodes may replace.
fn is_frozen(nodes: &[&Candidate], view: &DisruptionView<'_>) -> bool {
    let spot = Some(CapacityType::Spot);
    !view.context.settings.gates.spot_to_spot_consolidation
        && nodes.iter().all(|each| each.capacity_type() == spot)
}

/// What is known of a neighborhood.
enum Planned {
    Found(Box<FoundCommand>),
    Refused {
        /// By the policy `Balanced`.
        scored: bool,
    },
    /// Time ran out.
    Unknown,
}

/// The plan for these nodes. Where every set is tried, they may be replaced by one node as well, whatever that saves.
fn planned(
    nodes: &[&Candidate],
    is_small: bool,
    view: &DisruptionView<'_>,
    stop: &dyn Fn() -> bool,
) -> Planned {
    let planned = best_plan(nodes, view, stop);
    if !is_small || !matches!(planned, Planned::Refused { .. }) {
        return planned;
    }
    match what_if(nodes, SimulationRules::Cheaper, view, stop) {
        Ok(moves) => Planned::Found(Box::new(FoundCommand {
            method: by_one(nodes),
            candidates: nodes.iter().map(|each| (*each).clone()).collect(),
            moves,
        })),
        Err(refusal) if refusal.stopped => Planned::Unknown,
        Err(_) => planned,
    }
}

/// The plan for these nodes, or for those of them that it would not only launch again, that saves most for its disruption.
fn best_plan(nodes: &[&Candidate], view: &DisruptionView<'_>, stop: &dyn Fn() -> bool) -> Planned {
    let mut nodes = nodes.to_vec();
    let mut best: Option<(Vec<&Candidate>, RelocationPlan)> = None;
    let mut scored = false;
    for _ in 0..SHRINKS {
        let moves = match what_if(&nodes, SimulationRules::CheaperTogether, view, stop) {
            Ok(moves) => moves,
            Err(refusal) if refusal.stopped && best.is_none() => return Planned::Unknown,
            Err(refusal) => {
                scored |= refusal.scored.is_some();
                break;
            }
        };
        let mut kept = nodes.clone();
        let again = repeated(&moves.claims, &nodes);
        kept.retain(|each| !again.contains(&&each.claim_name));
        let is_last = kept.is_empty() || kept.len() == nodes.len();
        let known = best.as_ref();
        if known.is_none_or(|(of, known)| saves_more((&nodes, &moves), (of, known))) {
            best = Some((nodes, moves));
        }
        if is_last {
            break;
        }
        nodes = kept;
    }
    best.map_or(Planned::Refused { scored }, |(nodes, moves)| {
        Planned::Found(Box::new(FoundCommand {
            method: Method::Repack,
            candidates: nodes.into_iter().cloned().collect(),
            moves,
        }))
    })
}

/// Whether the first plan saves more for its disruption than the second.
fn saves_more(
    (nodes, moves): (&[&Candidate], &RelocationPlan),
    (other_nodes, other): (&[&Candidate], &RelocationPlan),
) -> bool {
    let cost = |of: &[&Candidate]| -> i128 { of.iter().map(|each| i128::from(each.cost.0)).sum() };
    let saved = |of: &RelocationPlan| i128::from(of.savings().unwrap_or_default().0);
    saved(moves).saturating_mul(cost(other_nodes)) > saved(other).saturating_mul(cost(nodes))
}

/// Neighborhoods of overpaid nodes, in the order in which they are tried.
struct Neighborhoods<'n, 'a> {
    overpaid: &'n [&'a Candidate],
    /// Every set, after these sizes.
    sets: EverySet<'a>,
    /// Index into [`SIZES`].
    size: usize,
    /// The next node that may begin a neighborhood.
    next: usize,
}

impl<'n, 'a> Neighborhoods<'n, 'a> {
    fn new(overpaid: &'n [&'a Candidate], candidates: &[&'a Candidate], now: Timestamp) -> Self {
        Self {
            overpaid,
            sets: EverySet::of(candidates, now),
            size: 0,
            next: 0,
        }
    }
}

impl<'a> Iterator for Neighborhoods<'_, 'a> {
    type Item = Vec<&'a Candidate>;

    fn next(&mut self) -> Option<Self::Item> {
        while let Some(size) = SIZES.get(self.size).copied() {
            let Some(first) = self.overpaid.get(self.next) else {
                self.size += 1;
                self.next = 0;
                continue;
            };
            let rest = self.overpaid.get(self.next..).unwrap_or_default();
            self.next += 1;
            if size == 1 || (rest.len() > 1 && begins(first, size)) {
                return Some(rest.iter().take(size).copied().collect());
            }
        }
        self.sets.next()
    }
}

/// Whether a neighborhood of this many nodes begins with this one: as many do as make neighborhoods overlap by half. By the name
/// alone, so that a change of other nodes changes only the neighborhoods that they are part of.
fn begins(first: &Candidate, size: usize) -> bool {
    let hash = fnv1a(first.claim_name.bytes());
    let every = u64::try_from(size / 2).unwrap_or(1).max(1);
    (hash >> 32).is_multiple_of(every)
}
