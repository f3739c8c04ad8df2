//! Exchanges pods between bins of one narrowed template, so that one of them can use a cheaper instance type.
//!
//! # Problem
//! Bins that are full by CPU often need the more expensive type for a little memory, while others have memory to spare.
//!
//! # Heuristic
//! For each bin, the most expensive first: select a cheaper type that lacks one resource only. Exchange pods that use much
//! of it for pods that use less, or move them, with the bins that have most of it to spare within their types. If that
//! does not suffice, undo everything.
//!
//! # Invariants
//! No bin is added, none becomes more expensive, and one becomes cheaper with every exchange that is kept. Only pods
//! without constraints between pods move.

use super::BudgetExhausted;
use super::greedy_fill::Bin;
use super::pareto_front::ParetoFront;
use crate::scheduling::resource_vector::{add, fit, subtract};

/// Most partners of a bin: those with most to spare.
const PARTNERS: usize = 32;
/// Most exchanges for one bin.
const EXCHANGES: usize = 12;
/// Cheaper types that are tried for one bin.
const TARGETS: usize = 3;
/// Rounds over all bins.
const ROUNDS: usize = 3;

/// State of the exchange.
pub(super) struct Exchange<'e> {
    /// The types.
    pub(super) front: &'e ParetoFront,
    /// Requests of a pod.
    pub(super) amounts: &'e dyn Fn(usize) -> &'e [i64],
    /// Whether a pod may be in any bin, regardless of the other pods.
    pub(super) moves: &'e dyn Fn(usize) -> bool,
    /// Steps that are left.
    pub(super) budget: u64,
}

/// An exchange: a pod of the bin, and the partner's pod for it, if any.
#[derive(Clone, Copy, Debug)]
struct Swap {
    partner: usize,
    gives: usize,
    takes: Option<usize>,
}

