//! Lower bound of the cost of any plan: a linear program over instance types.
//!
//! Minimise the sum of price times number over all types, where the selected nodes together have capacity for all CPU, memory
//! and pods, and are as many as pods that must not share a host. Fractions of nodes are allowed and constraints between pods
//! are ignored, so no plan can be cheaper; the gap limits how much cheaper than mortise's plan a real plan can be.
//!
//! The dual has one variable per resource and one inequality per type: it is solved by a simplex in floating point; its optimum
//! equals that of the program above.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::inputs::{RawPod, RawType};

const HOST: &str = "kubernetes.io/hostname";

/// Rounds of adding contents.
const ROUNDS: usize = 600;

/// Number of pivots by the steepest gain; those after that use Bland's rule, which repeats no basis.
const STEEPEST: usize = 5_000;

/// Maximise `gain . y` where `rows[i] . y <= limits[i]` and `y >= 0`; limits are not negative, so zero is a solution. The
/// optimum and `y`.
fn simplex(gain: &[f64], rows: &[Vec<f64>], limits: &[f64]) -> (f64, Vec<f64>) {
    let (n, m) = (gain.len(), rows.len());
    let width = n + m + 1;
    let mut table: Vec<Vec<f64>> = rows
        .iter()
        .enumerate()
        .map(|(at, row)| {
            let mut line = vec![0.0; width];
            line[..n].copy_from_slice(row);
            line[n + at] = 1.0;
            line[width - 1] = limits[at];
            line
        })
        .collect();
    let mut basis: Vec<usize> = (n..n + m).collect();
    let mut goal = vec![0.0; width];
    for (to, gain) in goal.iter_mut().zip(gain) {
        *to = -gain;
    }
    // The number of bases is finite; the cap only guards against rounding.
    for pivots in 0..2 * STEEPEST {
        let mut rising = (0..width - 1).filter(|at| goal[*at] < -1e-9);
        let enters = if pivots < STEEPEST {
            rising.min_by(|a, b| goal[*a].total_cmp(&goal[*b]))
        } else {
            rising.next()
        };
        let Some(enters) = enters else {
            break;
        };
        let ratio = |line: &Vec<f64>| line[width - 1] / line[enters];
        let leaves = (0..m)
            .filter(|at| table[*at][enters] > 1e-12)
            .min_by(|a, b| ratio(&table[*a]).total_cmp(&ratio(&table[*b])));
        let Some(leaves) = leaves else {
            return (f64::INFINITY, Vec::new());
        };
        let pivot = table[leaves][enters];
        table[leaves].iter_mut().for_each(|each| *each /= pivot);
        basis[leaves] = enters;
        let line = table[leaves].clone();
        let eliminate = |row: &mut Vec<f64>| {
            let factor = row[enters];
            if factor != 0.0 {
                row.iter_mut()
                    .zip(&line)
                    .for_each(|(each, own)| *each -= factor * own);
            }
        };
        for (at, row) in table.iter_mut().enumerate() {
            if at != leaves {
                eliminate(row);
            }
        }
        eliminate(&mut goal);
    }
    let mut solution = vec![0.0; n];
    for (variable, line) in basis.iter().zip(&table) {
        if let Some(value) = solution.get_mut(*variable) {
            *value = line[width - 1];
        }
    }
    (goal[width - 1], solution)
}

/// Pods that are alike.
pub(crate) struct Shape {
    /// What each takes.
    pub(crate) amounts: [f64; 4],
    /// How many there are.
    pub(crate) count: usize,
}

/// A bin type that can be used any number of times.
pub(crate) struct Buyable {
    /// Dollars per hour.
    pub(crate) price: f64,
    /// What it has for pods.
    pub(crate) room: [f64; 4],
    /// By shape: whether such pods may be on it.
    pub(crate) takes: Vec<bool>,
}

impl Buyable {
    fn holds(&self, at: usize, shape: &Shape) -> bool {
        self.takes[at]
            && shape
                .amounts
                .iter()
                .zip(&self.room)
                .all(|(own, room)| own <= room)
    }

