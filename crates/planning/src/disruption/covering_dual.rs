//! The dual of a small covering problem, exactly enough to rank by and never too high.
//!
//! # Problem
//! `max demand · y`, subject to `capacity · y <= price` for every instance type, and `y >= 0`: one price per resource.
//!
//! # Algorithm
//! Simplex method on the vertices of the dual, in fixed-point integers, so that the result is the same everywhere. A vertex is the set
//! of constraints that are tight there; each step leaves one of them along the edge that raises the objective most, until another
//! constraint stops it. The result is lowered by what rounding puts above a price.
//!
//! # Cost
//! Each step takes `resources^3 + resources * types` multiplications; some ten steps are usual for a handful of resources.

/// Bits behind the point of capacities and of the inverse of the tight constraints.
const FRACTION: u32 = 40;

/// Bits behind the point of the objective's coefficients.
const DEMAND_BITS: u32 = 20;

/// Bits behind the point of the resulting prices.
const PRICE_BITS: u32 = 30;

/// What counts as zero for a pivot or the rate of a constraint: 2^-24.
const TINY: i128 = 1 << (FRACTION - 24);

/// More steps than problems of this size take.
const MOST_STEPS: usize = 256;

/// Instance types with a price, and how much of each resource is wanted.
pub(super) struct CoveringDual {
    /// The most that one type has of each resource.
    units: Vec<i64>,
    /// Wanted, in these units.
    demand: Vec<i128>,
    rows: Vec<Constraint>,
}

/// `capacity · y <= price`.
struct Constraint {
    price: i128,
    /// In units.
    capacity: Vec<i128>,
}

impl CoveringDual {
    /// Rows are price and capacity of an instance type; a row has one amount for each of `demand`.
    pub(super) fn new(demand: &[i64], rows: &[(i64, Vec<i64>)]) -> Self {
        let most = |at: usize| {
            rows.iter()
                .map(|(_, row)| row[at])
                .max()
                .unwrap_or(0)
                .max(1)
        };
        let units: Vec<i64> = (0..demand.len()).map(most).collect();
        let per_unit = |amounts: &[i64], bits: u32| -> Vec<i128> {
            let pairs = amounts.iter().zip(&units);
            pairs
                .map(|(amount, unit)| (i128::from(*amount) << bits) / i128::from(*unit))
                .collect()
        };
        Self {
            demand: per_unit(demand, DEMAND_BITS),
            rows: rows
                .iter()
                .map(|(price, row)| Constraint {
                    price: i128::from(*price) << PRICE_BITS,
                    capacity: per_unit(row, FRACTION),
                })
                .collect(),
            units,
        }
    }

    /// A price for one unit of each resource, times `2^bits`. A resource that no type has is worth nothing.
    pub(super) fn prices(&self, bits: u32) -> Vec<i128> {
        let size = self.units.len();
        // Constraint `at < size` is `y[at] >= 0`, the others are the rows.
        let mut tight: Vec<usize> = (0..size).collect();
        let mut prices = vec![0_i128; size];
        let mut stands = false;
        for _ in 0..MOST_STEPS {
            let normals: Vec<Vec<i128>> = tight.iter().map(|at| self.normal(*at)).collect();
            let Some(inverse) = inverted(normals) else {
                break;
            };
            prices = self.vertex(&tight, &inverse);
            let Some(leaving) = self.leaving(&tight, &inverse, stands) else {
                break;
            };
            let edge: Vec<i128> = inverse.iter().map(|row| -row[leaving]).collect();
            let Some((step, entering)) = self.stopped_by(&tight, &prices, &edge) else {
                break;
            };
            stands = step == 0;
            tight[leaving] = entering;
        }
        self.per_amount(&self.lowered(prices), bits)
    }

    fn normal(&self, constraint: usize) -> Vec<i128> {
        let size = self.units.len();
        match constraint.checked_sub(size) {
            Some(row) => self.rows[row].capacity.clone(),
            None => (0..size)
                .map(|at| if at == constraint { -1 << FRACTION } else { 0 })
                .collect(),
        }
    }

