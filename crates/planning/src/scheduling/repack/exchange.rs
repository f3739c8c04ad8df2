//! Exchanging pods between machines of one shape, so that one of them can be a cheaper type.
//!
//! # Problem
//! Machines that are full by CPU often need the dearer type for a little memory more, while others have memory to spare.
//!
//! # Heuristic
//! For each machine, the dearest first: a cheaper type is picked that lacks one resource only; pods that take much of it are
//! exchanged for pods that take less, or moved, with the machines that have most of it to spare within the types they are
//! anyway. When it is not enough, everything is put back.
//!
//! # Invariants
//! No machine is added, none becomes dearer, and one becomes cheaper with every exchange that stays. Only pods move that
//! do not care who shares their machine.

use super::greedy_fill::Bin;
use super::pareto_front::ParetoFront;
use crate::scheduling::resource_vector::{add, fit, subtract};

/// How many machines are asked for an exchange: those with most to spare.
const PARTNERS: usize = 32;
/// Exchanges for one machine at most.
const EXCHANGES: usize = 12;
/// Cheaper types that are tried for one machine.
const TARGETS: usize = 3;
/// How often all machines are gone through.
const ROUNDS: usize = 3;

/// The state of exchanging.
pub(super) struct Exchange<'e> {
    /// The types.
    pub(super) ladder: &'e ParetoFront,
    /// What a pod takes.
    pub(super) amounts: &'e dyn Fn(usize) -> &'e [i64],
    /// Whether a pod may be on any machine, whoever is there.
    pub(super) moves: &'e dyn Fn(usize) -> bool,
    /// Work that may still be done.
    pub(super) budget: u64,
}

/// Pods that change places: one of the machine, and the one it is exchanged for, if any.
#[derive(Clone, Copy, Debug)]
struct Swap {
    partner: usize,
    gives: usize,
    takes: Option<usize>,
}

/// No budget is left.
struct Spent;