    /// The pieces of pods that are worth most and fit together, and what they are worth.
    fn fullest(&self, shapes: &[Shape], worth: &[f64]) -> (f64, Vec<f64>) {
        let mut held: Vec<usize> = (0..shapes.len()).collect();
        held.retain(|at| worth[*at] > 0.0 && self.holds(*at, &shapes[*at]));
        let gain: Vec<f64> = held.iter().map(|at| worth[*at]).collect();
        let row = |resource: usize| {
            held.iter()
                .map(|at| shapes[*at].amounts[resource])
                .collect()
        };
        let rows: Vec<Vec<f64>> = (0..4).map(row).collect();
        let (value, pieces) = simplex(&gain, &rows, &self.room);
        let mut column = vec![0.0; shapes.len()];
        for (at, pieces) in held.into_iter().zip(pieces) {
            column[at] = pieces;
        }
        (value, column)
    }
}

/// Lower bound of the cost of nodes for all these pods, even if pods could be divided; each part is on a node that accepts the
/// pod.
///
/// Dual prices of pods for which no pattern is worth more than its price bound the cost from below. They are the solution of a
/// linear program over patterns, which are added as long as they are worth more than their price; dual prices that are still
/// too high are scaled down, so that the bound holds wherever this stops.
pub(crate) fn of_shapes(shapes: &[Shape], buyable: &[Buyable]) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "for display")]
    let counts: Vec<f64> = shapes.iter().map(|shape| shape.count as f64).collect();
    let mut columns: Vec<Vec<f64>> = Vec::new();
    let mut prices: Vec<f64> = Vec::new();
    for at in 0..shapes.len() {
        let mut alone = vec![0.0; shapes.len()];
        alone[at] = 1.0;
        let holding = buyable.iter().filter(|each| each.holds(at, &shapes[at]));
        let filled = holding.map(|each| (each.price, each.fullest(shapes, &alone)));
        let cheapest = filled.min_by(|a, b| (a.0 / a.1.0).total_cmp(&(b.0 / b.1.0)));
        let Some((price, (_, column))) = cheapest else {
            return f64::INFINITY;
        };
        columns.push(column);
        prices.push(price);
    }
    let mut best = 0.0_f64;
    let mut known: Option<Vec<f64>> = None;
    for _ in 0..ROUNDS {
        let (above, worth) = simplex(&counts, &columns, &prices);
        let mut new = Vec::new();
        // Worths of an unfinished program jump about; near the best so far are better contents. When there is none that the
        // program lacks, its own worths are asked.
        let near = known.as_ref().map(|known| {
            let between = |(known, own): (&f64, &f64)| known * 0.7 + own * 0.3;
            known.iter().zip(&worth).map(between).collect::<Vec<f64>>()
        });
        for asked in near.into_iter().chain([worth.clone()]) {
            let mut too_much = 1.0_f64;
            for each in buyable {
                let (value, column) = each.fullest(shapes, &asked);
                too_much = too_much.max(value / each.price);
                let value: f64 = column.iter().zip(&worth).map(|(a, b)| a * b).sum();
                if value > each.price * (1.0 + 1e-6) {
                    new.push((column, each.price));
                }
            }
            let bound = counts.iter().zip(&asked).map(|(a, b)| a * b).sum::<f64>() / too_much;
            if bound > best {
                best = bound;
                known = Some(asked);
            }
            if !new.is_empty() {
                break;
            }
        }
        if new.is_empty() || best > above * 0.9995 {
            break;
        }
        // Contents that are far from being worth their price decide nothing.
        let value = |column: &[f64]| -> f64 { column.iter().zip(&worth).map(|(a, b)| a * b).sum() };
        let kept: Vec<bool> = columns
            .iter()
            .zip(&prices)
            .map(|(column, price)| value(column) > price * 0.95)
            .collect();
        let mut keep = kept.iter();
        columns.retain(|_| keep.next().is_some_and(|keep| *keep));
        let mut keep = kept.iter();
        prices.retain(|_| keep.next().is_some_and(|keep| *keep));
        for (column, price) in new {
            columns.push(column);
            prices.push(price);
        }
    }
    best
}

