//! Patterns: the content of one bin, as a knapsack of several resources.

use smallvec::SmallVec;

use crate::scheduling::resource_vector::{ResourceVector, fit};
use mortise_state::catalog::Bits;

/// Items with equal requests and bin types.
#[derive(Clone, Debug)]
pub(super) struct ItemClass {
    /// Requests of each.
    pub(super) amounts: ResourceVector,
    /// How many there are.
    pub(super) count: i64,
}

/// A bin type, of which any number can be used.
#[derive(Clone, Debug)]
pub(super) struct BinType {
    /// Price of one, in micro-dollars per hour. Positive.
    pub(super) price: i64,
    /// Its capacity for pods.
    pub(super) net: ResourceVector,
    /// Item classes for which a bin may be opened.
    pub(super) own: Bits,
    /// Other item classes that may fill it.
    pub(super) fillers: Bits,
}

impl BinType {
    /// Whether a bin may be opened for an item class, whose index is `at`, and holds one.
    pub(super) fn accepts(&self, at: usize, class: &ItemClass) -> bool {
        self.own.has(at) && fit(&class.amounts, &self.net)
    }
}

/// Number of items per class in one bin.
#[derive(Clone, Debug, Default)]
pub(super) struct Pattern {
    /// Item class and number.
    pub(super) content: Vec<(usize, i64)>,
    /// Value of the content.
    pub(super) value: i64,
}

/// Weight of a resource that is used up in full.
const FULL: i64 = 1 << 10;
/// Share of an item that uses all of a resource.
const WHOLE: i128 = 1 << 16;
/// Smallest weight of a resource.
const LEAST_WEIGHT: i64 = 8;
/// Rounds of weight updates.
const ROUNDS: usize = 8;

/// Fills bins of one type.
#[derive(Debug)]
pub(super) struct KnapsackHeuristic {
    /// By item class, then resource: its part of the bin.
    shares: Vec<i64>,
    width: usize,
}

impl KnapsackHeuristic {
    /// Prepares a bin type.
    pub(super) fn new(kind: &BinType, classes: &[ItemClass]) -> Self {
        let part = |(amount, net): (&i64, &i64)| {
            let part = i128::from(*amount) * WHOLE / i128::from((*net).max(1));
            i64::try_from(part.clamp(0, WHOLE)).unwrap_or(0)
        };
        let parts = |class: &ItemClass| -> Vec<i64> {
            class.amounts.iter().zip(&kind.net).map(part).collect()
        };
        Self {
            shares: classes.iter().flat_map(parts).collect(),
            width: kind.net.len(),
        }
    }

    /// The part of a bin's price that one item pays in a bin with items of its class only.
    pub(super) fn fraction(&self, class: usize, price: i64) -> i64 {
        let shares = &self.shares[class * self.width..(class + 1) * self.width];
        let most = shares.iter().copied().max().unwrap_or(0);
        i64::try_from(i128::from(price) * i128::from(most) / WHOLE).unwrap_or(i64::MAX)
    }

