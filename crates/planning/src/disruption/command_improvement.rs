//! Improves a command that launches nodes: its nodes are replaced by several, and others are added or left out.

use super::candidate::{Candidate, capacity_type, count_pods};
use super::command::{Method, RelocationPlan};
use super::disruption_view::DisruptionView;
use super::node_sets::{EVERY_SET, EverySet, is_within_limits, rests};
use super::search::FoundCommand;
use super::simulation::{SimulationRules, what_if, worth_the_moves};
use mortise_apis::values::money::MicroUsd;
use mortise_cloudprovider::CapacityType;
use mortise_state::snapshot::StateNode;

/// Most nodes that are added or left out, one by one.
const STEPS: usize = 4;

/// To commands of more nodes none are added, and none are left out: each step would simulate as many.
const MOST_NODES: usize = 10;

/// Commands that move more pods are not repacked: these take 0.3 s.
const MOST_PODS: usize = 2_000;

/// The method that replaces these nodes by one.
pub(super) const fn by_one(nodes: &[&Candidate]) -> Method {
    if nodes.len() == 1 {
        Method::Single
    } else {
        Method::Multi
    }
}

/// The set of these few candidates that saves most, if it saves more than the command that was found.
pub(super) fn best_set(
    found: FoundCommand,
    candidates: &[&Candidate],
    view: &DisruptionView<'_>,
    stop: &dyn Fn() -> bool,
) -> FoundCommand {
    let mut best = found;
    for nodes in EverySet::of(candidates, view.now) {
        if !is_within_limits(&nodes, view) {
            continue;
        }
        for (method, rules) in [
            (by_one(&nodes), SimulationRules::Cheaper),
            (Method::Repack, SimulationRules::CheaperTogether),
        ] {
            view.grant();
            let Ok(moves) = what_if(&nodes, rules, view, stop) else {
                continue;
            };
            if moves.savings() > best.moves.savings() {
                best = command(method, &nodes, moves);
            }
        }
    }
    best
}

/// A command of many nodes with these replaced by several, and with all others of `most` added, where each saves enough for the
/// pods that it moves. Commands of few nodes stay as Karpenter decides them.
///
/// No others are added where spot nodes would stay behind: new nodes of the right size have no room for their pods, and no other
/// spot nodes may replace them.
pub(super) fn by_several(
    found: FoundCommand,
    most: &[&Candidate],
    view: &DisruptionView<'_>,
    stop: &dyn Fn() -> bool,
) -> FoundCommand {
    if found.candidates.len() <= MOST_NODES || !may_improve(&found, view) {
        return found;
    }
    let own: Vec<&Candidate> = found.candidates.iter().collect();
    if count_pods(&own) > MOST_PODS {
        return found;
    }
    let repacked = better_together(&own, &found.moves, view, stop);
    let saved = repacked.as_ref().unwrap_or(&found.moves).savings();
    let mut others = most.to_vec();
    others.retain(|each| !rests(each, view.now) && !is_of(&own, each));
    let all: Vec<&Candidate> = own.iter().chain(&others).copied().collect();
    let grown =
        if others.is_empty() || count_pods(&all) > MOST_PODS || leaves_spot_nodes(&all, view) {
            None
        } else {
            let price = others.iter().filter_map(|each| each.price()).sum();
            let least = saved.unwrap_or_default() + worth_the_moves(price, &others, view);
            let moves = together(&all, view, stop);
            moves.filter(|moves| moves.savings() > Some(least))
        };
    match (grown, repacked) {
        (Some(moves), _) => command(Method::Repack, &all, moves),
        (None, Some(moves)) => command(Method::Repack, &own, moves),
        (None, None) => found,
    }
}

/// Whether spot nodes stay that other spot nodes may not replace.
fn leaves_spot_nodes(removed: &[&Candidate], view: &DisruptionView<'_>) -> bool {
    let is_spot = |node: &StateNode| capacity_type(node) == Some(CapacityType::Spot);
    let stays = |node: &StateNode| removed.iter().all(|each| *each.key() != node.key);
    let mut nodes = view.nodes().into_iter();
    !view.context.settings.gates.spot_to_spot_consolidation
        && nodes.any(|node| is_spot(node) && stays(node))
}

