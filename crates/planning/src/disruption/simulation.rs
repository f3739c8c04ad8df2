//! Simulates the removal of nodes: where their pods would run, and whether the savings justify it.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::candidate::{Candidate, Policy, count_pods};
use super::command::RelocationPlan;
use super::disruption_view::DisruptionView;
use super::price::{cheaper, cheaper_together};
pub use super::rejection::DisruptionRejection;
use super::removal::removal;
use super::{move_budget, payback, scattered};
use crate::reason::{
    BalancedScore, DisruptionBlocker, Reason, UnschedulableCause, UnschedulablePod,
};
use crate::scheduling::{PlannedClaim, ReservedCapacityMode, SolveOptions, SolveReport, solve};
use mortise_apis::names::{PodKey, PoolName, Uid};
use mortise_apis::values::money::MicroUsd;
use mortise_state::snapshot::{CommitmentsLeft, NodeKey, Pod};

/// Most pods that a rejection names.
const MOST_UNPLACED: usize = 20;
/// Most of them with a cause: events are small.
const MOST_EXPLAINED: usize = 5;

/// Work of repacking for each pod, a quarter of what provisioning spends: neighborhoods are small.
const REPACK_STEPS: u32 = 500;

/// Placing and repacking a pod costs as much as relocating this many.
const REPACKED_POD: usize = 4;

/// Placing this many virtual pods costs as much as relocating one pod: they are alike, and come last.
const VIRTUAL_PODS: usize = 16;

/// What replacing nodes by several must save, in percent of their price, and of the price of an average node for each pod that
/// moves. With 5 % a cluster of 500 mixed nodes ends 3.7 % above the bound of its price and moves 4,582 pods, with 8 % it ends
/// 5.0 % above and moves 3,667.
const LEAST_SAVING_PERCENT: i128 = 8;

/// What a simulation may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SimulationRules {
    /// Existing nodes, except those whose pods changed recently.
    ExistingOnly,
    /// At most one new node that is cheaper.
    Cheaper,
    /// As many new nodes as needed that are cheaper together, by enough to be worth the moves.
    CheaperTogether,
    /// As many new nodes as needed, at any price.
    AnyPrice,
}

/// Removes the nodes, and places their pods elsewhere.
pub fn what_if(
    candidates: &[&Candidate],
    rules: SimulationRules,
    view: &DisruptionView<'_>,
    stop: &dyn Fn() -> bool,
) -> Result<RelocationPlan, DisruptionRejection> {
    // A drain may take long, and what saves nothing until it ends can wait for that. What is replaced at any price takes the place of nodes
    // that leave in any case, also in what is paid for.
    let waits = rules != SimulationRules::AnyPrice;
    let paid = view.commitments_without(candidates, waits);
    let costs_something = paid.as_ref().is_none_or(|paid| !paid.is_anything());
    // The bounds are those of new nodes that nothing pays for.
    if rules == SimulationRules::Cheaper && costs_something {
        view.bound().check(candidates)?;
        // Why several nodes are not removed together is shown nowhere, so a general reason does.
        if candidates.len() > 1 && view.bound().certainly_refuses(candidates, view) {
            let reason = DisruptionBlocker::NoSingleInstanceType;
            return Err(DisruptionRejection::from_reason(reason));
        }
    }
    let closed = match rules {
        SimulationRules::AnyPrice => view.closed(),
        SimulationRules::ExistingOnly
        | SimulationRules::Cheaper
        | SimulationRules::CheaperTogether => view.closed_to_consolidation(),
    };
    let room = view.room().displaced(candidates, closed);
    let pods = count_pods(candidates);
    let work = match rules {
        SimulationRules::CheaperTogether => REPACKED_POD * pods,
        _ => pods,
    };
    if stop() || !view.may_simulate(work + room.len() / VIRTUAL_PODS) {
        return Err(DisruptionRejection::stopped());
    }
    let simulated = |closed| simulate(candidates, rules, (closed, &room, paid.clone()), view, stop);
    let check = |moves| match rules {
        SimulationRules::ExistingOnly | SimulationRules::AnyPrice => Ok(moves),
        SimulationRules::Cheaper => check_savings(moves, candidates, view),
        SimulationRules::CheaperTogether => check_savings_together(moves, candidates, view),
    };
    let planned = check(simulated(closed)?)?;
    if !waits || !scattered::may_fail(&planned, view) {
        return Ok(planned);
    }
    if planned.claims.is_empty() {
        scattered::check_fit(candidates, &room, view, stop)?;
        return Ok(planned);
    }
    let roomy = simulated(&scattered::all_nodes(view)).and_then(check);
    scattered::choose(planned, roomy)
}

