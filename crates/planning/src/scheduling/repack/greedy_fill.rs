//! Fills bins of one narrowed template with pods that may be in any of them.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use super::pareto_front::{ItemValue, ParetoFront, ResourcePrices, SCALE};
use crate::scheduling::resource_vector::{ResourceVector, add, fit, subtract};

/// Limit on the pods that share a bin, by hostname spread.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct HostnameSpreadLimit {
    /// Groups that count the pod, by index.
    pub(super) counted_in: SmallVec<[usize; 2]>,
    /// Groups with the number of pods that its bin may hold.
    pub(super) at_most: SmallVec<[(usize, i32); 1]>,
}

/// A pod that may be in any of the bins.
#[derive(Clone, Debug)]
pub(super) struct PackItem {
    /// Its index in the pass.
    pub(super) pod: usize,
    /// Its requests.
    pub(super) amounts: ResourceVector,
    /// Index of its limit.
    pub(super) limit: usize,
}

/// A bin.
#[derive(Clone, Debug)]
pub(super) struct Bin {
    /// Sum of its pods' requests.
    pub(super) taken: ResourceVector,
    /// Its pods.
    pub(super) pods: Vec<usize>,
    /// It has pods that must not move.
    pub(super) seeded: bool,
    /// Per group: number of pods in it, and the limit.
    groups: SmallVec<[(usize, i32, i32); 4]>,
}

impl Bin {
    /// A bin with pods that must not move.
    pub(super) fn with(taken: ResourceVector, seeded: bool) -> Self {
        Self {
            taken,
            pods: Vec::new(),
            seeded,
            groups: SmallVec::new(),
        }
    }

    fn group(&mut self, group: usize) -> &mut (usize, i32, i32) {
        let at = self.groups.iter().position(|each| each.0 == group);
        let at = at.unwrap_or_else(|| {
            self.groups.push((group, 0, i32::MAX));
            self.groups.len() - 1
        });
        &mut self.groups[at]
    }

    fn admits(&self, limit: &HostnameSpreadLimit) -> bool {
        let known = |group: usize| {
            let known = self.groups.iter().find(|each| each.0 == group);
            known.map_or((0, i32::MAX), |(_, count, most)| (*count, *most))
        };
        let one_more = |group: usize| i32::from(limit.counted_in.contains(&group));
        limit
            .counted_in
            .iter()
            .map(|group| (known(*group), *group))
            .all(|((count, most), _)| count < most)
            && limit.at_most.iter().all(|(group, most)| {
                let (count, _) = known(*group);
                count + one_more(*group) <= *most
            })
    }

    /// Counts a pod in it.
    pub(super) fn count(&mut self, limit: &HostnameSpreadLimit) {
        for group in &limit.counted_in {
            self.group(*group).1 += 1;
        }
        for (group, most) in &limit.at_most {
            let own = self.group(*group);
            own.2 = own.2.min(*most);
        }
    }

    fn is_limited(&self) -> bool {
        self.groups.iter().any(|(_, _, most)| *most < i32::MAX)
    }
}

/// Items with equal requests.
#[derive(Debug)]
struct ItemSize {
    amounts: ResourceVector,
    value: ItemValue,
    limited: bool,
    items: Vec<usize>,
}

/// Items of a size that are tried before the size is skipped for a bin.
const TRIES: usize = 8;
/// Instance types that are tried for a bin.
const CHOICES: usize = 4;

/// Order and fit rule of a packing.
#[derive(Clone, Copy, Debug)]
pub(super) struct FillStrategy {
    /// Weight of imbalance against value, in halves.
    pub(super) balance: i64,
    /// Items with limits go before all others.
    pub(super) limited_first: bool,
    /// Remaining items go into one bin if an instance type holds them, not into several that waste less.
    pub(super) together: bool,
    /// Each next instance type that is tried for a bin is more expensive by this percentage.
    pub(super) step: i64,
}

/// State of a packing.
pub(super) struct GreedyFill<'f> {
    pub(super) front: &'f ParetoFront,
    pub(super) prices: &'f ResourcePrices,
    pub(super) limits: &'f [HostnameSpreadLimit],
    pub(super) items: &'f [PackItem],
    strategy: FillStrategy,
    sizes: Vec<ItemSize>,
    left: usize,
    /// Steps that are left.
    pub(super) budget: u64,
}

/// An item removed from its size, so that it can be returned.
struct TakenItem {
    size: usize,
    at: usize,
    item: usize,
}

/// The budget is used up, or an item fits nowhere.
#[derive(Debug)]
pub(super) struct FillFailed;

