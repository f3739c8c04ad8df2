//! What one machine is filled with: a knapsack of several resources.

use smallvec::SmallVec;

use crate::scheduling::resource_vector::{ResourceVector, fit};
use mortise_state::catalog::Bits;

/// Pods that are alike to the question.
#[derive(Clone, Debug)]
pub(super) struct ItemClass {
    /// What each takes.
    pub(super) amounts: ResourceVector,
    /// How many there are.
    pub(super) count: i64,
}

/// A machine that can be bought any number of times.
#[derive(Clone, Debug)]
pub(super) struct BinType {
    /// What one costs, in micro-dollars per hour. Positive.
    pub(super) price: i64,
    /// What it has for pods.
    pub(super) net: ResourceVector,
    /// Goods for which it may be bought.
    pub(super) own: Bits,
    /// Other goods that may be on it.
    pub(super) fillers: Bits,
}

impl BinType {
    /// Whether it may be bought for a good, whose index is `at`, and has room for one.
    pub(super) fn accepts(&self, at: usize, good: &ItemClass) -> bool {
        self.own.has(at) && fit(&good.amounts, &self.net)
    }
}

/// Which goods go on a machine together, and how many of each.
#[derive(Clone, Debug, Default)]
pub(super) struct Pattern {
    /// Good and number.
    pub(super) content: Vec<(usize, i64)>,
    /// What the content is worth.
    pub(super) value: i64,
}

/// A resource that is used up in full.
const FULL: i64 = 1 << 10;
/// A good that takes all of a resource.
const WHOLE: i128 = 1 << 16;
/// No resource weighs less.
const LEAST_WEIGHT: i64 = 8;
/// Rounds of weighing resources anew.
const ROUNDS: usize = 8;

/// Fills machines of one kind.
#[derive(Debug)]
pub(super) struct KnapsackHeuristic {
    /// By good, then resource: its part of the machine.
    shares: Vec<i64>,
    width: usize,
}

impl KnapsackHeuristic {
    /// Prepares a kind.
    pub(super) fn of(kind: &BinType, goods: &[ItemClass]) -> Self {
        let part = |(amount, net): (&i64, &i64)| {
            let part = i128::from(*amount) * WHOLE / i128::from((*net).max(1));
            i64::try_from(part.clamp(0, WHOLE)).unwrap_or(0)
        };
        let parts = |good: &ItemClass| -> Vec<i64> {
            good.amounts.iter().zip(&kind.net).map(part).collect()
        };
        Self {
            shares: goods.iter().flat_map(parts).collect(),
            width: kind.net.len(),
        }
    }

    /// The part of a price that one of a good pays on a machine with nothing but its like.
    pub(super) fn fraction(&self, good: usize, price: i64) -> i64 {
        let shares = &self.shares[good * self.width..(good + 1) * self.width];
        let most = shares.iter().copied().max().unwrap_or(0);
        i64::try_from(i128::from(price) * i128::from(most) / WHOLE).unwrap_or(i64::MAX)
    }

    /// The most valuable content that is found: goods by worth for what they take, where resources weigh more the fuller
    /// the last attempt left them. The work done is added to `steps`.
    pub(super) fn fill(
        &self,
        kind: &BinType,
        goods: &[ItemClass],
        left: &[i64],
        present: &[usize],
        worth: &[i64],
        steps: &mut u64,
    ) -> Pattern {
        let mut weights: SmallVec<[i64; 6]> = kind
            .net
            .iter()
            .map(|net| if *net > 0 { FULL } else { 0 })
            .collect();
        let mut order: Vec<(bool, i64, usize)> = Vec::with_capacity(present.len());
        let mut best = Pattern::default();
        let takes = |at: &usize| left[*at] > 0 && (kind.own.has(*at) || kind.fillers.has(*at));
        let held: Vec<usize> = present.iter().copied().filter(takes).collect();
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
                let density = (worth[*at] << 20) / (taken + 1);
                (!kind.own.has(*at), -density, *at)
            }));
            order.sort_unstable();
            let mut room = kind.net.clone();
            let mut pattern = Pattern::default();
            for (filler, _, at) in &order {
                if *filler && pattern.content.is_empty() {
                    break;
                }
                let amounts = &goods[*at].amounts;
                let most = amounts.iter().zip(&room).filter(|(amount, _)| **amount > 0);
                let most = most
                    .map(|(amount, room)| room / amount)
                    .min()
                    .unwrap_or(i64::MAX);
                let number = most.min(left[*at]);
                if number <= 0 {
                    continue;
                }
                room.iter_mut()
                    .zip(amounts)
                    .for_each(|(room, amount)| *room -= number * amount);
                pattern.content.push((*at, number));
                pattern.value = pattern
                    .value
                    .saturating_add(number.saturating_mul(worth[*at]));
            }
            if pattern.value > best.value {
                best = pattern;
            }
            if !reweigh(&mut weights, &room, &kind.net) {
                break;
            }
        }
        best
    }
}

/// Resources that were used up weigh more. `false` when nothing changes.
fn reweigh(weights: &mut [i64], room: &[i64], net: &[i64]) -> bool {
    let mut changed = false;
    for ((weight, room), net) in weights.iter_mut().zip(room).zip(net) {
        if *net <= 0 {
            continue;
        }
        let free = i128::from(*room) * i128::from(FULL) / i128::from(*net);
        let used = FULL - i64::try_from(free).unwrap_or(0);
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

    fn good(amounts: [i64; 2], count: i64) -> ItemClass {
        ItemClass {
            amounts: amounts.into_iter().collect(),
            count,
        }
    }

    fn fill(net: [i64; 2], goods: &[ItemClass], worth: &[i64], fillers: &[usize]) -> Pattern {
        let all: Vec<usize> = (0..goods.len()).collect();
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
        let left: Vec<i64> = goods.iter().map(|good| good.count).collect();
        let mut pattern =
            KnapsackHeuristic::of(&kind, goods).fill(&kind, goods, &left, &all, worth, &mut 0);
        pattern.content.sort_unstable();
        pattern
    }

    #[test]
    fn goods_that_complement_each_other_share_a_machine() {
        let goods = [good([8, 1], 9), good([1, 8], 9), good([5, 5], 9)];
        assert_eq!(
            fill([18, 18], &goods, &[10, 10, 8], &[]).content,
            [(0, 2), (1, 2)]
        );
    }

    #[test]
    fn no_more_than_there_are_and_than_fit() {
        let goods = [good([3, 0], 2), good([1, 1], 100)];
        let pattern = fill([10, 100], &goods, &[300, 1], &[]);
        assert_eq!(
            (pattern.content.as_slice(), pattern.value),
            ([(0, 2), (1, 4)].as_slice(), 604)
        );
    }

    #[test]
    fn fillers_alone_do_not_open_a_machine() {
        let goods = [good([4, 4], 1), good([1, 1], 9)];
        assert_eq!(
            fill([6, 6], &goods, &[1, 100], &[1]).content,
            [(0, 1), (1, 2)]
        );
        let only = [good([8, 8], 1), good([1, 1], 9)];
        assert!(fill([6, 6], &only, &[1, 100], &[1]).content.is_empty());
    }
}
