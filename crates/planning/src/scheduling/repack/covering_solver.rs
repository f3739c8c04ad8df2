//! Which machines to buy for goods that may go on any of several kinds.
//!
//! # Problem
//! A covering problem: choose machines and what is on each, so that every good is on one and the sum of prices is least.
//!
//! # Heuristic
//! Every good has a *worth*: what it costs where it is. Machines whose content is worth most for their price are bought one
//! after the other, as many alike as there are goods for. What a good paid becomes its worth for the next division, so that
//! goods that end on badly filled machines are looked at sooner; the cheapest of some divisions counts. Then, again and
//! again, some machines that cost more than their content is worth are given back, and what was on them is bought for anew
//! with worths that are a little off; what is no dearer stays.
//!
//! # Cost
//! Bounded by a number of steps. Same question, same answer: the only randomness is a seeded sequence.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use super::pattern::{BinType, ItemClass, KnapsackHeuristic, Pattern};

/// Divisions from nothing.
const RESTARTS: usize = 12;
/// Machines that are given back at once, at most.
const MAX_RUINED: u64 = 32;
/// So many attempts must save [`MIN_IMPROVEMENT_DIVISOR`], or that is the end of it.
const IMPROVEMENT_WINDOW: i64 = 200;
/// What attempts must save, as a part of the price.
const MIN_IMPROVEMENT_DIVISOR: i64 = 20_000;
/// Kinds that are looked at when machines were given back: those that are worth most for their price.
const MAX_BIN_TYPES: usize = 64;
/// How far worths are off, in thousandths.
const PERTURBATION: u64 = 100;
/// Worths are taken from what goods paid after so many attempts.
const REPRICE_EVERY: i64 = 20;

/// A machine with what is on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PackedBin {
    /// Index of its kind.
    pub(super) kind: usize,
    /// Good and number.
    pub(super) content: Vec<(usize, i64)>,
}

/// No step is left.
struct BudgetExhausted;

/// The state of a purchase.
pub(super) struct CoveringSolver<'p> {
    goods: &'p [ItemClass],
    kinds: &'p [BinType],
    fillers: Vec<KnapsackHeuristic>,
    active: Vec<usize>,
    steps: u64,
    budget: u64,
    random: u64,
}

impl<'p> CoveringSolver<'p> {
    /// A purchase of machines of these kinds; every good is among the own goods of a kind that has room for one.
    pub(super) fn new(
        goods: &'p [ItemClass],
        kinds: &'p [BinType],
        budget: u64,
        seed: u64,
    ) -> Self {
        Self {
            goods,
            kinds,
            fillers: kinds
                .iter()
                .map(|kind| KnapsackHeuristic::of(kind, goods))
                .collect(),
            active: (0..kinds.len()).collect(),
            steps: 0,
            budget,
            // The generator must not start at zero.
            random: seed ^ 0x9e37_79b9_7f4a_7c15 | 1,
        }
    }

    /// Machines for all goods, and their price; `None` when the budget is not enough for any.
    pub(super) fn run(&mut self) -> Option<(i64, Vec<PackedBin>)> {
        let mut worth = self.alone();
        let all: Vec<i64> = self.goods.iter().map(|good| good.count).collect();
        self.prune_bin_types(&all, &worth);
        let mut best: Option<(i64, Vec<PackedBin>)> = None;
        for _ in 0..RESTARTS {
            let Ok(machines) = self.greedy_cover(all.clone(), &worth) else {
                break;
            };
            let price = self.price(&machines);
            let paid = self.cost_shares(&machines, &worth);
            blend(&mut worth, &paid, 1, 1);
            if best.as_ref().is_none_or(|(least, _)| price < *least) {
                best = Some((price, machines));
            }
        }
        let (mut price, mut machines) = best?;
        let mut worth = self.cost_shares(&machines, &worth);
        let mut before = price;
        for attempt in 1.. {
            if machines.len() < 2 {
                break;
            }
            if attempt % IMPROVEMENT_WINDOW == 0 {
                if before - price <= price / MIN_IMPROVEMENT_DIVISOR {
                    break;
                }
                before = price;
            }
            if attempt % REPRICE_EVERY == 0 {
                let paid = self.cost_shares(&machines, &worth);
                blend(&mut worth, &paid, 3, 1);
            }
            let Ok(saved) = self.ruin_and_recreate(&mut machines, &worth) else {
                break;
            };
            price -= saved;
        }
        Some((price, machines))
    }