impl<'f> GreedyFill<'f> {
    pub(super) fn new(
        front: &'f ParetoFront,
        prices: &'f ResourcePrices,
        limits: &'f [HostnameSpreadLimit],
        items: &'f [PackItem],
        strategy: FillStrategy,
        budget: u64,
    ) -> Self {
        let mut by_size: BTreeMap<(bool, &ResourceVector), Vec<usize>> = BTreeMap::new();
        for (at, item) in items.iter().enumerate() {
            let limited = !limits[item.limit].at_most.is_empty();
            by_size
                .entry((limited, &item.amounts))
                .or_default()
                .push(at);
        }
        let size = |((limited, amounts), items): ((bool, &ResourceVector), Vec<usize>)| ItemSize {
            value: prices.value_of(amounts),
            amounts: amounts.clone(),
            limited,
            items,
        };
        Self {
            front,
            prices,
            limits,
            items,
            strategy,
            sizes: by_size.into_iter().map(size).collect(),
            left: items.len(),
            budget,
        }
    }

    /// Packs every item.
    ///
    /// # Errors
    /// The budget is used up, or an item fits nowhere.
    pub(super) fn run(&mut self, bins: &mut [Bin]) -> Result<(), FillFailed> {
        let mut order: Vec<usize> = (0..bins.len()).filter(|at| bins[*at].seeded).collect();
        order.sort_by_key(|at| (-self.prices.value_of(&bins[*at].taken).whole, *at));
        for at in &order {
            self.fill_well(&mut bins[*at])?;
        }
        self.place_limited(bins)?;
        // Remaining items go into bins without limits, many into one bin.
        order.extend((0..bins.len()).filter(|at| !bins[*at].seeded));
        order.sort_by_key(|at| (bins[*at].is_limited(), *at));
        for at in order {
            if self.left == 0 {
                break;
            }
            self.fill_with_the_rest(&mut bins[at])?;
        }
        if self.left == 0 {
            Ok(())
        } else {
            Err(FillFailed)
        }
    }

    /// Fills a bin as the instance type with the least waste.
    fn fill_well(&mut self, bin: &mut Bin) -> Result<(), FillFailed> {
        let first = self.front.cheapest(&bin.taken).ok_or(FillFailed)?;
        let choices = self.choices(first);
        self.fill_best(bin, &choices)
    }

    fn choices(&self, first: usize) -> SmallVec<[usize; CHOICES]> {
        let points = self.front.points();
        let mut choices: SmallVec<[usize; CHOICES]> = SmallVec::new();
        let mut least = 0;
        for (at, point) in points.iter().enumerate().skip(first) {
            if point.price >= least {
                choices.push(at);
                least = point.price + point.price * self.strategy.step / 100;
            }
            if choices.len() == CHOICES {
                break;
            }
        }
        choices
    }

    fn fill_best(&mut self, bin: &mut Bin, choices: &[usize]) -> Result<(), FillFailed> {
        let mut best: Option<(i128, usize)> = None;
        for choice in choices {
            let mut trial = bin.clone();
            let taken = self.fill(&mut trial, *choice)?;
            let price = i128::from(self.front.price(&trial.taken).unwrap_or(i64::MAX));
            let value = i128::from(self.prices.value_of(&trial.taken).whole);
            // Waste per price, in millionths.
            let waste = (price * SCALE - value) * 1_000_000 / (price * SCALE).max(1);
            self.return_items(taken);
            if best.is_none_or(|(least, _)| waste < least) {
                best = Some((waste, *choice));
            }
        }
        if let Some((_, choice)) = best {
            let taken = self.fill(bin, choice)?;
            self.left -= taken.len();
        }
        Ok(())
    }

    /// Adds items while any fits: those with limits first, then by value and balance of resources.
    fn fill(&mut self, bin: &mut Bin, point: usize) -> Result<Vec<TakenItem>, FillFailed> {
        let mut free = self.front.points()[point].net.clone();
        subtract(&mut free, &bin.taken);
        let mut value = self.prices.value_of(&free).main;
        let mut taken = Vec::new();
        let mut refused: SmallVec<[usize; 16]> = SmallVec::new();
        loop {
            let mut best: Option<((bool, i64), usize)> = None;
            for (at, size) in self.sizes.iter().enumerate() {
                if size.items.is_empty() || !fit(&size.amounts, &free) || refused.contains(&at) {
                    continue;
                }
                let imbalance =
                    ((value.0 - size.value.main.0) - (value.1 - size.value.main.1)).abs();
                let score = (
                    size.limited && self.strategy.limited_first,
                    size.value.whole * 2 - imbalance * self.strategy.balance,
                );
                if best.is_none_or(|(known, _)| score > known) {
                    best = Some((score, at));
                }
            }
            let work = u64::try_from(self.sizes.len()).unwrap_or(u64::MAX);
            self.budget = self.budget.checked_sub(work).ok_or(FillFailed)?;
            let Some((_, at)) = best else {
                return Ok(taken);
            };
            let Some(one) = self.take_item(at, bin) else {
                refused.push(at);
                continue;
            };
            let size = &self.sizes[at];
            subtract(&mut free, &size.amounts);
            value.0 -= size.value.main.0;
            value.1 -= size.value.main.1;
            self.add_item(one.item, bin);
            taken.push(one);
        }
    }

