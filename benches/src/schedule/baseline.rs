//! Recorded figures of the reference implementation on the same inputs.

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

/// One benchmark of the reference implementation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Baseline {
    /// Name of the input.
    pub(super) input: String,
    /// Pods per second, median.
    pub(super) pods_per_second: f64,
    /// New nodes.
    pub(super) nodes: u64,
    /// Lowest and highest sum of cheapest prices seen, in dollars per hour.
    pub(super) dollars_per_hour: (f64, f64),
    /// Peak resident memory in MiB.
    pub(super) peak_mib: f64,
}

#[derive(Debug, Deserialize)]
struct File {
    benchmarks: Vec<Baseline>,
}

/// All recorded benchmarks.
///
/// # Errors
/// The embedded file is not what this type says; a test would have caught it.
pub(super) fn all() -> Result<Vec<Baseline>> {
    let file: File =
        serde_json::from_str(include_str!("../../baselines.json")).context("baselines.json")?;
    Ok(file.benchmarks)
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_size_has_a_baseline() {
        let all = super::all().unwrap();
        for size in super::super::SIZES {
            assert!(all.iter().any(|each| each.input == size), "{size}");
        }
    }
}