    /// What each good costs where it is alone with its like.
    fn alone(&self) -> Vec<i64> {
        let cost = |(at, good): (usize, &ItemClass)| {
            let kinds = self.kinds.iter().zip(&self.fillers);
            let holding = kinds.filter(|(kind, _)| kind.accepts(at, good));
            let cost = holding.map(|(kind, filler)| filler.fraction(at, kind.price));
            cost.min().unwrap_or(1).max(1)
        };
        self.goods.iter().enumerate().map(cost).collect()
    }

    /// Machines for what is left.
    fn greedy_cover(
        &mut self,
        mut left: Vec<i64>,
        worth: &[i64],
    ) -> Result<Vec<PackedBin>, BudgetExhausted> {
        let mut missing: i64 = left.iter().sum();
        let mut present: Vec<usize> = (0..left.len()).filter(|at| left[*at] > 0).collect();
        let mut heap: BinaryHeap<Reverse<(i64, usize)>> = BinaryHeap::new();
        let mut patterns: Vec<Pattern> = vec![Pattern::default(); self.kinds.len()];
        for kind in self.active.clone() {
            let pattern = self.fill(kind, &left, &present, worth)?;
            self.offer(kind, pattern, &mut heap, &mut patterns);
        }
        let mut machines = Vec::new();
        while missing > 0 {
            // Every good has a kind, so that the heap is not empty; if it is, the answer is that there is none.
            let Reverse((_, kind)) = heap.pop().ok_or(BudgetExhausted)?;
            let pattern = &patterns[kind];
            let number = pattern
                .content
                .iter()
                .map(|(good, number)| left[*good] / number);
            let number = number.min().unwrap_or(0);
            if number == 0 {
                // Less was left than the pattern wants: it can only have become worse.
                present.retain(|at| left[*at] > 0);
                let pattern = self.fill(kind, &left, &present, worth)?;
                self.offer(kind, pattern, &mut heap, &mut patterns);
                continue;
            }
            for (good, each) in &pattern.content {
                left[*good] -= each * number;
                missing -= each * number;
            }
            for _ in 0..number {
                machines.push(PackedBin {
                    kind,
                    content: pattern.content.clone(),
                });
            }
            let pattern = std::mem::take(&mut patterns[kind]);
            self.offer(kind, pattern, &mut heap, &mut patterns);
        }
        Ok(machines)
    }

    fn offer(
        &self,
        kind: usize,
        pattern: Pattern,
        heap: &mut BinaryHeap<Reverse<(i64, usize)>>,
        patterns: &mut [Pattern],
    ) {
        if pattern.value > 0 {
            heap.push(Reverse((self.ratio(kind, &pattern), kind)));
            patterns[kind] = pattern;
        }
    }

    /// Price for worth, in millionths.
    fn ratio(&self, kind: usize, pattern: &Pattern) -> i64 {
        let ratio =
            i128::from(self.kinds[kind].price) * 1_000_000 / i128::from(pattern.value.max(1));
        i64::try_from(ratio).unwrap_or(i64::MAX)
    }

    fn fill(
        &mut self,
        kind: usize,
        left: &[i64],
        present: &[usize],
        dual_prices: &[i64],
    ) -> Result<Pattern, BudgetExhausted> {
        if self.steps > self.budget {
            return Err(BudgetExhausted);
        }
        let filler = &self.fillers[kind];
        Ok(filler.fill(
            &self.kinds[kind],
            self.goods,
            left,
            present,
            dual_prices,
            &mut self.steps,
        ))
    }