    fn take_item(&mut self, size: usize, bin: &Bin) -> Option<TakenItem> {
        let items = &mut self.sizes[size].items;
        let from = items.len().saturating_sub(TRIES);
        let admitted = |at: &usize| {
            let item = &self.items[items[*at]];
            bin.admits(&self.limits[item.limit])
        };
        let at = (from..items.len()).rev().find(admitted)?;
        let item = items.swap_remove(at);
        Some(TakenItem { size, at, item })
    }

    fn return_items(&mut self, taken: Vec<TakenItem>) {
        for one in taken.into_iter().rev() {
            let items = &mut self.sizes[one.size].items;
            items.push(one.item);
            let last = items.len() - 1;
            items.swap(one.at, last);
        }
    }

    fn add_item(&self, item: usize, bin: &mut Bin) {
        let item = &self.items[item];
        add(&mut bin.taken, &item.amounts);
        bin.count(&self.limits[item.limit]);
        bin.pods.push(item.pod);
    }

    /// Packs the remaining items with limits where they cost least.
    fn place_limited(&mut self, bins: &mut [Bin]) -> Result<(), FillFailed> {
        let mut left: Vec<usize> = Vec::new();
        for size in self.sizes.iter_mut().filter(|size| size.limited) {
            left.append(&mut size.items);
        }
        left.sort_by_key(|at| (-self.prices.value_of(&self.items[*at].amounts).whole, *at));
        for at in left {
            let item = &self.items[at];
            let limit = &self.limits[item.limit];
            let mut best: Option<(i64, usize)> = None;
            for (bin, own) in bins.iter().enumerate() {
                if !own.admits(limit) {
                    continue;
                }
                let mut total = own.taken.clone();
                let before = if own.pods.is_empty() && !own.seeded {
                    0
                } else {
                    self.front.price(&total).unwrap_or(0)
                };
                add(&mut total, &item.amounts);
                if let Some(price) = self.front.price(&total)
                    && best.is_none_or(|(least, _)| price - before < least)
                {
                    best = Some((price - before, bin));
                }
            }
            let work = 4 * u64::try_from(bins.len()).unwrap_or(u64::MAX);
            self.budget = self.budget.checked_sub(work).ok_or(FillFailed)?;
            let (_, bin) = best.ok_or(FillFailed)?;
            self.add_item(at, &mut bins[bin]);
            self.left -= 1;
        }
        Ok(())
    }

    /// Fills a bin with as many of the remaining items as some instance type holds at little waste.
    fn fill_with_the_rest(&mut self, bin: &mut Bin) -> Result<(), FillFailed> {
        let mut total = bin.taken.clone();
        for size in &self.sizes {
            let count = i64::try_from(size.items.len()).unwrap_or(i64::MAX);
            let sum: ResourceVector = size
                .amounts
                .iter()
                .map(|each| each.saturating_mul(count))
                .collect();
            add(&mut total, &sum);
        }
        if let Some(all) = self.front.cheapest(&total) {
            if self.strategy.together {
                return self.fill_best(bin, &[all]);
            }
            let first = self.front.cheapest(&bin.taken).ok_or(FillFailed)?;
            let mut choices = self.choices(first);
            choices.retain(|choice| *choice < all);
            choices.push(all);
            return self.fill_best(bin, &choices);
        }
        // No instance type holds them all: try those with the best ratio of value to price.
        let points = self.front.points();
        let mut order: Vec<usize> = (0..points.len())
            .filter(|at| fit(&bin.taken, &points[*at].net))
            .collect();
        let ratio = |at: usize| {
            let value = i128::from(self.prices.value_of(&points[at].net).whole);
            -value * 1_000_000 / (i128::from(points[at].price) * SCALE).max(1)
        };
        order.sort_by_key(|at| (ratio(*at), std::cmp::Reverse(*at)));
        order.truncate(CHOICES);
        self.fill_best(bin, &order)
    }
}