fn simulate(
    candidates: &[&Candidate],
    rules: SimulationRules,
    (closed, room, paid): (&BTreeSet<NodeKey>, &[Arc<Pod>], Option<CommitmentsLeft>),
    view: &DisruptionView<'_>,
    stop: &dyn Fn() -> bool,
) -> Result<RelocationPlan, DisruptionRejection> {
    let settings = view.context.settings;
    let options = SolveOptions {
        min_values_best_effort: settings.min_values_best_effort,
        max_instance_types: settings.max_instance_types,
        existing_only: rules == SimulationRules::ExistingOnly,
        reserved: if settings.gates.reserved_capacity {
            ReservedCapacityMode::Fallback
        } else {
            ReservedCapacityMode::Uncounted
        },
        repack: if rules == SimulationRules::CheaperTogether {
            REPACK_STEPS
        } else {
            0
        },
        split: rules == SimulationRules::CheaperTogether,
        commitments: paid,
        on_demand: view.on_demand().without(candidates, view.snapshot()),
        ..removal(candidates, closed, room, view)
    };
    let (plan, report) = solve(view.now, view.view(), &options, stop);
    if report.stopped {
        return Err(DisruptionRejection::stopped());
    }
    let pods = || {
        let relocated = candidates.iter().flat_map(|each| each.pods.iter());
        relocated.chain(room)
    };
    let mut left: BTreeSet<&Uid> = pods().map(|pod| &pod.uid).collect();
    let moved = left.clone();
    let mut placements = plan.placements;
    for placement in placements.iter().filter(|each| each.pod.is_virtual()) {
        left.remove(&placement.pod.uid);
    }
    placements
        .retain(|placement| moved.contains(&placement.pod.uid) && !placement.pod.is_virtual());
    let mut claims = plan.claims;
    // NodeClaims for pods that are pending anyway do not belong to this command.
    claims.retain(|claim| claim.pods.iter().any(|pod| moved.contains(&pod.uid)));
    for placement in &placements {
        left.remove(&placement.pod.uid);
    }
    for pod in claims.iter().flat_map(|claim| &claim.pods) {
        left.remove(&pod.uid);
    }
    let uninitialized = placements.iter().filter(|each| each.uninitialized);
    let unplaced: Vec<PodKey> = pods()
        .filter(|pod| left.contains(&pod.uid))
        .map(|pod| pod.key.clone())
        .chain(uninitialized.map(|each| each.pod.key.clone()))
        .take(MOST_UNPLACED)
        .collect();
    if !unplaced.is_empty() {
        let refused = pods().filter(|pod| left.contains(&pod.uid));
        let refused = refused.map(|pod| UnschedulablePod {
            pod: pod.key.clone(),
            why: cause(&pod.key, &report),
        });
        let uninitialized = placements.iter().filter(|each| each.uninitialized);
        let uninitialized = uninitialized.map(|each| UnschedulablePod {
            pod: each.pod.key.clone(),
            why: UnschedulableCause::Uninitialized {
                node: DisruptionView::target_name(&each.place),
            },
        });
        let why = refused.chain(uninitialized).take(MOST_EXPLAINED).collect();
        let pods = unplaced;
        let reason = Reason::PodsUnschedulable { pods, why };
        return Err(DisruptionRejection::from_reason(reason));
    }
    let new = claims.iter().map(PlannedClaim::cost).sum();
    Ok(RelocationPlan {
        claims,
        placements,
        old: view.cost_of(candidates),
        new,
    })
}