    /// Where these constraints meet.
    fn vertex(&self, tight: &[usize], inverse: &[Vec<i128>]) -> Vec<i128> {
        let bound = |at: &usize| {
            let row = at.checked_sub(self.units.len());
            row.map_or(0, |row| self.rows[row].price)
        };
        let bounds: Vec<i128> = tight.iter().map(bound).collect();
        let each = inverse.iter().map(|row| dot(row, &bounds) >> FRACTION);
        each.map(|price| price.max(0)).collect()
    }

    /// The tight constraint to leave; when the last step went nowhere the first that helps, so that no set of constraints returns.
    fn leaving(&self, tight: &[usize], inverse: &[Vec<i128>], stands: bool) -> Option<usize> {
        let all: i128 = self.demand.iter().sum();
        let gain = |at: usize| -> i128 {
            let pairs = self.demand.iter().zip(inverse);
            -pairs.map(|(demand, row)| demand * row[at]).sum::<i128>()
        };
        let helps = (0..tight.len())
            .map(|at| (gain(at), at))
            .filter(|(gain, _)| *gain > all.saturating_mul(TINY));
        if stands {
            helps.min_by_key(|(_, at)| tight[*at]).map(|(_, at)| at)
        } else {
            let best = helps.max_by_key(|(gain, at)| (*gain, std::cmp::Reverse(tight[*at])));
            best.map(|(_, at)| at)
        }
    }

    /// The first constraint on the way along this edge, and how far it is.
    fn stopped_by(&self, tight: &[usize], from: &[i128], edge: &[i128]) -> Option<(i128, usize)> {
        let size = self.units.len();
        let floors = (0..size).map(|at| (at, -edge[at], from[at]));
        let rows = self.rows.iter().enumerate().map(|(at, row)| {
            let rate = dot(&row.capacity, edge) >> FRACTION;
            let left = row.price - (dot(&row.capacity, from) >> FRACTION);
            (size + at, rate, left.max(0))
        });
        floors
            .chain(rows)
            .filter(|(at, rate, _)| *rate > TINY && !tight.contains(at))
            .map(|(at, rate, left)| ((left << FRACTION) / rate, at))
            .min()
    }

    /// These prices, low enough for every row.
    fn lowered(&self, prices: Vec<i128>) -> Vec<i128> {
        let mut prices = prices;
        for row in &self.rows {
            let value = dot(&row.capacity, &prices) >> FRACTION;
            if value > row.price {
                // Prices have 57 bits, so their product fits.
                prices
                    .iter_mut()
                    .for_each(|each| *each = *each * row.price / value);
            }
        }
        prices
    }

    fn per_amount(&self, prices: &[i128], bits: u32) -> Vec<i128> {
        let pairs = prices.iter().zip(&self.units);
        pairs
            .map(|(price, unit)| ((price << bits) >> PRICE_BITS) / i128::from(*unit))
            .collect()
    }
}