    /// The most valuable content that is found: items by value per weighted size, where resources weigh more the fuller
    /// the last attempt left them. The work is added to `steps`.
    pub(super) fn fill(
        &self,
        kind: &BinType,
        classes: &[ItemClass],
        left: &[i64],
        present: &[usize],
        dual_prices: &[i64],
        steps: &mut u64,
    ) -> Pattern {
        let mut weights: SmallVec<[i64; 6]> = kind
            .net
            .iter()
            .map(|net| if *net > 0 { FULL } else { 0 })
            .collect();
        let mut order: Vec<(bool, i64, usize)> = Vec::with_capacity(present.len());
        let mut best = Pattern::default();
        let is_usable = |at: &usize| left[*at] > 0 && (kind.own.has(*at) || kind.fillers.has(*at));
        let held: Vec<usize> = present.iter().copied().filter(is_usable).collect();
        for _ in 0..ROUNDS {
            *steps += 1 + u64::try_from(held.len()).unwrap_or(u64::MAX);
            order.clear();
            order.extend(held.iter().map(|at| {
                let shares = &self.shares[at * self.width..(at + 1) * self.width];
                let taken: i64 = shares
                    .iter()
                    .zip(&weights)
                    .map(|(share, weight)| share * weight)
                    .sum();
                let density = (dual_prices[*at] << 20) / (taken + 1);
                (!kind.own.has(*at), -density, *at)
            }));
            order.sort_unstable();
            let mut free = kind.net.clone();
            let mut pattern = Pattern::default();
            for (filler, _, at) in &order {
                if *filler && pattern.content.is_empty() {
                    break;
                }
                let amounts = &classes[*at].amounts;
                let most = amounts.iter().zip(&free).filter(|(amount, _)| **amount > 0);
                let most = most
                    .map(|(amount, free)| free / amount)
                    .min()
                    .unwrap_or(i64::MAX);
                let number = most.min(left[*at]);
                if number <= 0 {
                    continue;
                }
                free.iter_mut()
                    .zip(amounts)
                    .for_each(|(free, amount)| *free -= number * amount);
                pattern.content.push((*at, number));
                pattern.value = pattern
                    .value
                    .saturating_add(number.saturating_mul(dual_prices[*at]));
            }
            if pattern.value > best.value {
                best = pattern;
            }
            if !reweigh(&mut weights, &free, &kind.net) {
                break;
            }
        }
        best
    }
}

/// Resources that were used up weigh more. `false` when nothing changes.
fn reweigh(weights: &mut [i64], free: &[i64], net: &[i64]) -> bool {
    let mut changed = false;
    for ((weight, free), net) in weights.iter_mut().zip(free).zip(net) {
        if *net <= 0 {
            continue;
        }
        let unused = i128::from(*free) * i128::from(FULL) / i128::from(*net);
        let used = FULL - i64::try_from(unused).unwrap_or(0);
        let new = (*weight * (used * used / FULL).max(FULL / 32) / FULL).max(LEAST_WEIGHT);
        changed |= new != *weight;
        *weight = new;
    }
    let most = weights.iter().copied().max().unwrap_or(1).max(1);
    weights
        .iter_mut()
        .for_each(|weight| *weight = *weight * FULL / most);
    changed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(amounts: [i64; 2], count: i64) -> ItemClass {
        ItemClass {
            amounts: amounts.into_iter().collect(),
            count,
        }
    }

    fn fill(
        net: [i64; 2],
        classes: &[ItemClass],
        dual_prices: &[i64],
        fillers: &[usize],
    ) -> Pattern {
        let all: Vec<usize> = (0..classes.len()).collect();
        let kind = BinType {
            price: 1,
            net: net.into_iter().collect(),
            own: all
                .iter()
                .copied()
                .filter(|at| !fillers.contains(at))
                .collect(),
            fillers: fillers.iter().copied().collect(),
        };
        let left: Vec<i64> = classes.iter().map(|class| class.count).collect();
        let mut pattern = KnapsackHeuristic::new(&kind, classes).fill(
            &kind,
            classes,
            &left,
            &all,
            dual_prices,
            &mut 0,
        );
        pattern.content.sort_unstable();
        pattern
    }

    #[test]
    fn classes_that_complement_each_other_share_a_bin() {
        let classes = [class([8, 1], 9), class([1, 8], 9), class([5, 5], 9)];
        assert_eq!(
            fill([18, 18], &classes, &[10, 10, 8], &[]).content,
            [(0, 2), (1, 2)]
        );
    }

    #[test]
    fn no_more_than_there_are_and_than_fit() {
        let classes = [class([3, 0], 2), class([1, 1], 100)];
        let pattern = fill([10, 100], &classes, &[300, 1], &[]);
        assert_eq!(
            (pattern.content.as_slice(), pattern.value),
            ([(0, 2), (1, 4)].as_slice(), 604)
        );
    }

    #[test]
    fn fillers_alone_do_not_open_a_bin() {
        let classes = [class([4, 4], 1), class([1, 1], 9)];
        assert_eq!(
            fill([6, 6], &classes, &[1, 100], &[1]).content,
            [(0, 1), (1, 2)]
        );
        let only = [class([8, 8], 1), class([1, 1], 9)];
        assert!(fill([6, 6], &only, &[1, 100], &[1]).content.is_empty());
    }
}
