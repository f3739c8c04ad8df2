//! Making the new machines of a pass cheaper, once every pod has its place.
//!
//! # Problem
//! Machines of one shape may take each other's pods: whatever labels, taints, volumes and domains ask is the same for all of
//! them. Find another division of their pods that costs less.
//!
//! # Heuristic
//! Pods that decide which pods may share their machine (affinity and anti-affinity by host name, host ports) stay where they
//! are. Round them machines are filled anew: for each machine the type is chosen of which least is wasted, pods in order of
//! worth that keep its resources in balance. What is left goes many to a machine. A division is taken only when it costs less
//! and needs no more machines. Then pods are exchanged between machines, so that some can be cheaper types ([`exchange`]).
//!
//! # Invariants
//! No machine is added. No pod changes its shape, so counts of spread and affinity by zone stay as the pass left them.
//! Constraints on pods that share a machine hold for the finished machine, whatever the order in which its pods come.
//! What a machine may cost of its pool's limits does not grow.
//!
//! # Cost
//! Bounded by a number of steps (`SolveOptions::repack`), never by time: the same question has the same answer.

mod covering_solver;
mod cross_pool;
mod exchange;
mod greedy_fill;
mod pareto_front;
mod pattern;

use std::collections::BTreeMap;

use super::narrowed_template::NarrowedTemplateId;
use super::pass::Pass;
use super::resource_vector::{ResourceVector, add};
use super::topology::TopologyType;
use exchange::Exchange;
use greedy_fill::{Bin, FillStrategy, GreedyFill, HostnameSpreadLimit, PackItem};
use pareto_front::ParetoFront;

/// The ways of filling that are tried; the cheapest division counts.
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

/// For so many steps of filling machines there is one of exchanging pods between them.
const EXCHANGE_SHARE: u64 = 12;

/// The most steps of buying anew, however many pods there are: less than a second.
const MAX_COVERING_STEPS: u64 = 24_000_000;

/// Work that may still be done.
struct StepBudget {
    filling: u64,
    exchanging: u64,
}

/// Companies of pods by class and step.
type HostnameSpreadLimits = BTreeMap<(usize, usize), Option<usize>>;