impl Exchange<'_> {
    /// Makes bins cheaper while that is possible and the budget lasts. `true` when one became cheaper.
    pub(super) fn run(&mut self, bins: &mut [Bin]) -> bool {
        let mut points: Vec<Option<usize>> = bins
            .iter()
            .map(|bin| self.front.cheapest(&bin.taken))
            .collect();
        let mut cheaper = false;
        for _ in 0..ROUNDS {
            let mut order: Vec<usize> =
                (0..bins.len()).filter(|at| points[*at].is_some()).collect();
            order.sort_by_key(|at| (std::cmp::Reverse(points[*at]), *at));
            let mut progress = false;
            for at in order {
                loop {
                    match self.make_cheaper(at, bins, &mut points) {
                        Ok(true) => progress = true,
                        Ok(false) => break,
                        Err(BudgetExhausted) => return cheaper | progress,
                    }
                }
            }
            cheaper |= progress;
            if !progress {
                break;
            }
        }
        cheaper
    }

    /// Makes one bin use a cheaper type.
    fn make_cheaper(
        &mut self,
        at: usize,
        bins: &mut [Bin],
        points: &mut [Option<usize>],
    ) -> Result<bool, BudgetExhausted> {
        points[at] = self.front.cheapest(&bins[at].taken);
        let Some(now) = points[at] else {
            return Ok(false);
        };
        for (target, resource) in self.targets(&bins[at], now) {
            let partners = self.partners(at, resource, bins, points)?;
            let mut done: Vec<Swap> = Vec::new();
            let net = &self.front.points()[target].net;
            while bins[at].taken[resource] > net[resource] && done.len() < EXCHANGES {
                let best = self.best_swap(at, target, resource, &partners, bins, points);
                let best = match best {
                    Ok(best) => best,
                    Err(exhausted) => {
                        done.iter()
                            .rev()
                            .for_each(|swap| self.undo(at, *swap, bins));
                        return Err(exhausted);
                    }
                };
                let Some(swap) = best else {
                    break;
                };
                self.apply(at, swap, bins);
                done.push(swap);
            }
            if fit(&bins[at].taken, net) {
                points[at] = self.front.cheapest(&bins[at].taken);
                return Ok(true);
            }
            done.iter()
                .rev()
                .for_each(|swap| self.undo(at, *swap, bins));
        }
        Ok(false)
    }

    /// Cheaper types that lack one resource only, and that resource: those that lack least for their savings first.
    fn targets(&self, bin: &Bin, now: usize) -> Vec<(usize, usize)> {
        let points = self.front.points();
        let price = points[now].price;
        let mut all: Vec<(i128, usize, usize)> = Vec::new();
        for (at, point) in points.iter().enumerate().take(now) {
            let mut lacking = (0..point.net.len()).filter(|of| bin.taken[*of] > point.net[*of]);
            let (Some(resource), None) = (lacking.next(), lacking.next()) else {
                continue;
            };
            let saved = price - point.price;
            if saved <= 0 {
                continue;
            }
            let excess = i128::from(bin.taken[resource] - point.net[resource]);
            let share = excess * 1_000_000 / i128::from(bin.taken[resource].max(1));
            all.push((share * 1_000_000 / i128::from(saved), at, resource));
        }
        all.sort_unstable();
        all.truncate(TARGETS);
        all.into_iter()
            .map(|(_, at, resource)| (at, resource))
            .collect()
    }

    /// Bins with most of a resource to spare within their types.
    fn partners(
        &mut self,
        at: usize,
        resource: usize,
        bins: &[Bin],
        points: &[Option<usize>],
    ) -> Result<Vec<usize>, BudgetExhausted> {
        self.use_steps(bins.len() / 8 + 1)?;
        let spare = |bin: usize| {
            let point = &self.front.points()[points[bin]?];
            Some(point.net[resource] - bins[bin].taken[resource])
        };
        let others = (0..bins.len()).filter(|bin| *bin != at && !bins[*bin].pods.is_empty());
        let mut all: Vec<(i64, usize)> = others
            .filter_map(|bin| Some((-spare(bin)?, bin)))
            .filter(|(spare, _)| *spare < 0)
            .collect();
        if all.len() > PARTNERS {
            all.select_nth_unstable(PARTNERS);
            all.truncate(PARTNERS);
        }
        all.sort_unstable();
        Ok(all.into_iter().map(|(_, bin)| bin).collect())
    }

    /// The exchange that removes most of the resource from the bin, but no more than needed if possible.
    fn best_swap(
        &mut self,
        at: usize,
        target: usize,
        resource: usize,
        partners: &[usize],
        bins: &[Bin],
        points: &[Option<usize>],
    ) -> Result<Option<Swap>, BudgetExhausted> {
        let own = &bins[at];
        let net = &self.front.points()[target].net;
        let excess = own.taken[resource] - net[resource];
        let mut best: Option<((i64, i64), Swap)> = None;
        for partner in partners {
            let other = &bins[*partner];
            let Some(point) = points[*partner] else {
                continue;
            };
            let capacity = &self.front.points()[point].net;
            let spare = capacity[resource] - other.taken[resource];
            self.use_steps(own.pods.len() * (other.pods.len() + 1) / 4 + 1)?;
            for gives in own.pods.iter().copied().filter(|pod| (self.moves)(*pod)) {
                let given = (self.amounts)(gives);
                let taken = other.pods.iter().copied().filter(|pod| (self.moves)(*pod));
                for takes in taken.map(Some).chain([None]) {
                    let back = takes.map(|pod| (self.amounts)(pod));
                    let back_of = |of: usize| back.map_or(0, |back| back[of]);
                    let off = given[resource] - back_of(resource);
                    if off <= 0 || off > spare {
                        continue;
                    }
                    let fits = (0..net.len()).all(|of| {
                        let change = given[of] - back_of(of);
                        (of == resource || own.taken[of] - change <= net[of])
                            && other.taken[of] + change <= capacity[of]
                    });
                    if !fits {
                        continue;
                    }
                    // Enough, with as little excess as possible; otherwise as much as possible.
                    let score = (off.min(excess), -off);
                    if best.is_none_or(|(known, _)| score > known) {
                        let swap = Swap {
                            partner: *partner,
                            gives,
                            takes,
                        };
                        best = Some((score, swap));
                    }
                }
            }
            if best.is_some_and(|((off, _), _)| off >= excess) {
                break;
            }
        }
        Ok(best.map(|(_, swap)| swap))
    }

    fn apply(&self, at: usize, swap: Swap, bins: &mut [Bin]) {
        self.move_pod(swap.gives, at, swap.partner, bins);
        if let Some(takes) = swap.takes {
            self.move_pod(takes, swap.partner, at, bins);
        }
    }

    fn undo(&self, at: usize, swap: Swap, bins: &mut [Bin]) {
        self.move_pod(swap.gives, swap.partner, at, bins);
        if let Some(takes) = swap.takes {
            self.move_pod(takes, at, swap.partner, bins);
        }
    }

    fn move_pod(&self, pod: usize, from: usize, to: usize, bins: &mut [Bin]) {
        let amounts = (self.amounts)(pod);
        bins[from].pods.retain(|each| *each != pod);
        subtract(&mut bins[from].taken, amounts);
        bins[to].pods.push(pod);
        add(&mut bins[to].taken, amounts);
    }

    fn use_steps(&mut self, work: usize) -> Result<(), BudgetExhausted> {
        let work = u64::try_from(work).unwrap_or(u64::MAX);
        self.budget = self.budget.checked_sub(work).ok_or(BudgetExhausted)?;
        Ok(())
    }
}
