//! What would become of the pods if some machines were not there, and whether that is worth doing.

use std::collections::BTreeSet;

use super::candidate::{Candidate, Policy};
use super::command::RelocationPlan;
use super::cost::BalancedScore;
use super::disruption_view::DisruptionView;
use super::price::cheaper;
use crate::reason::Reason;
use crate::scheduling::{ReservedCapacityMode, SolveOptions, solve};
use mortise_apis::names::{PodKey, PoolName, Uid};
use mortise_apis::values::money::MicroUsd;

/// Why machines stay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DisruptionRejection {
    /// In upstream's words, for the event.
    pub text: String,
    /// For the record.
    pub reasons: Vec<Reason>,
    /// The pool that found it not worth it, and the score in hundredths.
    pub scored: Option<(PoolName, i64)>,
    /// Time ran out: it is not known.
    pub stopped: bool,
}

impl DisruptionRejection {
    /// A refusal with facts.
    pub fn new(text: impl Into<String>, reasons: Vec<Reason>) -> Self {
        Self {
            text: text.into(),
            reasons,
            scored: None,
            stopped: false,
        }
    }

    /// A refusal whose text says it all.
    pub fn note(text: impl Into<String>) -> Self {
        let text = text.into();
        let reasons = vec![Reason::Note { text: text.clone() }];
        Self::new(text, reasons)
    }

    fn stopped() -> Self {
        Self {
            stopped: true,
            ..Self::new("", Vec::new())
        }
    }
}

/// What a what-if may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SimulationRules {
    /// Machines that are there, except those that pods have just come to or left.
    ExistingOnly,
    /// At most one new machine that is cheaper.
    Cheaper,
    /// As many new machines as needed, at any price.
    AnyPrice,
}

/// Takes the machines away, and says where their pods go.
pub fn what_if(
    candidates: &[&Candidate],
    rules: SimulationRules,
    world: &DisruptionView<'_>,
    stop: &dyn Fn() -> bool,
) -> Result<RelocationPlan, DisruptionRejection> {
    if rules == SimulationRules::Cheaper {
        world.bound().check(candidates)?;
    }
    if stop() || !world.may_simulate() {
        return Err(DisruptionRejection::stopped());
    }
    let moves = simulate(candidates, rules, world, stop)?;
    match rules {
        SimulationRules::ExistingOnly | SimulationRules::AnyPrice => Ok(moves),
        SimulationRules::Cheaper => worth_it(moves, candidates, world),
    }
}

fn simulate(
    candidates: &[&Candidate],
    rules: SimulationRules,
    world: &DisruptionView<'_>,
    stop: &dyn Fn() -> bool,
) -> Result<RelocationPlan, DisruptionRejection> {
    let settings = world.context.settings;
    let options = SolveOptions {
        without: candidates.iter().map(|each| each.key().clone()).collect(),
        closed: match rules {
            SimulationRules::AnyPrice => world.closed().clone(),
            SimulationRules::ExistingOnly | SimulationRules::Cheaper => {
                world.closed_to_consolidation().clone()
            }
        },
        pending: true,
        respect_preferences: settings.respect_preferences,
        min_values_best_effort: settings.min_values_best_effort,
        max_instance_types: settings.max_instance_types,
        ignore_devices: settings.ignore_devices,
        existing_only: rules == SimulationRules::ExistingOnly,
        spread_defaults: settings.spread_defaults.clone(),
        reserved: if settings.gates.reserved_capacity {
            ReservedCapacityMode::Fallback
        } else {
            ReservedCapacityMode::Uncounted
        },
        seed: 0, // the same question must get the same answer when it is asked again
        ..SolveOptions::default()
    };
    let (plan, report) = solve(world.now, world.view(), &options, stop);
    if report.stopped {
        return Err(DisruptionRejection::stopped());
    }
    let pods = || candidates.iter().flat_map(|each| &each.pods);
    let mut left: BTreeSet<&Uid> = pods().map(|pod| &pod.uid).collect();
    let moved = left.clone();
    let mut placements = plan.placements;
    placements.retain(|placement| moved.contains(&placement.pod.uid));
    let mut claims = plan.claims;
    // Claims for pods that are pending anyway are not this command's.
    claims.retain(|claim| claim.pods.iter().any(|pod| moved.contains(&pod.uid)));
    for placement in &placements {
        left.remove(&placement.pod.uid);
    }
    for pod in claims.iter().flat_map(|claim| &claim.pods) {
        left.remove(&pod.uid);
    }
    let mut texts = Vec::new();
    let mut homeless: Vec<PodKey> = Vec::new();
    for pod in pods().filter(|pod| left.contains(&pod.uid)) {
        let why = report
            .unplaced
            .iter()
            .find(|unplaced| unplaced.pods.iter().any(|(_, uid)| *uid == pod.uid))
            .map(|unplaced| unplaced.message.as_str())
            .or_else(|| {
                let ignored = report.ignored.iter().find(|(key, _)| *key == pod.key);
                ignored.map(|(_, why)| why.as_str())
            });
        homeless.push(pod.key.clone());
        texts.push(format!("{} => {}", pod.key, why.unwrap_or("no place")));
    }
    for placement in placements.iter().filter(|each| each.uninitialized) {
        let place = DisruptionView::place_name(&placement.place);
        homeless.push(placement.pod.key.clone());
        texts.push(format!(
            "{} => would schedule against uninitialized {place}",
            placement.pod.key
        ));
    }
    if !homeless.is_empty() {
        texts.truncate(5); // events are small
        homeless.truncate(20);
        return Err(DisruptionRejection::new(
            format!("Not all pods would schedule, {}", texts.join(" ")),
            vec![Reason::PodsUnschedulable { pods: homeless }],
        ));
    }
    let new = claims
        .iter()
        .map(|claim| claim.cheapest.as_ref().and_then(|cheapest| cheapest.price))
        .sum();
    Ok(RelocationPlan {
        claims,
        placements,
        old: candidates.iter().map(|each| each.price()).sum(),
        new,
    })
}

