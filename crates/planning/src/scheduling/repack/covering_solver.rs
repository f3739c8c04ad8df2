//! Chooses bins (instances) for item classes, each of which is accepted by one or more bin types.
//!
//! # Problem
//! Variable-size vector bin packing, solved as set covering: select bins and a pattern (items per class) for each, so that
//! every item is packed and the total price is minimal.
//!
//! # Algorithm
//! 1. *Greedy cover.* Each item class has a dual price. Repeatedly select the bin type and pattern with the highest ratio
//!    of packed value to price, as often as items remain. [`KnapsackHeuristic`] builds the patterns.
//! 2. *Restarts.* Each item's share of the price of its bin becomes the dual price of its class for the next cover, so
//!    that items in poorly filled bins are packed first. Up to [`RESTARTS`] covers are built; the cheapest is kept.
//! 3. *Ruin and recreate* (large neighborhood search). Remove at least two bins, each the worst of three random ones by
//!    price minus value of its items. Cover their items again with perturbed dual prices. Keep the result if it is not more
//!    expensive. Stop when [`IMPROVEMENT_WINDOW`] rounds save less than the required part of the price.
//!
//! # Cost
//! Bounded by a step budget. Deterministic: the random sequence is seeded.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use super::BudgetExhausted;
use super::pattern::{BinType, ItemClass, KnapsackHeuristic, Pattern};

/// Greedy covers from scratch.
const RESTARTS: usize = 12;
/// Most bins that one round removes.
const MAX_RUINED: u64 = 32;
/// Rounds in which [`MIN_IMPROVEMENT_DIVISOR`] must be saved; otherwise the search stops.
const IMPROVEMENT_WINDOW: i64 = 200;
/// What a window of rounds must save, as a divisor of the price.
const MIN_IMPROVEMENT_DIVISOR: i64 = 20_000;
/// Bin types that ruin and recreate uses: those with the best ratio of value to price.
const MAX_BIN_TYPES: usize = 64;
/// Relative noise of dual prices, in thousandths.
const PERTURBATION: u64 = 100;
/// Rounds between updates of the dual prices.
const REPRICE_EVERY: i64 = 20;

/// A bin with its items.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PackedBin {
    /// Index of its bin type.
    pub(super) kind: usize,
    /// Item class and number.
    pub(super) content: Vec<(usize, i64)>,
}

/// State of the search.
pub(super) struct CoveringSolver<'p> {
    classes: &'p [ItemClass],
    kinds: &'p [BinType],
    fillers: Vec<KnapsackHeuristic>,
    active: Vec<usize>,
    steps: u64,
    budget: u64,
    random: u64,
}

impl<'p> CoveringSolver<'p> {
    /// A search with these bin types; each item class is among the own classes of a bin type that holds one item of it.
    pub(super) fn new(
        classes: &'p [ItemClass],
        kinds: &'p [BinType],
        budget: u64,
        seed: u64,
    ) -> Self {
        Self {
            classes,
            kinds,
            fillers: kinds
                .iter()
                .map(|kind| KnapsackHeuristic::new(kind, classes))
                .collect(),
            active: (0..kinds.len()).collect(),
            steps: 0,
            budget,
            // The generator must not start at zero.
            random: seed ^ 0x9e37_79b9_7f4a_7c15 | 1,
        }
    }

    /// Bins for all items, and their price; `None` when the budget does not suffice for any cover.
    pub(super) fn run(&mut self) -> Option<(i64, Vec<PackedBin>)> {
        let mut dual_prices = self.prices_alone();
        let all: Vec<i64> = self.classes.iter().map(|class| class.count).collect();
        self.prune_bin_types(&all, &dual_prices);
        let mut best: Option<(i64, Vec<PackedBin>)> = None;
        for _ in 0..RESTARTS {
            let Ok(bins) = self.greedy_cover(all.clone(), &dual_prices) else {
                break;
            };
            let price = self.price(&bins);
            let shares = self.cost_shares(&bins, &dual_prices);
            blend(&mut dual_prices, &shares, 1, 1);
            if best.as_ref().is_none_or(|(least, _)| price < *least) {
                best = Some((price, bins));
            }
        }
        let (mut price, mut bins) = best?;
        let mut dual_prices = self.cost_shares(&bins, &dual_prices);
        let mut before = price;
        for attempt in 1.. {
            if bins.len() < 2 {
                break;
            }
            if attempt % IMPROVEMENT_WINDOW == 0 {
                if before - price <= price / MIN_IMPROVEMENT_DIVISOR {
                    break;
                }
                before = price;
            }
            if attempt % REPRICE_EVERY == 0 {
                let shares = self.cost_shares(&bins, &dual_prices);
                blend(&mut dual_prices, &shares, 3, 1);
            }
            let Ok(saved) = self.ruin_and_recreate(&mut bins, &dual_prices) else {
                break;
            };
            price -= saved;
        }
        Some((price, bins))
    }

