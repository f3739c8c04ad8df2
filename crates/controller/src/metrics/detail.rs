//! How much is told of each object.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How much metrics and events tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TelemetryDetail {
    /// What does not grow with the cluster: some 2,000 series at most, no event for every condition of every claim.
    #[default]
    Bounded,
    /// Everything that Karpenter tells: series for each node, pod, claim, pool and offering, and its buckets.
    Full,
}

/// The ceilings of all families: whether they hold, and how many observations were not kept because of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct SeriesLimit {
    pub(super) detail: TelemetryDetail,
    dropped: Arc<AtomicU64>,
}

impl SeriesLimit {
    pub(super) fn new(detail: TelemetryDetail) -> Self {
        Self {
            detail,
            dropped: Arc::default(),
        }
    }

    /// As many of something as are shown where `most` are shown by default.
    pub(super) const fn most(&self, most: usize) -> usize {
        match self.detail {
            TelemetryDetail::Bounded => most,
            TelemetryDetail::Full => usize::MAX,
        }
    }

    /// An observation was not kept.
    pub(super) fn drop_one(&self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }

    /// Observations that were not kept.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}
