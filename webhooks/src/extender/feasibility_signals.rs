//! Pods for which the scheduler has a node, on their way to the workers.
//!
//! A filter call comes when some node has passed kube-scheduler's own filters; when our answer leaves one, the pod will be bound
//! in a moment, and mortise launches nothing for it. The workers take this when they next look, so a call wakes no
//! worker.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use mortise_apis::names::Uid;

/// Signals that wait, at most; beyond, the oldest is lost. The workers take them once a second at the latest.
const MOST: usize = 4_096;

/// The signals that the workers have not taken yet.
#[derive(Debug, Default)]
pub struct FeasibilitySignals {
    pending: Mutex<VecDeque<(Uid, Timestamp)>>,
}

impl FeasibilitySignals {
    fn lock(&self) -> MutexGuard<'_, VecDeque<(Uid, Timestamp)>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The scheduler has a node for the pod.
    pub(super) fn push(&self, pod: &Uid, now: Timestamp) {
        let mut pending = self.lock();
        if pending.len() >= MOST {
            pending.pop_front();
        }
        pending.push_back((pod.clone(), now));
    }

    /// What came since the last time, oldest first.
    #[must_use]
    pub fn drain(&self) -> VecDeque<(Uid, Timestamp)> {
        let mut pending = self.lock();
        if pending.is_empty() {
            return VecDeque::new();
        }
        std::mem::take(&mut *pending)
    }
}
