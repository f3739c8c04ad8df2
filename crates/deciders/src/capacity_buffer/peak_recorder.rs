//! The replicas of workloads that buffers learn from, from one write to the next.

use std::collections::BTreeMap;

use jiff::Timestamp;

use mortise_apis::karpenter::capacitybuffer::{ReplicaPeaks, next_hour};
use mortise_apis::names::NamespacedName;
use mortise_apis::values::after;
use mortise_state::snapshot::LearnedDemand;

/// How long a higher peak of the same hour waits for its write. A workload that grows pod by pod would cost a write for each.
const REST_MS: i64 = 600_000;

/// Peaks that are not written yet, by buffer. What a crash loses are those of [`REST_MS`].
#[derive(Debug, Default)]
pub(super) struct PeakRecorder {
    buffers: BTreeMap<NamespacedName, Unwritten>,
}

#[derive(Debug, Default)]
struct Unwritten {
    /// The most replicas, by the end of the hour.
    peaks: BTreeMap<Timestamp, Seen>,
    /// When a higher peak of the same hour may be written.
    rests_until: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    at: Timestamp,
    replicas: u32,
}

impl PeakRecorder {
    /// Takes in how many replicas there are.
    ///
    /// # Errors
    /// When there is something to write; `Ok`: what is to be written now.
    pub(super) fn see(
        &mut self,
        key: &NamespacedName,
        learned: &LearnedDemand,
        now: Timestamp,
    ) -> Result<ReplicaPeaks, Option<Timestamp>> {
        let Ok(recorded) = &learned.peaks else {
            return Err(None);
        };
        let unwritten = self.buffers.entry(key.clone()).or_default();
        let hour = next_hour(now);
        let seen = Seen {
            at: now,
            replicas: learned.replicas,
        };
        let most = unwritten.peaks.entry(hour).or_insert(seen);
        most.replicas = most.replicas.max(seen.replicas);
        let is_new = |seen: &Seen| recorded.peak_at(seen.at) < Some(seen.replicas);
        unwritten.peaks.retain(|_, seen| is_new(seen));
        if unwritten.peaks.is_empty() {
            return Err(Some(hour));
        }
        if let Some(until) = unwritten.rests_until.filter(|until| *until > now) {
            return Err(Some(until));
        }
        let mut all = ReplicaPeaks::clone(recorded);
        for seen in unwritten.peaks.values() {
            all.record(seen.at, seen.replicas);
        }
        Ok(all)
    }

    /// What [`see`](Self::see) returned was sent.
    pub(super) fn sent(&mut self, key: &NamespacedName, now: Timestamp) {
        if let Some(unwritten) = self.buffers.get_mut(key) {
            unwritten.rests_until = Some(after(now, REST_MS).min(next_hour(now)));
        }
    }

    /// Forgets a buffer that does not learn any more.
    pub(super) fn forget(&mut self, key: &NamespacedName) {
        self.buffers.remove(key);
    }
}
