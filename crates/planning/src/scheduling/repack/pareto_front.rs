//! Prices of a narrowed template's instance types, by the amounts that they must hold.

use std::cmp::Ordering;

use crate::scheduling::narrowed_template::NarrowedTemplate;
use crate::scheduling::pool_template::PoolTemplate;
use crate::scheduling::resource_vector::{ResourceVector, fit};
use mortise_state::catalog::UNKNOWN_PRICE;

/// Scale of values: 1/1024 micro-dollars per hour.
pub(super) const SCALE: i128 = 1024;

/// An instance type that no cheaper one dominates.
#[derive(Debug)]
pub(super) struct ParetoPoint {
    /// Price in micro-dollars per hour.
    pub(super) price: i64,
    /// Its capacity for pods.
    pub(super) net: ResourceVector,
}

/// The Pareto front of a template's instance types, cheapest first: each has more of some resource than all before it.
#[derive(Debug)]
pub(super) struct ParetoFront {
    points: Vec<ParetoPoint>,
    /// By point: the largest amount of each resource up to it.
    most: Vec<ResourceVector>,
}

impl ParetoFront {
    /// The front of a template; types without a known price are left out.
    pub(super) fn new(shape: &NarrowedTemplate, template: &PoolTemplate) -> Self {
        let mut points: Vec<ParetoPoint> = Vec::new();
        for (at, offer) in shape.by_price(template) {
            let price = offer.price.unwrap_or(UNKNOWN_PRICE);
            if price == UNKNOWN_PRICE {
                continue;
            }
            let net = template.net(*at);
            if !points.iter().any(|point| fit(net, &point.net)) {
                points.push(ParetoPoint {
                    price: price.0,
                    net: ResourceVector::from_slice(net),
                });
            }
        }
        let mut most: Vec<ResourceVector> = Vec::with_capacity(points.len());
        for point in &points {
            let mut all = most.last().cloned().unwrap_or_else(|| point.net.clone());
            all.iter_mut()
                .zip(&point.net)
                .for_each(|(most, net)| *most = (*most).max(*net));
            most.push(all);
        }
        Self { points, most }
    }

    /// The types.
    pub(super) fn points(&self) -> &[ParetoPoint] {
        &self.points
    }

    /// The types, by value.
    pub(super) fn into_points(self) -> Vec<ParetoPoint> {
        self.points
    }

    /// The cheapest type that holds `total`.
    pub(super) fn cheapest(&self, total: &[i64]) -> Option<usize> {
        let start = self.most.partition_point(|most| !fit(total, most));
        (start..self.points.len()).find(|at| fit(total, &self.points[*at].net))
    }

    /// The price of the cheapest type that holds `total`.
    pub(super) fn price(&self, total: &[i64]) -> Option<i64> {
        Some(self.points[self.cheapest(total)?].price)
    }

    /// Prices per unit of each resource for a total `demand`: each resource at its best price, weighted by its part of the
    /// total cost.
    pub(super) fn resource_prices(&self, demand: &[i64]) -> ResourcePrices {
        let dimensions = demand.len();
        let mut unit: Vec<Option<(i128, i128)>> = vec![None; dimensions];
        for point in &self.points {
            for (unit, net) in unit.iter_mut().zip(&point.net).filter(|(_, net)| **net > 0) {
                let own = (i128::from(point.price), i128::from(*net));
                let cheaper = |known: &(i128, i128)| {
                    (own.0 * known.1).cmp(&(known.0 * own.1)) == Ordering::Less
                };
                if unit.as_ref().is_none_or(cheaper) {
                    *unit = Some(own);
                }
            }
        }
        let cost = |at: usize| {
            unit[at].map_or(0, |(price, net)| {
                i128::from(demand[at]) * price / net.max(1)
            })
        };
        let costs: Vec<i128> = (0..dimensions).map(cost).collect();
        let sum = costs.iter().sum::<i128>().max(1);
        let mut order: Vec<usize> = (0..dimensions).collect();
        order.sort_by_key(|at| (-costs[*at], *at));
        ResourcePrices {
            unit: unit
                .into_iter()
                .map(|unit| unit.unwrap_or((0, 1)))
                .collect(),
            costs,
            sum,
            main: (
                order.first().copied().unwrap_or(0),
                order.get(1).copied().unwrap_or(0),
            ),
        }
    }
}

/// See [`ParetoFront::resource_prices`].
#[derive(Debug)]
pub(super) struct ResourcePrices {
    unit: Vec<(i128, i128)>,
    costs: Vec<i128>,
    sum: i128,
    main: (usize, usize),
}

/// The value of amounts.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ItemValue {
    /// All resources.
    pub(super) whole: i64,
    /// The two resources that cost most, each as if it alone were priced.
    pub(super) main: (i64, i64),
}

impl ResourcePrices {
    fn priced(&self, at: usize, amount: i64) -> i128 {
        let (price, net) = self.unit[at];
        i128::from(amount) * price * SCALE / net
    }

    /// The value of amounts.
    pub(super) fn value_of(&self, amounts: &[i64]) -> ItemValue {
        let parts = amounts.iter().enumerate();
        let whole: i128 = parts
            .map(|(at, amount)| self.priced(at, *amount) * self.costs[at] / self.sum)
            .sum();
        let cut = |value: i128| i64::try_from(value).unwrap_or(i64::MAX);
        let one = |at: usize| cut(self.priced(at, amounts[at]));
        ItemValue {
            whole: cut(whole),
            main: (one(self.main.0), one(self.main.1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn front(points: &[(i64, [i64; 2])]) -> ParetoFront {
        let points: Vec<ParetoPoint> = points
            .iter()
            .map(|(price, net)| ParetoPoint {
                price: *price,
                net: net.iter().copied().collect(),
            })
            .collect();
        let mut most: Vec<ResourceVector> = Vec::new();
        for point in &points {
            let mut all = most.last().cloned().unwrap_or_else(|| point.net.clone());
            all.iter_mut()
                .zip(&point.net)
                .for_each(|(most, net)| *most = (*most).max(*net));
            most.push(all);
        }
        ParetoFront { points, most }
    }

    #[test]
    fn cheapest_is_the_first_that_holds_all() {
        let front = front(&[(10, [1, 8]), (12, [4, 2]), (20, [4, 8]), (50, [16, 16])]);
        for cpu in 0..18 {
            for memory in 0..18 {
                let total = [cpu, memory];
                let slow = front
                    .points()
                    .iter()
                    .position(|point| fit(&total, &point.net));
                assert_eq!(front.cheapest(&total), slow, "{total:?}");
            }
        }
    }

    #[test]
    fn a_scarce_resource_is_worth_more() {
        let front = front(&[(100, [10, 10])]);
        let prices = front.resource_prices(&[90, 10]);
        assert!(prices.value_of(&[1, 0]).whole > prices.value_of(&[0, 1]).whole);
        assert_eq!(
            prices.value_of(&[1, 0]).main.0,
            prices.value_of(&[0, 1]).main.1
        );
    }
}
