//! Repacks the pods of in-flight NodeClaims, once every pod is placed, to reduce cost.
//!
//! # Problem
//! NodeClaims with equal narrowed templates accept each other's pods: labels, taints, volumes and domains are the same for
//! all of them. Find a packing of their pods that costs less.
//!
//! # Heuristic
//! Pods that restrict which pods share their node (affinity and anti-affinity by hostname, host ports) stay where they
//! are. The other pods are packed again: for each bin the instance type with the least waste is selected, and pods are
//! added by value in an order that keeps resources in balance; the rest goes many into one bin. A packing is kept only if
//! it costs less and needs no more nodes. Then pods are exchanged between bins, so that some can use cheaper types
//! ([`exchange`]).
//!
//! # Invariants
//! Repacking within a template adds no NodeClaim and changes no template, so counts of spread and affinity by zone stay as
//! the pass left them. Constraints on pods that share a node hold for the finished node, regardless of the order of its
//! pods. The capacity counted against a NodePool's limits does not grow.
//!
//! # Cost
//! Bounded by a number of steps (`SolveOptions::repack`), never by time: equal inputs give equal results.

mod covering_solver;
mod cross_pool;
mod exchange;
mod greedy_fill;
mod hostname_spread;
mod pareto_front;
mod pattern;
mod view;

use std::collections::BTreeMap;

use super::narrowed_template::NarrowedTemplateId;
use super::pass::Pass;
use super::resource_vector::{ResourceVector, add};
use cross_pool::CrossPoolRepack;
use exchange::Exchange;
use greedy_fill::{Bin, FillStrategy, GreedyFill, PackItem};
use hostname_spread::{HostnameSpreadLimits, spread_limit};
use pareto_front::ParetoFront;
use view::RepackView;

/// The strategies that are tried; the cheapest packing is kept.
const FILL_STRATEGIES: [FillStrategy; 6] = [
    FillStrategy {
        balance: 1,
        limited_first: true,
        together: false,
        step: 10,
    },
    FillStrategy {
        balance: 1,
        limited_first: true,
        together: true,
        step: 10,
    },
    FillStrategy {
        balance: 0,
        limited_first: true,
        together: true,
        step: 10,
    },
    FillStrategy {
        balance: 2,
        limited_first: true,
        together: true,
        step: 10,
    },
    FillStrategy {
        balance: 1,
        limited_first: false,
        together: true,
        step: 10,
    },
    FillStrategy {
        balance: 0,
        limited_first: false,
        together: true,
        step: 25,
    },
];

/// Steps of filling per step of exchanging.
const EXCHANGE_SHARE: u64 = 12;

/// Most steps of the covering phase, regardless of the number of pods: less than a second.
const MAX_COVERING_STEPS: u64 = 24_000_000;

/// Steps that are left.
struct StepBudget {
    filling: u64,
    exchanging: u64,
}

/// No step is left.
struct BudgetExhausted;

/// Packs the pods of in-flight NodeClaims again, where that is cheaper.
pub(super) fn repack(pass: &mut Pass<'_>) {
    let mut view = RepackView::new(pass);
    let claims = view.claims.iter();
    let pods = claims.map(|claim| claim.pods.len()).sum::<usize>();
    let pods = u64::try_from(pods).unwrap_or(u64::MAX);
    let filling = u64::from(view.options.repack).saturating_mul(pods);
    let mut budget = StepBudget {
        filling,
        exchanging: filling / EXCHANGE_SHARE,
    };
    let mut by_shape: BTreeMap<NarrowedTemplateId, Vec<usize>> = BTreeMap::new();
    for (at, claim) in view.claims.iter().enumerate() {
        if view.is_unconstrained(at) {
            by_shape.entry(claim.shape).or_default().push(at);
        }
    }
    let mut limits = HostnameSpreadLimits::default();
    for (shape, claims) in by_shape.into_iter().filter(|(_, claims)| claims.len() > 1) {
        repack_shape(&mut view, shape, &claims, &mut limits, &mut budget);
    }
    let steps = filling.saturating_mul(2).min(MAX_COVERING_STEPS);
    CrossPoolRepack { pass: &mut view }.run(steps);
}