    fn price(&self, machines: &[PackedBin]) -> i64 {
        machines
            .iter()
            .map(|machine| self.kinds[machine.kind].price)
            .sum()
    }

    fn value(content: &[(usize, i64)], worth: &[i64]) -> i64 {
        content
            .iter()
            .map(|(good, number)| worth[*good].saturating_mul(*number))
            .sum()
    }

    /// What each good pays: machines are paid for by what is on them, by worth.
    fn cost_shares(&self, machines: &[PackedBin], worth: &[i64]) -> Vec<i64> {
        let mut paid = vec![0_i128; self.goods.len()];
        for machine in machines {
            let value = i128::from(Self::value(&machine.content, worth).max(1));
            let price = i128::from(self.kinds[machine.kind].price);
            for (good, number) in &machine.content {
                paid[*good] += price * i128::from(worth[*good]) * i128::from(*number) / value;
            }
        }
        let each = |(paid, good): (i128, &ItemClass)| {
            i64::try_from(paid / i128::from(good.count.max(1))).unwrap_or(i64::MAX)
        };
        paid.into_iter()
            .zip(self.goods)
            .map(each)
            .map(|each| each.max(1))
            .collect()
    }

    /// Leaves out kinds that are worth little for their price and that no good needs.
    fn prune_bin_types(&mut self, all: &[i64], worth: &[i64]) {
        if self.kinds.len() <= MAX_BIN_TYPES {
            return;
        }
        let present: Vec<usize> = (0..all.len()).collect();
        let mut kept: BTreeSet<usize> = BTreeSet::new();
        for (at, good) in self.goods.iter().enumerate() {
            let holding = self
                .kinds
                .iter()
                .enumerate()
                .filter(|(_, kind)| kind.accepts(at, good));
            kept.extend(
                holding
                    .min_by_key(|(_, kind)| kind.price)
                    .map(|(kind, _)| kind),
            );
        }
        let mut ranked: Vec<(i64, usize)> = Vec::new();
        for kind in 0..self.kinds.len() {
            // Without steps left it is not bought for anyway.
            let ratio = self
                .fill(kind, all, &present, worth)
                .map_or(i64::MAX, |pattern| self.ratio(kind, &pattern));
            ranked.push((ratio, kind));
        }
        ranked.sort_unstable();
        ranked.truncate(MAX_BIN_TYPES);
        kept.extend(ranked.into_iter().map(|(_, kind)| kind));
        self.active = kept.into_iter().collect();
    }

    /// Gives some machines back and buys for their goods anew, unless that is dearer. What was saved.
    fn ruin_and_recreate(
        &mut self,
        machines: &mut Vec<PackedBin>,
        worth: &[i64],
    ) -> Result<i64, BudgetExhausted> {
        let many = u64::try_from(machines.len()).unwrap_or(u64::MAX);
        let mut chosen: BTreeSet<usize> = BTreeSet::new();
        for _ in 0..2 + self.below(MAX_RUINED.min(many)) {
            let candidates: [u64; 3] = std::array::from_fn(|_| self.below(many));
            let candidates = candidates.map(|at| usize::try_from(at).unwrap_or(0));
            let loss = |at: &usize| {
                let machine = &machines[*at];
                self.kinds[machine.kind].price - Self::value(&machine.content, worth)
            };
            chosen.extend(candidates.into_iter().max_by_key(loss));
        }
        let mut left = vec![0; self.goods.len()];
        let mut before = 0;
        for at in &chosen {
            let machine = &machines[*at];
            before += self.kinds[machine.kind].price;
            machine
                .content
                .iter()
                .for_each(|(good, number)| left[*good] += number);
        }
        let off: Vec<i64> = worth.iter().map(|worth| self.perturb(*worth)).collect();
        let new = self.greedy_cover(left, &off)?;
        let after = self.price(&new);
        if after > before || (after == before && new.len() > chosen.len()) {
            return Ok(0);
        }
        for at in chosen.into_iter().rev() {
            machines.swap_remove(at);
        }
        machines.extend(new);
        Ok(before - after)
    }

