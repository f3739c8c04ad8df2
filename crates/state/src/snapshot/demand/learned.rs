//! What a buffer has learned of its workload.

use std::sync::Arc;

use jiff::Timestamp;

use mortise_apis::karpenter::capacitybuffer::{
    BufferLearning, CapacityBuffer, ExpectedReplicas, Hindsight, LearningMode,
    ParseReplicaPeaksError, ReplicaPeaks, next_hour,
};
use mortise_apis::labels::REPLICA_PEAKS;

/// What a buffer has learned, and what follows from it.
#[derive(Clone, Debug, PartialEq)]
pub struct LearnedDemand {
    /// How it learns.
    pub learning: BufferLearning,
    /// The peaks that are recorded in its annotation.
    ///
    /// # Errors
    /// They cannot be read. Nothing is recorded until they are corrected or removed.
    pub peaks: Result<Arc<ReplicaPeaks>, ParseReplicaPeaksError>,
    /// Replicas of the workload.
    pub replicas: u32,
    /// What is expected until the hour ends; `None` until a week is recorded.
    pub expected: Option<ExpectedReplicas>,
    /// How expectations would have done in the last week.
    pub hindsight: Hindsight,
    /// When the hour ends.
    pub until: Timestamp,
}

impl LearnedDemand {
    /// What a buffer has learned of a workload with this number of replicas.
    pub(crate) fn of(
        buffer: &CapacityBuffer,
        learning: BufferLearning,
        replicas: u32,
        now: Timestamp,
    ) -> Self {
        let recorded = buffer.annotation(REPLICA_PEAKS);
        let peaks: Result<ReplicaPeaks, _> =
            recorded.map_or_else(|| Ok(ReplicaPeaks::default()), str::parse);
        let percentile = learning.percentile;
        let known = peaks.as_ref().ok();
        Self {
            learning,
            replicas,
            expected: known.and_then(|peaks| peaks.expected(now, percentile)),
            hindsight: known
                .map(|peaks| peaks.hindsight(now, percentile))
                .unwrap_or_default(),
            until: next_hour(now),
            peaks: peaks.map(Arc::new),
        }
    }

    /// Pods that are expected and that the workload does not have yet; `None` as long as nothing is expected.
    #[must_use]
    pub fn missing(&self) -> Option<u32> {
        let expected = self.expected?;
        Some(expected.replicas.saturating_sub(self.replicas))
    }

    /// What its size follows from as well: nothing if it observes only.
    pub(crate) fn size(&self) -> Option<i64> {
        let applies = self.learning.mode == LearningMode::Apply;
        applies.then(|| self.missing().unwrap_or_default().into())
    }
}