impl Exchange<'_> {
    /// Makes machines cheaper while that is possible and the budget lasts. `true` when one became cheaper.
    pub(super) fn run(&mut self, bins: &mut [Bin]) -> bool {
        let mut rungs: Vec<Option<usize>> = bins
            .iter()
            .map(|bin| self.ladder.cheapest(&bin.taken))
            .collect();
        let mut cheaper = false;
        for _ in 0..ROUNDS {
            let mut order: Vec<usize> = (0..bins.len()).filter(|at| rungs[*at].is_some()).collect();
            order.sort_by_key(|at| (std::cmp::Reverse(rungs[*at]), *at));
            let mut progress = false;
            for at in order {
                loop {
                    match self.lower(at, bins, &mut rungs) {
                        Ok(true) => progress = true,
                        Ok(false) => break,
                        Err(Spent) => return cheaper | progress,
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

    /// Makes one machine a cheaper type.
    fn lower(
        &mut self,
        at: usize,
        bins: &mut [Bin],
        rungs: &mut [Option<usize>],
    ) -> Result<bool, Spent> {
        rungs[at] = self.ladder.cheapest(&bins[at].taken);
        let Some(now) = rungs[at] else {
            return Ok(false);
        };
        for (target, resource) in self.targets(&bins[at], now) {
            let partners = self.partners(at, resource, bins, rungs)?;
            let mut done: Vec<Swap> = Vec::new();
            let net = &self.ladder.rungs()[target].net;
            while bins[at].taken[resource] > net[resource] && done.len() < EXCHANGES {
                let best = self.best(at, target, resource, &partners, bins, rungs);
                let best = match best {
                    Ok(best) => best,
                    Err(spent) => {
                        done.iter()
                            .rev()
                            .for_each(|swap| self.undo(at, *swap, bins));
                        return Err(spent);
                    }
                };
                let Some(swap) = best else {
                    break;
                };
                self.carry_out(at, swap, bins);
                done.push(swap);
            }
            if fit(&bins[at].taken, net) {
                rungs[at] = self.ladder.cheapest(&bins[at].taken);
                return Ok(true);
            }
            done.iter()
                .rev()
                .for_each(|swap| self.undo(at, *swap, bins));
        }
        Ok(false)
    }

    /// Cheaper types that lack one resource only, and which: those that lack least for what they save first.
    fn targets(&self, bin: &Bin, now: usize) -> Vec<(usize, usize)> {
        let rungs = self.ladder.rungs();
        let price = rungs[now].price;
        let mut all: Vec<(i128, usize, usize)> = Vec::new();
        for (at, rung) in rungs.iter().enumerate().take(now) {
            let mut lacking = (0..rung.net.len()).filter(|of| bin.taken[*of] > rung.net[*of]);
            let (Some(resource), None) = (lacking.next(), lacking.next()) else {
                continue;
            };
            let saved = price - rung.price;
            if saved <= 0 {
                continue;
            }
            let excess = i128::from(bin.taken[resource] - rung.net[resource]);
            let share = excess * 1_000_000 / i128::from(bin.taken[resource].max(1));
            all.push((share * 1_000_000 / i128::from(saved), at, resource));
        }
        all.sort_unstable();
        all.truncate(TARGETS);
        all.into_iter()
            .map(|(_, at, resource)| (at, resource))
            .collect()
    }

    /// Machines with most of a resource to spare within their types.
    fn partners(
        &mut self,
        at: usize,
        resource: usize,
        bins: &[Bin],
        rungs: &[Option<usize>],
    ) -> Result<Vec<usize>, Spent> {
        self.spend(bins.len() / 8 + 1)?;
        let spare = |bin: usize| {
            let rung = &self.ladder.rungs()[rungs[bin]?];
            Some(rung.net[resource] - bins[bin].taken[resource])
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

    /// The exchange that takes most of the resource off the machine, but no more than needed if that can be helped.
    fn best(
        &mut self,
        at: usize,
        target: usize,
        resource: usize,
        partners: &[usize],
        bins: &[Bin],
        rungs: &[Option<usize>],
    ) -> Result<Option<Swap>, Spent> {
        let own = &bins[at];
        let net = &self.ladder.rungs()[target].net;
        let excess = own.taken[resource] - net[resource];
        let mut best: Option<((i64, i64), Swap)> = None;
        for partner in partners {
            let other = &bins[*partner];
            let Some(rung) = rungs[*partner] else {
                continue;
            };
            let room = &self.ladder.rungs()[rung].net;
            let spare = room[resource] - other.taken[resource];
            self.spend(own.pods.len() * (other.pods.len() + 1) / 4 + 1)?;
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
                            && other.taken[of] + change <= room[of]
                    });
                    if !fits {
                        continue;
                    }
                    // Enough, with as little as possible too much; else as much as possible.
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

    fn carry_out(&self, at: usize, swap: Swap, bins: &mut [Bin]) {
        self.send(swap.gives, at, swap.partner, bins);
        if let Some(takes) = swap.takes {
            self.send(takes, swap.partner, at, bins);
        }
    }

    fn undo(&self, at: usize, swap: Swap, bins: &mut [Bin]) {
        self.send(swap.gives, swap.partner, at, bins);
        if let Some(takes) = swap.takes {
            self.send(takes, at, swap.partner, bins);
        }
    }

    fn send(&self, pod: usize, from: usize, to: usize, bins: &mut [Bin]) {
        let amounts = (self.amounts)(pod);
        bins[from].pods.retain(|each| *each != pod);
        subtract(&mut bins[from].taken, amounts);
        bins[to].pods.push(pod);
        add(&mut bins[to].taken, amounts);
    }

    fn spend(&mut self, work: usize) -> Result<(), Spent> {
        let work = u64::try_from(work).unwrap_or(u64::MAX);
        self.budget = self.budget.checked_sub(work).ok_or(Spent)?;
        Ok(())
    }
}