/// Whether a command launches nodes, and none of those that it removes rests.
pub(super) fn may_improve(found: &FoundCommand, view: &DisruptionView<'_>) -> bool {
    let rested = |each: &Candidate| !rests(each, view.now);
    !found.moves.claims.is_empty() && found.candidates.iter().all(rested)
}

/// What removing these nodes together saves, if it is more than this.
fn better_together(
    nodes: &[&Candidate],
    known: &RelocationPlan,
    view: &DisruptionView<'_>,
    stop: &dyn Fn() -> bool,
) -> Option<RelocationPlan> {
    let moves = together(nodes, view, stop);
    moves.filter(|moves| moves.savings() > known.savings())
}

/// The command with its nodes replaced by several, where that saves more; and then with overpaid nodes added or own ones left out,
/// step by step, as long as each saves enough for the pods that it moves.
pub(super) fn extended(
    found: FoundCommand,
    overpaid: &[&Candidate],
    view: &DisruptionView<'_>,
    stop: &dyn Fn() -> bool,
) -> FoundCommand {
    let own: Vec<&Candidate> = found.candidates.iter().collect();
    let repacked = if found.method == Method::Repack {
        None // it is already
    } else {
        better_together(&own, &found.moves, view, stop)
    };
    let mut best = repacked.map(|moves| (own.clone(), moves));
    if own.len() <= MOST_NODES {
        let others = overpaid.iter().copied().filter(|each| !is_of(&own, each));
        let all: Vec<&Candidate> = own.iter().copied().chain(others.take(EVERY_SET)).collect();
        for _ in 0..STEPS {
            let now = best
                .as_ref()
                .map_or((&own, &found.moves), |(nodes, moves)| (nodes, moves));
            let Some(better) = step(now, &all, view, stop) else {
                break;
            };
            best = Some(better);
        }
    }
    match best {
        None => found,
        Some((nodes, moves)) => command(Method::Repack, &nodes, moves),
    }
}

fn is_of(nodes: &[&Candidate], candidate: &Candidate) -> bool {
    nodes.iter().any(|of| of.claim_name == candidate.claim_name)
}

/// The best command with one of these nodes more or less.
fn step<'a>(
    (nodes, moves): (&Vec<&'a Candidate>, &RelocationPlan),
    all: &[&'a Candidate],
    view: &DisruptionView<'_>,
    stop: &dyn Fn() -> bool,
) -> Option<(Vec<&'a Candidate>, RelocationPlan)> {
    let saved = moves.savings().unwrap_or_default();
    let mut best: Option<(MicroUsd, Vec<&Candidate>, RelocationPlan)> = None;
    for each in all {
        let worth = worth_the_moves(each.price().unwrap_or_default(), &[each], view);
        let mut changed = nodes.clone();
        changed.retain(|of| of.claim_name != each.claim_name);
        let least = if changed.len() < nodes.len() {
            saved - worth
        } else {
            changed.push(each);
            saved + worth
        };
        if changed.is_empty() || !is_within_limits(&changed, view) {
            continue;
        }
        let Some(moves) = together(&changed, view, stop) else {
            continue;
        };
        let gain = moves.savings().unwrap_or_default() - least;
        if gain > best.as_ref().map_or(MicroUsd(0), |(known, _, _)| *known) {
            best = Some((gain, changed, moves));
        }
    }
    best.map(|(_, nodes, moves)| (nodes, moves))
}

/// What removing these nodes together saves, if that is allowed.
fn together(
    nodes: &[&Candidate],
    view: &DisruptionView<'_>,
    stop: &dyn Fn() -> bool,
) -> Option<RelocationPlan> {
    view.grant();
    what_if(nodes, SimulationRules::CheaperTogether, view, stop).ok()
}

fn command(method: Method, nodes: &[&Candidate], moves: RelocationPlan) -> FoundCommand {
    FoundCommand {
        method,
        candidates: nodes.iter().map(|each| (*each).clone()).collect(),
        moves,
    }
}
