//! Where most of the times lie.

use std::time::Duration;

use serde::Serialize;

/// Quantiles of measured times, in milliseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Quantiles {
    pub(crate) samples: usize,
    pub(crate) p50_ms: f64,
    pub(crate) p90_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) max_ms: f64,
}

impl Quantiles {
    /// Of these times; all are `NaN` without any. A quantile is the least time that this share of the samples does not
    /// exceed, so of 100 samples one lies above p99.
    pub(crate) fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        let at = |percent: usize| {
            let rank = (times.len() * percent).div_ceil(100).max(1);
            times
                .get(rank - 1)
                .map_or(f64::NAN, |time| time.as_secs_f64() * 1e3)
        };
        Self {
            samples: times.len(),
            p50_ms: at(50),
            p90_ms: at(90),
            p99_ms: at(99),
            max_ms: at(100),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_a_hundred_lies_above_p99() {
        let quantiles = Quantiles::of((1..=100).rev().map(Duration::from_millis).collect());
        let all = [
            quantiles.p50_ms,
            quantiles.p90_ms,
            quantiles.p99_ms,
            quantiles.max_ms,
        ];
        assert_eq!(all.map(f64::round), [50.0, 90.0, 99.0, 100.0]);
        let one = Quantiles::of(vec![Duration::from_millis(7)]);
        assert_eq!([one.p50_ms, one.p99_ms].map(f64::round), [7.0, 7.0]);
        assert!(Quantiles::of(Vec::new()).p50_ms.is_nan());
    }
}