/// Why the scheduler did not place a pod.
fn cause(pod: &PodKey, report: &SolveReport) -> UnschedulableCause {
    let is_pod = |(key, _): &(PodKey, Uid)| key == pod;
    let mut unplaced = report.unplaced.iter();
    if let Some(unplaced) = unplaced.find(|unplaced| unplaced.pods.iter().any(is_pod)) {
        return UnschedulableCause::from(&*unplaced.reasons);
    }
    let ignored = report.ignored.iter().find(|(key, _)| key == pod);
    ignored.map_or(UnschedulableCause::Unknown, |(_, why)| {
        UnschedulableCause::from(std::slice::from_ref(why))
    })
}

/// Deletions always save; one replacement must be cheaper; and NodePools with the policy `Balanced` must reach their
/// score.
fn check_savings(
    mut moves: RelocationPlan,
    candidates: &[&Candidate],
    view: &DisruptionView<'_>,
) -> Result<RelocationPlan, DisruptionRejection> {
    match moves.claims.len() {
        0 => {}
        1 => {
            let Some(old) = moves.old else {
                return Err(DisruptionRejection::from_reason(Reason::UnknownPrice));
            };
            if let Some(claim) = moves.claims.pop() {
                let claim = cheaper(claim, candidates, old, view)?;
                moves.claims.push(claim);
                moves.new = view.cost_of_new(&moves.claims, candidates);
            }
        }
        count => {
            let reason = Reason::NeedsMoreNodes { count };
            return Err(DisruptionRejection::from_reason(reason));
        }
    }
    check_sunk(&moves, candidates, view)?;
    check_balance(&moves, candidates, view)?;
    check_policies(&moves, candidates, view)?;
    payback::check(&moves, candidates, view)?;
    move_budget::check(candidates, view)?;
    check_wait(&moves, candidates, view)?;
    Ok(moves)
}

/// Nodes that a commitment pays for, whether they are there or not, are not worth moving a pod.
fn check_sunk(
    moves: &RelocationPlan,
    candidates: &[&Candidate],
    view: &DisruptionView<'_>,
) -> Result<(), DisruptionRejection> {
    let (Some(old), Some(new)) = (moves.old, moves.new) else {
        return Ok(()); // refused elsewhere
    };
    if !view.has_commitments() || old > new || candidates.iter().all(|each| each.pods.is_empty()) {
        return Ok(());
    }
    Err(DisruptionRejection::from_reason(Reason::NotCheaper {
        old,
        new,
    }))
}

/// Like [`check_savings`], with any number of new nodes; what is saved must be worth the moves.
fn check_savings_together(
    mut moves: RelocationPlan,
    candidates: &[&Candidate],
    view: &DisruptionView<'_>,
) -> Result<RelocationPlan, DisruptionRejection> {
    let old = moves.old;
    let Some(old) = old else {
        return Err(DisruptionRejection::from_reason(Reason::UnknownPrice));
    };
    let least = worth_the_moves(old, candidates, view);
    if !moves.claims.is_empty() {
        let claims = std::mem::take(&mut moves.claims);
        moves.claims = cheaper_together(claims, candidates, (old, old - least), view)?;
        moves.new = view.cost_of_new(&moves.claims, candidates);
    }
    check_sunk(&moves, candidates, view)?;
    check_balance(&moves, candidates, view)?;
    check_policies(&moves, candidates, view)?;
    payback::check(&moves, candidates, view)?;
    move_budget::check(candidates, view)?;
    check_wait(&moves, candidates, view)?;
    Ok(moves)
}

/// Nodes that would be replaced wait for others that become consolidatable soon. The last check: only what would be done waits.
fn check_wait(
    moves: &RelocationPlan,
    candidates: &[&Candidate],
    view: &DisruptionView<'_>,
) -> Result<(), DisruptionRejection> {
    if moves.claims.is_empty() {
        return Ok(());
    }
    match view.wait_for_others(candidates) {
        None => Ok(()),
        Some(until) => {
            let reason = Reason::OthersConsolidatableSoon { until };
            Err(DisruptionRejection::from_reason(reason))
        }
    }
}