    /// The price of one item of each class in bins of its own.
    fn prices_alone(&self) -> Vec<i64> {
        let cost = |(at, class): (usize, &ItemClass)| {
            let kinds = self.kinds.iter().zip(&self.fillers);
            let holding = kinds.filter(|(kind, _)| kind.accepts(at, class));
            let cost = holding.map(|(kind, filler)| filler.fraction(at, kind.price));
            cost.min().unwrap_or(1).max(1)
        };
        self.classes.iter().enumerate().map(cost).collect()
    }

    /// Bins for the remaining items.
    fn greedy_cover(
        &mut self,
        mut left: Vec<i64>,
        dual_prices: &[i64],
    ) -> Result<Vec<PackedBin>, BudgetExhausted> {
        let mut missing: i64 = left.iter().sum();
        let mut present: Vec<usize> = (0..left.len()).filter(|at| left[*at] > 0).collect();
        let mut heap: BinaryHeap<Reverse<(i64, usize)>> = BinaryHeap::new();
        let mut patterns: Vec<Pattern> = vec![Pattern::default(); self.kinds.len()];
        for kind in self.active.clone() {
            let pattern = self.fill(kind, &left, &present, dual_prices)?;
            self.offer(kind, pattern, &mut heap, &mut patterns);
        }
        let mut bins = Vec::new();
        while missing > 0 {
            // Every class has a bin type, so the heap is not empty; if it is, there is no cover.
            let Reverse((_, kind)) = heap.pop().ok_or(BudgetExhausted)?;
            let pattern = &patterns[kind];
            let number = pattern
                .content
                .iter()
                .map(|(class, number)| left[*class] / number);
            let number = number.min().unwrap_or(0);
            if number == 0 {
                // Fewer items remain than the pattern holds: its ratio can only have become worse.
                present.retain(|at| left[*at] > 0);
                let pattern = self.fill(kind, &left, &present, dual_prices)?;
                self.offer(kind, pattern, &mut heap, &mut patterns);
                continue;
            }
            for (class, each) in &pattern.content {
                left[*class] -= each * number;
                missing -= each * number;
            }
            for _ in 0..number {
                bins.push(PackedBin {
                    kind,
                    content: pattern.content.clone(),
                });
            }
            let pattern = std::mem::take(&mut patterns[kind]);
            self.offer(kind, pattern, &mut heap, &mut patterns);
        }
        Ok(bins)
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

    /// Price per value, in millionths.
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
            self.classes,
            left,
            present,
            dual_prices,
            &mut self.steps,
        ))
    }

    fn price(&self, bins: &[PackedBin]) -> i64 {
        bins.iter().map(|bin| self.kinds[bin.kind].price).sum()
    }

    fn value(content: &[(usize, i64)], dual_prices: &[i64]) -> i64 {
        content
            .iter()
            .map(|(class, number)| dual_prices[*class].saturating_mul(*number))
            .sum()
    }

    /// The share of the bin prices that one item of each class pays, in proportion to its dual price.
    fn cost_shares(&self, bins: &[PackedBin], dual_prices: &[i64]) -> Vec<i64> {
        let mut shares = vec![0_i128; self.classes.len()];
        for bin in bins {
            let value = i128::from(Self::value(&bin.content, dual_prices).max(1));
            let price = i128::from(self.kinds[bin.kind].price);
            for (class, number) in &bin.content {
                shares[*class] +=
                    price * i128::from(dual_prices[*class]) * i128::from(*number) / value;
            }
        }
        let each = |(share, class): (i128, &ItemClass)| {
            i64::try_from(share / i128::from(class.count.max(1))).unwrap_or(i64::MAX)
        };
        shares
            .into_iter()
            .zip(self.classes)
            .map(each)
            .map(|each| each.max(1))
            .collect()
    }

    /// Drops bin types with a poor ratio of value to price that no class needs.
    fn prune_bin_types(&mut self, all: &[i64], dual_prices: &[i64]) {
        if self.kinds.len() <= MAX_BIN_TYPES {
            return;
        }
        let present: Vec<usize> = (0..all.len()).collect();
        let mut kept: BTreeSet<usize> = BTreeSet::new();
        for (at, class) in self.classes.iter().enumerate() {
            let holding = self
                .kinds
                .iter()
                .enumerate()
                .filter(|(_, kind)| kind.accepts(at, class));
            kept.extend(
                holding
                    .min_by_key(|(_, kind)| kind.price)
                    .map(|(kind, _)| kind),
            );
        }
        let mut ranked: Vec<(i64, usize)> = Vec::new();
        for kind in 0..self.kinds.len() {
            // Without steps left the bin type is not used anyway.
            let ratio = self
                .fill(kind, all, &present, dual_prices)
                .map_or(i64::MAX, |pattern| self.ratio(kind, &pattern));
            ranked.push((ratio, kind));
        }
        ranked.sort_unstable();
        ranked.truncate(MAX_BIN_TYPES);
        kept.extend(ranked.into_iter().map(|(_, kind)| kind));
        self.active = kept.into_iter().collect();
    }

    /// Removes some bins and covers their items again, unless that is more expensive. Returns the savings.
    fn ruin_and_recreate(
        &mut self,
        bins: &mut Vec<PackedBin>,
        dual_prices: &[i64],
    ) -> Result<i64, BudgetExhausted> {
        let many = u64::try_from(bins.len()).unwrap_or(u64::MAX);
        let mut chosen: BTreeSet<usize> = BTreeSet::new();
        for _ in 0..2 + self.below(MAX_RUINED.min(many)) {
            let candidates: [u64; 3] = std::array::from_fn(|_| self.below(many));
            let candidates = candidates.map(|at| usize::try_from(at).unwrap_or(0));
            let loss = |at: &usize| {
                let bin = &bins[*at];
                self.kinds[bin.kind].price - Self::value(&bin.content, dual_prices)
            };
            chosen.extend(candidates.into_iter().max_by_key(loss));
        }
        let mut left = vec![0; self.classes.len()];
        let mut before = 0;
        for at in &chosen {
            let bin = &bins[*at];
            before += self.kinds[bin.kind].price;
            bin.content
                .iter()
                .for_each(|(class, number)| left[*class] += number);
        }
        let off: Vec<i64> = dual_prices
            .iter()
            .map(|dual_price| self.perturb(*dual_price))
            .collect();
        let new = self.greedy_cover(left, &off)?;
        let after = self.price(&new);
        if after > before || (after == before && new.len() > chosen.len()) {
            return Ok(0);
        }
        for at in chosen.into_iter().rev() {
            bins.swap_remove(at);
        }
        bins.extend(new);
        Ok(before - after)
    }

    fn perturb(&mut self, dual_price: i64) -> i64 {
        let off = i128::from(self.below(2 * PERTURBATION + 1)) + 1000 - i128::from(PERTURBATION);
        i64::try_from(i128::from(dual_price) * off / 1000)
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

/// Moves dual prices towards the shares, with these weights.
fn blend(dual_prices: &mut [i64], shares: &[i64], old: i64, new: i64) {
    for (dual_price, share) in dual_prices.iter_mut().zip(shares) {
        *dual_price = ((*dual_price * old + share * new) / (old + new)).max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mortise_state::catalog::Bits;

    fn class(amounts: [i64; 2], count: i64) -> ItemClass {
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

    /// The price and bin types of a cover that is checked for completeness.
    fn cover(classes: &[ItemClass], kinds: &[BinType], budget: u64) -> Option<(i64, Vec<usize>)> {
        let (price, bins) = CoveringSolver::new(classes, kinds, budget, 7).run()?;
        let mut left: Vec<i64> = classes.iter().map(|class| class.count).collect();
        for bin in &bins {
            let kind = &kinds[bin.kind];
            let mut free = kind.net.clone();
            for (class, number) in &bin.content {
                assert!(kind.own.has(*class));
                left[*class] -= number;
                free.iter_mut()
                    .zip(&classes[*class].amounts)
                    .for_each(|(free, amount)| *free -= number * amount);
            }
            assert!(free.iter().all(|free| *free >= 0), "{bin:?}");
        }
        assert!(left.iter().all(|left| *left == 0), "{left:?}");
        let mut kinds_used: Vec<usize> = bins.iter().map(|bin| bin.kind).collect();
        kinds_used.sort_unstable();
        assert_eq!(
            price,
            kinds_used
                .iter()
                .map(|kind| kinds[*kind].price)
                .sum::<i64>()
        );
        Some((price, kinds_used))
    }

    #[test]
    fn classes_that_complement_each_other_share_bins() {
        let classes = [class([6, 1], 10), class([2, 7], 10)];
        let kinds = [
            kind(10, [8, 8], &[0, 1]),
            kind(9, [8, 2], &[0]),
            kind(9, [2, 8], &[1]),
        ];
        assert_eq!(cover(&classes, &kinds, 1_000_000), Some((100, vec![0; 10])));
    }

    #[test]
    fn an_expensive_bin_that_one_class_needs_is_filled_with_others() {
        let classes = [class([4, 4], 1), class([1, 1], 6)];
        let kinds = [kind(50, [8, 8], &[0, 1]), kind(10, [4, 4], &[1])];
        assert_eq!(cover(&classes, &kinds, 1_000_000), Some((60, vec![0, 1])));
    }

    #[test]
    fn without_steps_there_is_no_cover() {
        let classes = [class([4, 4], 3), class([3, 4], 3)];
        let kinds = [kind(50, [8, 8], &[0, 1]), kind(10, [4, 4], &[0, 1])];
        assert_eq!(cover(&classes, &kinds, 0), None);
        assert_eq!(
            cover(&classes, &kinds, 1_000_000).map(|(price, _)| price),
            Some(60)
        );
    }
}