fn dot(a: &[i128], b: &[i128]) -> i128 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// The inverse by Gauss and Jordan, with the largest pivot of each column; `None` when there is none.
fn inverted(matrix: Vec<Vec<i128>>) -> Option<Vec<Vec<i128>>> {
    let size = matrix.len();
    let unit = |row: usize| (0..size).map(move |at| if at == row { 1 << FRACTION } else { 0 });
    let each = matrix.into_iter().enumerate();
    let mut rows: Vec<Vec<i128>> = each
        .map(|(at, row)| row.into_iter().chain(unit(at)).collect())
        .collect();
    for column in 0..size {
        let best = (column..size).max_by_key(|at| (rows[*at][column].abs(), size - at))?;
        if rows[best][column].abs() <= TINY {
            return None;
        }
        rows.swap(column, best);
        let mut pivot = std::mem::take(&mut rows[column]);
        let by = pivot[column];
        pivot
            .iter_mut()
            .for_each(|each| *each = (*each << FRACTION) / by);
        for row in rows.iter_mut().filter(|row| !row.is_empty()) {
            let factor = row[column];
            let pairs = row.iter_mut().zip(&pivot);
            pairs.for_each(|(each, pivot)| *each -= (factor * pivot) >> FRACTION);
        }
        rows[column] = pivot;
    }
    Some(rows.into_iter().map(|row| row[size..].to_vec()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use mortise_apis::values::SplitMix64;

    type Row = (i64, Vec<i64>);

    /// What is wanted costs, and whether no row is above its price.
    fn solved(demand: &[i64], rows: &[Row]) -> (i128, bool) {
        let prices = CoveringDual::new(demand, rows).prices(PRICE_BITS);
        let value = |amounts: &[i64]| -> i128 {
            let pairs = amounts.iter().zip(&prices);
            pairs
                .map(|(amount, price)| i128::from(*amount) * price)
                .sum::<i128>()
                >> PRICE_BITS
        };
        let fits = rows
            .iter()
            .all(|(price, row)| value(row) <= i128::from(*price));
        (value(demand), fits)
    }

    #[test]
    fn the_optimum_of_known_problems() {
        let table: [(&[i64], &[Row], i128); 4] = [
            // One resource: the type with the lowest price for it.
            (&[100], &[(30, vec![10]), (20, vec![5])], 300),
            // Both types are used, twice each.
            (
                &[12, 48],
                &[(1_000_000, vec![4, 8]), (1_000_000, vec![2, 16])],
                4_000_000,
            ),
            // The second resource is abundant.
            (&[40, 1], &[(100, vec![4, 8])], 1_000),
            // No type has the second resource.
            (&[40, 7], &[(100, vec![4, 0])], 1_000),
        ];
        for (demand, rows, optimum) in table {
            let (value, fits) = solved(demand, rows);
            assert!(fits, "{demand:?} {rows:?}");
            assert!((optimum - value) * 10_000 <= optimum, "{value} {optimum}");
            assert!(value <= optimum, "{value} {optimum}");
        }
    }

    /// The optimum of a problem of two resources: the best of the points where two constraints meet.
    fn by_enumeration(demand: [i128; 2], rows: &[Row]) -> i128 {
        let each = rows.iter();
        let each =
            each.map(|(price, row)| [i128::from(row[0]), i128::from(row[1]), i128::from(*price)]);
        let all: Vec<[i128; 3]> = each.chain([[-1, 0, 0], [0, -1, 0]]).collect();
        let mut best = 0;
        for [a, b, p] in &all {
            for [c, d, q] in &all {
                let det = a * d - b * c;
                if det == 0 {
                    continue;
                }
                // x / det and y / det, with det above zero.
                let sign = det.signum();
                let (x, y, det) = ((p * d - b * q) * sign, (a * q - p * c) * sign, det.abs());
                if x >= 0 && y >= 0 && all.iter().all(|[a, b, p]| a * x + b * y <= p * det) {
                    best = best.max((demand[0] * x + demand[1] * y) / det);
                }
            }
        }
        best
    }

    #[test]
    fn random_problems_have_the_value_that_enumeration_finds() {
        for seed in 0..300 {
            let mut random = SplitMix64::new(seed);
            let mut amount = |most: u64| i64::try_from(1 + random.below(most)).unwrap_or(1);
            let demand = [amount(1_000_000), amount(1_000_000)];
            let rows: Vec<Row> = (0..40)
                .map(|_| (amount(10_000_000), vec![amount(200_000), amount(200_000)]))
                .collect();
            let optimum = by_enumeration(demand.map(i128::from), &rows);
            let (value, fits) = solved(&demand, &rows);
            assert!(fits, "seed {seed}");
            let off = (optimum - value).abs();
            assert!(off * 10_000 <= optimum, "seed {seed}: {value} {optimum}");
        }
    }

    #[test]
    fn equal_types_and_many_resources_end() {
        let rows: Vec<Row> = (0..60)
            .map(|at| {
                (
                    1_000_000,
                    (0..8)
                        .map(|of| if (at + of) % 3 == 0 { 4 } else { 2 })
                        .collect(),
                )
            })
            .collect();
        let (value, fits) = solved(&[300; 8], &rows);
        assert!(fits && value > 0, "{value}");
    }
}