/// What nodes of this price must save, so that replacing them by several nodes is worth the moves of their pods.
pub fn worth_the_moves(
    old: MicroUsd,
    candidates: &[&Candidate],
    view: &DisruptionView<'_>,
) -> MicroUsd {
    let percent = |of: i128| i64::try_from(of * LEAST_SAVING_PERCENT / 100).unwrap_or(i64::MAX);
    let of_price = percent(i128::from(old.0));
    let totals = view.totals_of(candidates.iter().map(|each| &each.pool_name));
    let own: i128 = candidates.iter().map(|each| i128::from(each.cost.0)).sum();
    let of_moves = percent(i128::from(totals.price.0) * own / i128::from(totals.disruption.max(1)));
    MicroUsd(of_price.max(of_moves).max(1))
}

/// The scores of a command, one for each NodePool with the policy `Balanced` whose nodes it removes.
pub fn scores(
    moves: &RelocationPlan,
    candidates: &[&Candidate],
    view: &DisruptionView<'_>,
) -> Vec<(PoolName, BalancedScore)> {
    let price = |of: &[&&Candidate]| -> i64 {
        of.iter()
            .map(|each| each.price().unwrap_or_default().0)
            .fold(0, i64::saturating_add)
    };
    let all: Vec<&&Candidate> = candidates.iter().collect();
    let total = price(&all);
    let old = moves.old.map_or(total, |old| old.0);
    let savings = old.saturating_sub(moves.new.unwrap_or_default().0);
    let pools: BTreeSet<&PoolName> = candidates
        .iter()
        .filter(|each| each.policy() == Policy::Balanced)
        .map(|each| &each.pool_name)
        .collect();
    pools
        .into_iter()
        .map(|pool| {
            let own: Vec<&&Candidate> = candidates
                .iter()
                .filter(|each| each.pool_name == *pool)
                .collect();
            let share = i128::from(savings) * i128::from(price(&own)) / i128::from(total.max(1));
            let totals = view.totals(pool);
            let score = BalancedScore {
                savings: i64::try_from(share).unwrap_or(i64::MAX),
                disruption: own
                    .iter()
                    .map(|each| each.cost.0)
                    .fold(0, i64::saturating_add),
                total_cost: totals.price.0,
                total_disruption: totals.disruption,
            };
            (pool.clone(), score)
        })
        .collect()
}

/// What is saved must be what the NodePoolPolicies ask for each pod that moves, and the on-demand share must hold.
fn check_policies(
    moves: &RelocationPlan,
    candidates: &[&Candidate],
    view: &DisruptionView<'_>,
) -> Result<(), DisruptionRejection> {
    view.on_demand().check(moves, candidates, view.snapshot())?;
    let pods = count_pods(candidates);
    let snapshot = view.snapshot();
    let policies = candidates
        .iter()
        .filter_map(|each| snapshot.policy_of(&each.pool_name));
    let strictest = policies
        .filter_map(|policy| Some((policy.minimum_savings_per_move?, policy)))
        .max_by_key(|(least, _)| *least);
    let Some((least, policy)) = strictest.filter(|_| pods > 0) else {
        return Ok(());
    };
    let (Some(old), Some(new)) = (moves.old, moves.new) else {
        return Err(DisruptionRejection::from_reason(Reason::UnknownPrice));
    };
    let saved = old - new;
    let asked = i128::from(least.0) * pods as i128;
    if i128::from(saved.0) >= asked {
        return Ok(());
    }
    let blocker = DisruptionBlocker::SavesTooLittle {
        policy: policy.name.to_string(),
        saved,
        pods,
        least,
    };
    Err(DisruptionRejection::from_reason(blocker))
}

fn check_balance(
    moves: &RelocationPlan,
    candidates: &[&Candidate],
    view: &DisruptionView<'_>,
) -> Result<(), DisruptionRejection> {
    for (pool, score) in scores(moves, candidates, view) {
        if !score.is_worth_it() {
            let percent = score.score_percent();
            let old = moves.old.unwrap_or_default();
            let new = moves.new.unwrap_or(MicroUsd(0));
            let blocker = DisruptionBlocker::BelowThreshold {
                pool: pool.clone(),
                percent,
                old,
                new,
            };
            return Err(DisruptionRejection {
                scored: Some((pool, percent)),
                ..DisruptionRejection::from_reason(blocker)
            });
        }
    }
    Ok(())
}