    fn perturb(&mut self, worth: i64) -> i64 {
        let off = i128::from(self.below(2 * PERTURBATION + 1)) + 1000 - i128::from(PERTURBATION);
        i64::try_from(i128::from(worth) * off / 1000)
            .unwrap_or(i64::MAX)
            .max(1)
    }

    /// A number below `end`, which is not zero.
    fn below(&mut self, end: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) % end.max(1)
    }
}

/// Moves worths towards what was paid: so many parts of one, so many of the other.
fn blend(worth: &mut [i64], paid: &[i64], old: i64, new: i64) {
    for (worth, paid) in worth.iter_mut().zip(paid) {
        *worth = ((*worth * old + paid * new) / (old + new)).max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mortise_state::catalog::Bits;

    fn good(amounts: [i64; 2], count: i64) -> ItemClass {
        ItemClass {
            amounts: amounts.into_iter().collect(),
            count,
        }
    }

    fn kind(price: i64, net: [i64; 2], own: &[usize]) -> BinType {
        BinType {
            price,
            net: net.into_iter().collect(),
            own: own.iter().copied().collect(),
            fillers: Bits::default(),
        }
    }

    /// What is bought, after a look at whether it holds everything and nothing twice.
    fn buy(goods: &[ItemClass], kinds: &[BinType], budget: u64) -> Option<(i64, Vec<usize>)> {
        let (price, machines) = CoveringSolver::new(goods, kinds, budget, 7).run()?;
        let mut left: Vec<i64> = goods.iter().map(|good| good.count).collect();
        for machine in &machines {
            let kind = &kinds[machine.kind];
            let mut room = kind.net.clone();
            for (good, number) in &machine.content {
                assert!(kind.own.has(*good));
                left[*good] -= number;
                room.iter_mut()
                    .zip(&goods[*good].amounts)
                    .for_each(|(room, amount)| *room -= number * amount);
            }
            assert!(room.iter().all(|room| *room >= 0), "{machine:?}");
        }
        assert!(left.iter().all(|left| *left == 0), "{left:?}");
        let mut bought: Vec<usize> = machines.iter().map(|machine| machine.kind).collect();
        bought.sort_unstable();
        assert_eq!(
            price,
            bought.iter().map(|kind| kinds[*kind].price).sum::<i64>()
        );
        Some((price, bought))
    }

    #[test]
    fn goods_that_complement_each_other_are_bought_one_machine() {
        let goods = [good([6, 1], 10), good([2, 7], 10)];
        let kinds = [
            kind(10, [8, 8], &[0, 1]),
            kind(9, [8, 2], &[0]),
            kind(9, [2, 8], &[1]),
        ];
        assert_eq!(buy(&goods, &kinds, 1_000_000), Some((100, vec![0; 10])));
    }

    #[test]
    fn a_good_that_one_dear_kind_takes_is_bought_it_and_others_fill_it() {
        let goods = [good([4, 4], 1), good([1, 1], 6)];
        let kinds = [kind(50, [8, 8], &[0, 1]), kind(10, [4, 4], &[1])];
        assert_eq!(buy(&goods, &kinds, 1_000_000), Some((60, vec![0, 1])));
    }

    #[test]
    fn without_steps_nothing_is_bought() {
        let goods = [good([4, 4], 3), good([3, 4], 3)];
        let kinds = [kind(50, [8, 8], &[0, 1]), kind(10, [4, 4], &[0, 1])];
        assert_eq!(buy(&goods, &kinds, 0), None);
        assert_eq!(
            buy(&goods, &kinds, 1_000_000).map(|(price, _)| price),
            Some(60)
        );
    }
}