/// The size of the largest group of pods of which no two may share a host.
fn largest_apart(pods: &[RawPod]) -> usize {
    let mut groups: BTreeMap<String, usize> = BTreeMap::new();
    for pod in pods {
        let terms =
            &pod.affinity["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
        for term in terms.as_array().into_iter().flatten() {
            let labels = term["labelSelector"]["matchLabels"].as_object();
            let own = |(key, value): (&String, &Value)| {
                pod.labels.get(key).map(String::as_str) == value.as_str()
            };
            if term["topologyKey"] == HOST && labels.is_some_and(|labels| labels.iter().all(own)) {
                *groups.entry(term["labelSelector"].to_string()).or_default() += 1;
            }
        }
    }
    groups.into_values().max().unwrap_or(0)
}

/// Lower bound of the cost of nodes for these pods, in dollars per hour.
#[expect(clippy::cast_precision_loss, reason = "for display")]
pub(crate) fn lower_bound(pods: &[RawPod], types: &[RawType]) -> f64 {
    const GIB: f64 = (1_u64 << 30) as f64;
    let sum = |of: fn(&RawPod) -> i64| pods.iter().map(of).sum::<i64>() as f64;
    let gain = [
        sum(|pod| pod.requests.cpu_m) / 1e3,
        sum(|pod| pod.requests.memory_bytes) / GIB,
        pods.len() as f64,
        largest_apart(pods) as f64,
    ];
    let mut rows = Vec::new();
    let mut limits = Vec::new();
    for of in types {
        let prices = of.offerings.iter().filter(|offering| offering.available);
        if let Some(price) = prices.map(|offering| offering.price).min_by(f64::total_cmp) {
            let room = of.allocatable;
            rows.push(vec![
                room.cpu_m as f64 / 1e3,
                room.memory_bytes as f64 / GIB,
                room.pods as f64,
                1.0,
            ]);
            limits.push(price);
        }
    }
    of_totals(&gain, &rows, &limits)
}

/// Lower bound of the cost of nodes that together have at least these totals; `rows` are what a node of each type has, at
/// `prices`.
pub(crate) fn of_totals(totals: &[f64], rows: &[Vec<f64>], prices: &[f64]) -> f64 {
    simplex(totals, rows, prices).0
}

#[cfg(test)]
mod tests {
    use super::{Buyable, Shape, of_shapes};

    fn simplex(gain: &[f64], rows: &[Vec<f64>], limits: &[f64]) -> f64 {
        super::simplex(gain, rows, limits).0
    }

    #[test]
    fn pods_that_only_expensive_nodes_take_are_paid_for() {
        let shape = |cpu: f64, count: usize| Shape {
            amounts: [cpu, 1.0, 1.0, 0.0],
            count,
        };
        let bin_type = |price: f64, takes: [bool; 2]| Buyable {
            price,
            room: [10.0, 100.0, 100.0, 0.0],
            takes: takes.to_vec(),
        };
        let shapes = [shape(5.0, 4), shape(2.0, 10)];
        let any = of_shapes(&shapes, &[bin_type(1.0, [true, true])]);
        assert!((any - 4.0).abs() < 0.01, "{any}");
        let both = [bin_type(1.0, [true, false]), bin_type(3.0, [true, true])];
        let apart = of_shapes(&shapes, &both);
        assert!((apart - 8.0).abs() < 0.01, "{apart}");
        let none = of_shapes(&shapes, &[bin_type(1.0, [true, false])]);
        assert!(none.is_infinite());
    }

    #[test]
    fn known_programs() {
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-6, "{a} {b}");
        near(
            simplex(
                &[3.0, 5.0],
                &[vec![1.0, 0.0], vec![0.0, 2.0], vec![3.0, 2.0]],
                &[4.0, 12.0, 18.0],
            ),
            36.0,
        );
        near(
            simplex(&[1.0, 1.0], &[vec![2.0, 1.0], vec![1.0, 2.0]], &[3.0, 3.0]),
            2.0,
        );
        near(simplex(&[0.0], &[vec![1.0]], &[1.0]), 0.0);
        assert!(simplex(&[1.0], &[vec![0.0]], &[1.0]).is_infinite());
    }
}
