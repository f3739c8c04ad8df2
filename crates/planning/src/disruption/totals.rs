//! Sums over the nodes of NodePools.

use std::iter::Sum;

use mortise_apis::names::PoolName;
use mortise_apis::resources::{CPU, MEMORY, Resources};
use mortise_apis::values::money::MicroUsd;
use mortise_state::snapshot::Snapshot;

use super::cost;

/// What the nodes of a NodePool cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Price per hour; nodes of unknown price count as zero.
    pub price: MicroUsd,
    /// The part of it that pods use: of each node, as much as they request of its CPU or memory, whichever is more.
    pub used_price: MicroUsd,
    /// Cost of disrupting all of them.
    pub disruption: i64,
}

impl Totals {
    /// Those of a NodePool.
    ///
    /// # Cost
    /// One pass over the nodes, and over the pods of those of the NodePool.
    pub(super) fn of_pool(snapshot: &Snapshot, pool: &PoolName) -> Self {
        let own = snapshot.nodes_of_pool(pool);
        own.filter(|node| node.is_managed())
            .map(|node| {
                let price = node.price.unwrap_or_default();
                Self {
                    price,
                    used_price: used_price(price, &node.used, &node.allocatable),
                    disruption: cost::of_node(node).0,
                }
            })
            .sum()
    }
}

impl Sum for Totals {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, each| Self {
            price: sum.price + each.price,
            used_price: sum.used_price + each.used_price,
            disruption: sum.disruption.saturating_add(each.disruption),
        })
    }
}

/// What the requested part of a node costs.
fn used_price(price: MicroUsd, used: &Resources, allocatable: &Resources) -> MicroUsd {
    let used = price_of_part(price, used, allocatable);
    MicroUsd(i64::try_from(used).unwrap_or(price.0))
}

/// The price of a part of what costs this: of its CPU or memory, whichever is more, and of all of it at most.
pub(super) fn price_of_part(price: MicroUsd, part: &Resources, whole: &Resources) -> i128 {
    let share = |name: &str| {
        let (part, whole) = (part.get(name), whole.get(name).max(1));
        // In millionths, so that products of prices and memory stay small.
        i128::from(part.clamp(0, whole)) * 1_000_000 / i128::from(whole)
    };
    i128::from(price.0) * share(CPU).max(share(MEMORY)) / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_use_the_part_of_the_resource_of_which_less_is_left() {
        let of = |used: (i64, i64)| {
            let used = Resources::new(used.0, used.1);
            used_price(MicroUsd(100), &used, &Resources::new(4000, 16 << 30)).0
        };
        assert_eq!(of((0, 0)), 0);
        assert_eq!(of((1000, 0)), 25);
        assert_eq!(of((1000, 8 << 30)), 50);
        assert_eq!(of((4000, 1 << 30)), 100);
        assert_eq!(of((9000, 0)), 100);
    }
}