impl Pass<'_> {
    /// Divides pods anew among machines of the same shape, where that is cheaper.
    pub(super) fn repack(&mut self) {
        let pods = self
            .claims
            .iter()
            .map(|claim| claim.pods.len())
            .sum::<usize>();
        let pods = u64::try_from(pods).unwrap_or(u64::MAX);
        let filling = u64::from(self.options.repack).saturating_mul(pods);
        let mut budget = StepBudget {
            filling,
            exchanging: filling / EXCHANGE_SHARE,
        };
        let mut by_shape: BTreeMap<NarrowedTemplateId, Vec<usize>> = BTreeMap::new();
        for (at, claim) in self.claims.iter().enumerate() {
            if self.is_unconstrained(at) {
                by_shape.entry(claim.shape).or_default().push(at);
            }
        }
        let mut companies = Vec::new();
        let mut known = HostnameSpreadLimits::new();
        for (shape, claims) in by_shape.into_iter().filter(|(_, claims)| claims.len() > 1) {
            self.repack_shape(shape, &claims, &mut companies, &mut known, &mut budget);
        }
        self.repack_across_pools(filling.saturating_mul(2).min(MAX_COVERING_STEPS));
    }

    /// What the machine may be depends on amounts only, not on ports, devices, minValues or reservations.
    fn is_unconstrained(&self, at: usize) -> bool {
        let claim = &self.claims[at];
        let devices = self.devices.as_ref();
        if devices.is_some_and(|devices| devices.concerns(at)) {
            return false;
        }
        let shape = self.shapes.get(claim.shape);
        claim.ports.is_empty()
            && claim.reservations.is_empty()
            && !shape.has_min_values
            && (!shape.is_reserved || self.reservations.is_empty())
    }

    fn repack_shape(
        &mut self,
        id: NarrowedTemplateId,
        claims: &[usize],
        companies: &mut Vec<HostnameSpreadLimit>,
        known: &mut HostnameSpreadLimits,
        budget: &mut StepBudget,
    ) {
        let shape = self.shapes.get(id);
        let template = &self.templates[shape.template];
        let ladder = ParetoFront::of(shape, template);
        let mut before = 0_i64;
        let mut demand: ResourceVector = ResourceVector::new();
        let mut bins: Vec<Bin> = Vec::with_capacity(claims.len());
        let mut pieces = Vec::new();
        for at in claims {
            let claim = &self.claims[*at];
            let Some(price) = ladder.price(&claim.taken) else {
                return;
            };
            before = before.saturating_add(price);
            if demand.is_empty() {
                demand = claim.taken.iter().map(|_| 0).collect();
            }
            add(&mut demand, &claim.taken);
            let mut fixed: ResourceVector = claim.taken.iter().map(|_| 0).collect();
            let mut staying = Vec::new();
            for pod in &claim.pods {
                let company = self.company_of(*pod, companies, known);
                let amounts = self.amounts_of(*pod);
                match company {
                    Some(company) => pieces.push(PackItem {
                        pod: *pod,
                        amounts: ResourceVector::from_slice(amounts),
                        company,
                    }),
                    None => {
                        add(&mut fixed, amounts);
                        staying.push(*pod);
                    }
                }
            }
            let mut bin = Bin::with(fixed, !staying.is_empty());
            for pod in &staying {
                bin.count(&self.counting(*pod));
            }
            bin.pods = staying;
            bins.push(bin);
        }
        let worth = ladder.worth(&demand);
        let mut best = ((before, claims.len()), None);
        for manner in FILL_STRATEGIES {
            let mut bins = bins.clone();
            let mut filling =
                GreedyFill::new(&ladder, &worth, companies, &pieces, manner, budget.filling);
            let result = filling.run(&mut bins);
            budget.filling = filling.budget;
            if result.is_err() {
                continue;
            }
            let used = || bins.iter().filter(|bin| !bin.pods.is_empty());
            let after: Option<i64> = used().map(|bin| ladder.price(&bin.taken)).sum();
            let after = after.map(|after| (after, used().count()));
            if let Some(after) = after.filter(|after| *after < best.0) {
                best = (after, Some(bins));
            }
        }
        let mut bins = best.1.unwrap_or_else(|| {
            let as_they_are = |at: &usize| {
                let claim = &self.claims[*at];
                let mut bin = Bin::with(claim.taken.clone(), true);
                bin.pods = claim.pods.clone();
                bin
            };
            claims.iter().map(as_they_are).collect()
        });
        let mut exchange = Exchange {
            ladder: &ladder,
            amounts: &|pod| self.amounts_of(pod),
            moves: &|pod| {
                let key = (self.items[pod].class, self.placed_step[pod]);
                let company = known.get(&key).copied().flatten();
                company.is_some_and(|company| companies[company] == HostnameSpreadLimit::default())
            },
            budget: budget.exchanging,
        };
        let cheaper = exchange.run(&mut bins);
        budget.exchanging = exchange.budget;
        if !cheaper && best.0 == (before, claims.len()) {
            return;
        }
        let limited = !template.limits.resources.is_empty();
        if limited {
            let outgrown = claims.iter().zip(&bins).any(|(at, bin)| {
                let types = shape.types_with_room(template, &bin.taken, &[]);
                !template
                    .most(&types)
                    .fits_in(&self.claims[*at].counted_capacity)
            });
            if outgrown {
                return;
            }
        }
        for (at, bin) in claims.iter().zip(bins) {
            let claim = &mut self.claims[*at];
            claim.taken = bin.taken;
            claim.pods = bin.pods;
            claim.pods.sort_unstable();
            for pod in &claim.pods {
                self.placed[*pod] = Some(super::pass::PlacementTarget::Claim(*at));
            }
        }
    }

    fn amounts_of(&self, pod: usize) -> &[i64] {
        let class = &self.classes[self.items[pod].class];
        &self.asks.all[class.steps[self.placed_step[pod]].ask].requests
    }

    /// The company of a pod that may be on any machine of its shape; `None` when it has to stay.
    fn company_of(
        &self,
        pod: usize,
        companies: &mut Vec<HostnameSpreadLimit>,
        known: &mut HostnameSpreadLimits,
    ) -> Option<usize> {
        let key = (self.items[pod].class, self.placed_step[pod]);
        *known.entry(key).or_insert_with(|| {
            let class = &self.classes[key.0];
            let step = &class.steps[key.1];
            let all = step.owned.iter().chain(&class.counted_in);
            let all = all
                .chain(&class.anti_affinity_groups)
                .chain(&class.inverse_groups);
            let stays = all.into_iter().any(|group| {
                let kind = &self.topology.groups[*group].statement.kind;
                self.topology.is_host(*group) && !matches!(kind, TopologyType::Spread { .. })
            });
            if stays {
                return None;
            }
            let company = self.counting(pod);
            let at = companies.iter().position(|each| *each == company);
            Some(at.unwrap_or_else(|| {
                companies.push(company);
                companies.len() - 1
            }))
        })
    }

    /// Spread by host name: what counts a pod, and how many of what it shares its machine with at most.
    fn counting(&self, pod: usize) -> HostnameSpreadLimit {
        let class = &self.classes[self.items[pod].class];
        let step = &class.steps[self.placed_step[pod]];
        let mut company = HostnameSpreadLimit::default();
        let spread = |group: &usize| {
            let statement = &self.topology.groups[*group].statement;
            match &statement.kind {
                TopologyType::Spread { max_skew, .. } if self.topology.is_host(*group) => {
                    Some(*max_skew)
                }
                _ => None,
            }
        };
        for group in class
            .counted_in
            .iter()
            .filter(|group| spread(group).is_some())
        {
            company.counted_in.push(*group);
        }
        for group in &step.owned {
            if let Some(most) = spread(group) {
                company.at_most.push((*group, most));
            }
        }
        company
    }
}
