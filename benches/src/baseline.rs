//! Recorded figures of the reference implementation on the same inputs.

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

/// One benchmark of the reference implementation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Baseline {
    /// Name of the input.
    pub(crate) input: String,
    /// Pods per second, median.
    pub(crate) pods_per_second: f64,
    /// New nodes.
    pub(crate) nodes: u64,
    /// Lowest and highest sum of cheapest prices seen, in dollars per hour.
    pub(crate) dollars_per_hour: (f64, f64),
    /// Peak resident memory in MiB.
    pub(crate) peak_mib: f64,
}

#[derive(Debug, Deserialize)]
struct File {
    benchmarks: Vec<Baseline>,
}

/// All recorded benchmarks.
///
/// # Errors
/// The embedded file is not what this type says; a test would have caught it.
pub(crate) fn all() -> Result<Vec<Baseline>> {
    let file: File =
        serde_json::from_str(include_str!("../baselines.json")).context("baselines.json")?;
    Ok(file.benchmarks)
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_size_has_a_baseline() {
        let all = super::all().unwrap();
        for size in crate::schedule::SIZES {
            assert!(all.iter().any(|each| each.input == size), "{size}");
        }
    }
}
