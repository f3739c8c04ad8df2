//! Improves a command that launches nodes: its nodes are replaced by several, and others are added or left out.

use super::candidate::Candidate;
use super::command::{Method, RelocationPlan};
use super::disruption_view::DisruptionView;
use super::node_sets::{EVERY_SET, EverySet, is_within_limits};
use super::search::FoundCommand;
use super::simulation::{SimulationRules, what_if, worth_the_moves};
use mortise_apis::values::money::MicroUsd;

/// Most nodes that are added or left out, one by one.
const STEPS: usize = 4;

/// Commands of more nodes are not changed: each step would simulate as many.
const MOST_NODES: usize = 10;

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

/// The command with its nodes replaced by several, where that saves more; and then with overpaid nodes added or own ones left out,
/// step by step, as long as each saves enough for the pods that it moves.
pub(super) fn extended(
    found: FoundCommand,
    overpaid: &[&Candidate],
    view: &DisruptionView<'_>,
    stop: &dyn Fn() -> bool,
) -> FoundCommand {
    let own: Vec<&Candidate> = found.candidates.iter().collect();
    let repacked = together(&own, view, stop);
    let repacked = repacked.filter(|moves| moves.savings() > found.moves.savings());
    let mut best = repacked.map(|moves| (own.clone(), moves));
    if own.len() <= MOST_NODES {
        let is_own = |each: &&Candidate| own.iter().any(|of| of.claim_name == each.claim_name);
        let others = overpaid.iter().copied().filter(|each| !is_own(each));
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
