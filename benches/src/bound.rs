//! What any plan costs at least: a linear program over instance types.
//!
//! Minimise the sum of price times number over all types, where the chosen machines together have room for all CPU, memory
//! and pods, and are as many as pods that must not share a host. Fractions of machines are allowed and constraints between
//! pods left out, so no plan can be cheaper; how much cheaper a real plan could be than ours is at most the gap.
//!
//! The dual has one variable per resource and one inequality per type: it is solved by a simplex in exact order of pivots
//! (Bland), in floating point; its optimum equals that of the program above.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::inputs::{RawPod, RawType};

const HOST: &str = "kubernetes.io/hostname";

/// Maximise `gain . y` where `rows[i] . y <= limits[i]` and `y >= 0`; limits are not negative, so zero is a solution.
fn simplex(gain: &[f64], rows: &[Vec<f64>], limits: &[f64]) -> f64 {
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
    let mut goal = vec![0.0; width];
    for (to, gain) in goal.iter_mut().zip(gain) {
        *to = -gain;
    }
    // The number of bases is finite and Bland's rule repeats none; the cap only guards against rounding.
    for _ in 0..10_000 {
        let Some(enters) = (0..width - 1).find(|at| goal[*at] < -1e-9) else {
            break;
        };
        let ratio = |line: &Vec<f64>| line[width - 1] / line[enters];
        let leaves = (0..m)
            .filter(|at| table[*at][enters] > 1e-12)
            .min_by(|a, b| ratio(&table[*a]).total_cmp(&ratio(&table[*b])));
        let Some(leaves) = leaves else {
            return f64::INFINITY;
        };
        let pivot = table[leaves][enters];
        table[leaves].iter_mut().for_each(|each| *each /= pivot);
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
    goal[width - 1]
}

/// The size of the largest group of pods of which no two may share a host.
fn machines(pods: &[RawPod]) -> usize {
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

/// The least that machines for these pods cost, in dollars per hour.
#[expect(clippy::cast_precision_loss, reason = "for display")]
pub(crate) fn lower_bound(pods: &[RawPod], types: &[RawType]) -> f64 {
    const GIB: f64 = (1_u64 << 30) as f64;
    let sum = |of: fn(&RawPod) -> i64| pods.iter().map(of).sum::<i64>() as f64;
    let gain = [
        sum(|pod| pod.requests.cpu_m) / 1e3,
        sum(|pod| pod.requests.memory_bytes) / GIB,
        pods.len() as f64,
        machines(pods) as f64,
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
    simplex(&gain, &rows, &limits)
}

#[cfg(test)]
mod tests {
    use super::simplex;

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