/// Deleting always saves; one replacement must be cheaper; and pools with the policy `Balanced` must find it worth the trouble.
fn worth_it(
    mut moves: RelocationPlan,
    candidates: &[&Candidate],
    world: &DisruptionView<'_>,
) -> Result<RelocationPlan, DisruptionRejection> {
    match moves.claims.len() {
        0 => {}
        1 => {
            if let Some(claim) = moves.claims.pop() {
                let claim = cheaper(claim, candidates, world)?;
                moves.new = claim.cheapest.as_ref().and_then(|cheapest| cheapest.price);
                moves.claims.push(claim);
            }
        }
        count => {
            return Err(DisruptionRejection::new(
                format!("Can't remove without creating {count} candidates"),
                vec![Reason::NeedsMoreNodes { count }],
            ));
        }
    }
    balance(&moves, candidates, world)?;
    Ok(moves)
}

/// The scores of a command, one for each pool with the policy `Balanced` that it takes machines from.
pub fn scores(
    moves: &RelocationPlan,
    candidates: &[&Candidate],
    world: &DisruptionView<'_>,
) -> Vec<(PoolName, BalancedScore)> {
    let price = |of: &[&&Candidate]| -> i64 {
        of.iter()
            .map(|each| each.price().unwrap_or_default().0)
            .fold(0, i64::saturating_add)
    };
    let all: Vec<&&Candidate> = candidates.iter().collect();
    let total = price(&all);
    let savings = total.saturating_sub(moves.new.unwrap_or_default().0);
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
            let totals = world.totals(pool);
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

fn balance(
    moves: &RelocationPlan,
    candidates: &[&Candidate],
    world: &DisruptionView<'_>,
) -> Result<(), DisruptionRejection> {
    for (pool, score) in scores(moves, candidates, world) {
        if !score.is_worth_it() {
            let percent = score.score_percent();
            let old = moves.old.unwrap_or_default();
            let new = moves.new.unwrap_or(MicroUsd(0));
            let refusal = DisruptionRejection::new(
                format!(
                    "NodePool \"{pool}\": savings are not worth the disruption (score {}.{:02} < threshold 0.50)",
                    percent / 100,
                    percent % 100
                ),
                vec![Reason::Note {
                    text: format!(
                        "balanced score {percent} % of 50 % needed, {old} now, {new} then"
                    ),
                }],
            );
            return Err(DisruptionRejection {
                scored: Some((pool, percent)),
                ..refusal
            });
        }
    }
    Ok(())
}
