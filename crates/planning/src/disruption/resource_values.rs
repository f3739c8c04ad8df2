//! What resources are worth: the prices at which no instance type is cheaper than what it holds.
//!
//! # Problem
//! Nodes that together hold all pods cost at least the optimum of a linear program: as few fractions of instance types as
//! possible, for all requests in total. Its dual variables are one price per resource. A node is overpaid by what it costs above
//! the value of its pods at these prices, and no replacement of a group of nodes saves more than they are overpaid together,
//! unless it uses room that is free on other nodes.
//!
//! [`CoveringDual`] solves it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::candidate::Candidate;
use super::covering_dual::CoveringDual;
use mortise_apis::resources::Resources;
use mortise_apis::values::money::MicroUsd;
use mortise_state::snapshot::Snapshot;

/// Bits behind the point of prices per unit.
const PRICE_BITS: u32 = 40;

/// A price for one unit of each resource.
///
/// # Units
/// Millionths of a dollar per hour, times 2^40, for each unit of [`Resources`].
#[derive(Clone, Debug, Default)]
pub struct ResourceValues {
    prices: Vec<(Arc<str>, i128)>,
}

impl ResourceValues {
    /// The prices for the pods of managed nodes, given what NodePools may launch.
    ///
    /// # Cost
    /// One pass over the pods and the instance types of each NodePool, and the dual of those types that are not both smaller and
    /// more expensive than another.
    #[must_use]
    pub fn of_pods(snapshot: &Snapshot) -> Self {
        let mut demand = Resources::zero();
        let nodes = snapshot.nodes.values().filter(|node| node.is_managed());
        for pod in nodes.flat_map(|node| node.reschedulable()) {
            demand.add_assign(&pod.class.requests);
        }
        Self::of_demand(&demand, &offered(snapshot))
    }

    /// The prices for a total of requests, when these instance types are offered, cheapest first.
    fn of_demand(demand: &Resources, types: &[(MicroUsd, Resources)]) -> Self {
        let wanted = demand.iter().filter(|(_, amount)| *amount > 0);
        let (names, demand): (Vec<&str>, Vec<i64>) = wanted.unzip();
        let mut rows: Vec<(i64, Vec<i64>)> = Vec::new();
        for (price, capacity) in types {
            let row: Vec<i64> = names.iter().map(|name| capacity.get(name).max(0)).collect();
            let covers = |(_, cheaper): &(i64, Vec<i64>)| {
                cheaper
                    .iter()
                    .zip(&row)
                    .all(|(cheaper, own)| own <= cheaper)
            };
            if price.0 > 0 && !rows.iter().any(covers) {
                rows.push((price.0, row));
            }
        }
        let prices = CoveringDual::new(&demand, &rows).prices(PRICE_BITS);
        let names = names.into_iter().map(Arc::from);
        Self {
            prices: names.zip(prices).collect(),
        }
    }

    /// What these resources are worth, per hour.
    #[must_use]
    pub fn value_of(&self, resources: &Resources) -> MicroUsd {
        let each = self.prices.iter();
        let value: i128 = each
            .map(|(name, price)| i128::from(resources.get(name)).saturating_mul(*price))
            .fold(0, i128::saturating_add);
        MicroUsd(i64::try_from(value >> PRICE_BITS).unwrap_or(i64::MAX))
    }

    /// What the pods of a node are worth.
    #[must_use]
    pub fn value_of_pods(&self, candidate: &Candidate) -> MicroUsd {
        let pods = candidate.pods.iter();
        pods.map(|pod| self.value_of(&pod.class.requests)).sum()
    }
}

/// What NodePools that are not static may launch: the lowest price of each instance type, cheapest first.
fn offered(snapshot: &Snapshot) -> Vec<(MicroUsd, Resources)> {
    let mut least: BTreeMap<Arc<str>, (MicroUsd, Resources)> = BTreeMap::new();
    for pool in snapshot.pools.values().filter(|pool| !pool.is_static()) {
        let Some(catalog) = snapshot.catalog_of(pool) else {
            continue;
        };
        for offer in catalog.offers(&pool.requirements(), &snapshot.well_known) {
            let Some(price) = offer.price else { continue };
            let own = || (price, offer.instance_type.allocatable());
            least
                .entry(Arc::clone(&offer.instance_type.name))
                .and_modify(|known| {
                    if price < known.0 {
                        *known = own();
                    }
                })
                .or_insert_with(own);
        }
    }
    let mut all: Vec<(MicroUsd, Resources)> = least.into_values().collect();
    all.sort_by_key(|(price, _)| *price);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: i64 = 1 << 30;
    const GPU: &str = "nvidia.com/gpu";

    fn kind(price: i64, cpu: i64, gib: i64, gpus: i64) -> (MicroUsd, Resources) {
        let capacity = Resources::new(cpu * 1_000, gib * GIB).with(GPU, gpus);
        (MicroUsd(price), capacity)
    }

    fn near(value: MicroUsd, expected: i64) {
        let off = (value.0 - expected).abs();
        assert!(off * 100 <= expected * 3, "{value:?} is not {expected}");
    }

    #[test]
    fn all_requests_are_worth_the_optimum_of_the_linear_program() {
        // Two nodes of the first kind and two of the second have exactly what is requested.
        let types = [kind(100_000, 4, 8, 0), kind(100_000, 2, 16, 0)];
        let demand = Resources::new(12_000, 48 * GIB);
        let values = ResourceValues::of_demand(&demand, &types);
        near(values.value_of(&demand), 400_000);
        // No type is worth more than it costs.
        for (price, capacity) in &types {
            assert!(values.value_of(capacity).0 <= price.0 + 1);
        }
    }

    #[test]
    fn a_gpu_is_worth_what_its_node_costs_above_one_without() {
        let types = [kind(100_000, 4, 16, 0), kind(700_000, 4, 16, 1)];
        let demand = Resources::new(40_000, 100 * GIB).with(GPU, 2);
        let values = ResourceValues::of_demand(&demand, &types);
        near(values.value_of(&Resources::new(4_000, 0)), 100_000);
        near(values.value_of(&Resources::zero().with(GPU, 1)), 600_000);
    }

    #[test]
    fn nothing_is_worth_anything_without_requests_or_types() {
        let some = Resources::new(1_000, GIB);
        let none = ResourceValues::of_demand(&Resources::zero(), &[kind(100_000, 4, 16, 0)]);
        assert_eq!(none.value_of(&some), MicroUsd(0));
        let none = ResourceValues::of_demand(&some, &[]);
        assert_eq!(none.value_of(&some), MicroUsd(0));
    }
}