/// Packs the pods of NodeClaims with one narrowed template again.
fn repack_shape(
    view: &mut RepackView<'_, '_>,
    id: NarrowedTemplateId,
    claims: &[usize],
    limits: &mut HostnameSpreadLimits,
    budget: &mut StepBudget,
) {
    let shape = view.shapes.get(id);
    let front = ParetoFront::new(shape, &view.templates[shape.template]);
    let Some(problem) = PackingProblem::new(view, claims, &front, limits) else {
        return;
    };
    let packed = problem.fill(&front, limits, budget);
    let is_repacked = packed.is_some();
    let mut bins = packed.unwrap_or_else(|| {
        let unchanged = |at: &usize| {
            let claim = &view.claims[*at];
            let mut bin = Bin::with(claim.taken.clone(), true);
            bin.pods = claim.pods.clone();
            bin
        };
        claims.iter().map(unchanged).collect()
    });
    let mut exchange = Exchange {
        front: &front,
        amounts: &|pod| view.amounts(pod),
        moves: &|pod| limits.is_unlimited(view, pod),
        budget: budget.exchanging,
    };
    let is_cheaper = exchange.run(&mut bins);
    budget.exchanging = exchange.budget;
    if !is_cheaper && !is_repacked {
        return;
    }
    let template = &view.templates[shape.template];
    let has_limits = template.limits_types();
    let exceeds = |(at, bin): (&usize, &Bin)| {
        let types = shape.types_with_capacity(template, &bin.taken, &[]);
        let most = template.most(&types);
        let counted = &view.claims[*at];
        !most.fits_in(&counted.counted_capacity)
            || template.policy_price(&types) > counted.counted_price
    };
    if has_limits && claims.iter().zip(&bins).any(exceeds) {
        return;
    }
    for (at, bin) in claims.iter().zip(bins) {
        let claim = &mut view.claims[*at];
        claim.taken = bin.taken;
        claim.pods = bin.pods;
        claim.pods.sort_unstable();
        for pod in &claim.pods {
            view.placements.move_to_claim(*pod, *at);
        }
    }
}

/// The packing problem of NodeClaims with one narrowed template.
struct PackingProblem {
    /// Price of the NodeClaims as they are.
    price: i64,
    /// Sum of all requests.
    demand: ResourceVector,
    /// The NodeClaims, each with the pods that must not move.
    bins: Vec<Bin>,
    /// Pods that may be in any of these bins.
    items: Vec<PackItem>,
}

impl PackingProblem {
    /// The problem of these NodeClaims; `None` when the price of one is unknown.
    fn new(
        view: &RepackView<'_, '_>,
        claims: &[usize],
        front: &ParetoFront,
        limits: &mut HostnameSpreadLimits,
    ) -> Option<Self> {
        let mut problem = Self {
            price: 0,
            demand: ResourceVector::new(),
            bins: Vec::with_capacity(claims.len()),
            items: Vec::new(),
        };
        for at in claims {
            let claim = &view.claims[*at];
            problem.price = problem.price.saturating_add(front.price(&claim.taken)?);
            if problem.demand.is_empty() {
                problem.demand = claim.taken.iter().map(|_| 0).collect();
            }
            add(&mut problem.demand, &claim.taken);
            let mut fixed: ResourceVector = claim.taken.iter().map(|_| 0).collect();
            let mut staying = Vec::new();
            for pod in &claim.pods {
                let limit = limits.intern(view, *pod);
                let amounts = view.amounts(*pod);
                match limit {
                    Some(limit) => problem.items.push(PackItem {
                        pod: *pod,
                        amounts: ResourceVector::from_slice(amounts),
                        limit,
                    }),
                    None => {
                        add(&mut fixed, amounts);
                        staying.push(*pod);
                    }
                }
            }
            let mut bin = Bin::with(fixed, !staying.is_empty());
            for pod in &staying {
                bin.count(&spread_limit(view, *pod));
            }
            bin.pods = staying;
            problem.bins.push(bin);
        }
        Some(problem)
    }

    /// The cheapest packing that the strategies find; `None` when none is cheaper than the NodeClaims as they are.
    fn fill(
        &self,
        front: &ParetoFront,
        limits: &HostnameSpreadLimits,
        budget: &mut StepBudget,
    ) -> Option<Vec<Bin>> {
        let prices = front.resource_prices(&self.demand);
        let mut best = ((self.price, self.bins.len()), None);
        for strategy in FILL_STRATEGIES {
            let mut bins = self.bins.clone();
            let mut fill = GreedyFill::new(
                front,
                &prices,
                &limits.distinct,
                &self.items,
                strategy,
                budget.filling,
            );
            let result = fill.run(&mut bins);
            budget.filling = fill.budget;
            if result.is_err() {
                continue;
            }
            let used = || bins.iter().filter(|bin| !bin.pods.is_empty());
            let after: Option<i64> = used().map(|bin| front.price(&bin.taken)).sum();
            let after = after.map(|after| (after, used().count()));
            if let Some(after) = after.filter(|after| *after < best.0) {
                best = (after, Some(bins));
            }
        }
        best.1
    }
}
