//! How many series there may be.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::config::TelemetryDetail;

/// The limits of all families: whether they hold, and how many observations were not kept because of them.
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
    pub(crate) const fn most(&self, most: usize) -> usize {
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
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}
