//! Cost of a disruption for its pods, and whether the savings justify it. Integers throughout.

use std::cmp::Ordering;

use mortise_apis::values::money::MicroUsd;
use mortise_state::snapshot::{EvictionCost, StateNode};

/// Cost of disrupting a node: that of one ordinary pod for the node itself, plus every reschedulable pod with a positive
/// cost.
///
/// # Units
/// As [`EvictionCost`].
pub fn of_node(node: &StateNode) -> EvictionCost {
    let pods: i64 = node
        .reschedulable()
        .map(|pod| pod.eviction_cost().0.max(0))
        .sum();
    EvictionCost(EvictionCost::ONE.0 + pods)
}

/// Orders by price per cost, the highest first: largest savings for the least disruption. An unknown price counts as zero.
pub fn by_savings_ratio(
    a: (Option<MicroUsd>, EvictionCost),
    b: (Option<MicroUsd>, EvictionCost),
) -> Ordering {
    let price = |price: Option<MicroUsd>| i128::from(price.map_or(0, |price| price.0));
    // a.price / a.cost against b.price / b.cost; costs are at least one.
    let left = price(a.0).saturating_mul(i128::from(b.1.0));
    let right = price(b.0).saturating_mul(i128::from(a.1.0));
    right.cmp(&left)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reason::BalancedScore;

    #[test]
    fn the_highest_price_per_cost_comes_first_and_unknown_prices_last() {
        let one = EvictionCost::ONE;
        let two = EvictionCost(2 * one.0);
        let expensive = (Some(MicroUsd(100)), two);
        let cheap = (Some(MicroUsd(60)), one);
        let unknown = (None, one);
        let mut all = [unknown, expensive, cheap];
        all.sort_by(|a, b| by_savings_ratio(*a, *b));
        assert_eq!(all, [cheap, expensive, unknown]);
    }

    /// Recorded results of the reference implementation: savings, disruption, total cost, total disruption, approved.
    #[test]
    fn balanced_score_agrees_with_recorded_answers() {
        // In tenths, so that 0.1 and 5.5 are whole.
        let cases = [
            (-10, 10, 100, 200, false),
            (0, 0, 10, 20, false),
            (0, 200, 10, 20, false),
            (1, 20, 100, 200, false),
            (1, 55, 100, 200, false),
            (1, 200, 10, 20, false),
            (5, 0, 100, 0, false),
            (5, 10, 100, 200, true),
            (5, 10, 10, 20, true),
            (5, 20, 0, 200, false),
            (5, 55, 100, 200, false),
            (5, 55, 10, 20, false),
            (5, 200, 10, 20, false),
            (10, 0, 100, 200, true),
            (10, 0, 0, 200, false),
            (10, 10, 100, 200, true),
            (10, 20, 10, 20, true),
            (10, 55, 100, 200, false),
            (10, 55, 10, 20, false),
            (50, 10, 10, 20, true),
            (50, 55, 10, 20, true),
            (100, 200, 100, 200, true),
            (100, 55, 100, 0, false),
            (100, 200, 0, 200, false),
            (100, 200, 10, 20, true),
        ];
        for (savings, disruption, total_cost, total_disruption, approved) in cases {
            let one = BalancedScore {
                savings,
                disruption,
                total_cost,
                total_disruption,
            };
            assert_eq!(one.is_worth_it(), approved, "{one:?}");
        }
    }
}
