//! Limits of the number of series.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::config::TelemetryDetail;

/// The limits of all families: whether they apply, and how many observations they dropped.
#[derive(Clone, Debug, Default)]
pub(crate) struct SeriesLimit {
    pub(crate) detail: TelemetryDetail,
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
    pub(crate) const fn scaled(&self, most: usize) -> usize {
        match self.detail {
            TelemetryDetail::Bounded => most,
            TelemetryDetail::Full => usize::MAX,
        }
    }

    /// Counts a dropped observation.
    pub(super) fn drop_one(&self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }

    /// Number of dropped observations.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}
