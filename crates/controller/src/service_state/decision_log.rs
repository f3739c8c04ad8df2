//! The newest decisions, kept in memory within a limit of bytes, and sent to subscribers.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mortise_engine::record::Record;
use serde::Serialize;
use tokio::sync::broadcast;

/// 4 MiB hold about ten thousand decisions: an hour of a busy cluster, a week of an idle one.
const DEFAULT_BYTES: usize = 4 << 20;
/// Decisions that a slow subscriber may lag behind; beyond that it loses some and gets an error.
const LISTENER_BACKLOG: usize = 1024;

/// A decision with its number.
#[derive(Clone, Debug, Serialize)]
pub struct NumberedRecord {
    /// Grows by one per decision of this process. Log lines carry it as `decision`.
    pub id: u64,
    /// The decision.
    #[serde(flatten)]
    pub record: Record,
}

/// The ring of decisions.
#[derive(Debug)]
pub struct DecisionLog {
    ring: Mutex<Ring>,
    live: broadcast::Sender<Arc<NumberedRecord>>,
}

#[derive(Debug)]
struct Ring {
    entries: VecDeque<(usize, Arc<NumberedRecord>)>,
    bytes: usize,
    limit: usize,
    next: u64,
}

impl Default for DecisionLog {
    fn default() -> Self {
        Self::with_limit(DEFAULT_BYTES)
    }
}

impl DecisionLog {
    /// A ring that keeps at most this many bytes, measured as JSON.
    #[must_use]
    pub fn with_limit(bytes: usize) -> Self {
        let ring = Ring {
            entries: VecDeque::new(),
            bytes: 0,
            limit: bytes,
            next: 1,
        };
        Self {
            ring: Mutex::new(ring),
            live: broadcast::Sender::new(LISTENER_BACKLOG),
        }
    }

    /// Adds decisions, and drops the oldest that no longer fit.
    pub fn extend(&self, records: impl IntoIterator<Item = Record>) -> Vec<Arc<NumberedRecord>> {
        let mut added = Vec::new();
        let mut ring = self.lock();
        for record in records {
            let numbered = Arc::new(NumberedRecord {
                id: ring.next,
                record,
            });
            let size = serde_json::to_vec(&*numbered).map_or(512, |json| json.len());
            ring.next += 1;
            ring.bytes += size;
            ring.entries.push_back((size, Arc::clone(&numbered)));
            added.push(numbered);
        }
        while ring.bytes > ring.limit
            && let Some((size, _)) = ring.entries.pop_front()
        {
            ring.bytes -= size;
        }
        drop(ring);
        for each in &added {
            // An error means that there is no subscriber.
            drop(self.live.send(Arc::clone(each)));
        }
        added
    }

    /// The newest `limit` decisions that match, newest first.
    pub fn newest(
        &self,
        limit: usize,
        mut matches: impl FnMut(&Record) -> bool,
    ) -> Vec<Arc<NumberedRecord>> {
        let ring = self.lock();
        ring.entries
            .iter()
            .rev()
            .map(|(_, each)| each)
            .filter(|each| matches(&each.record))
            .take(limit)
            .cloned()
            .collect()
    }

    /// Number of stored decisions, and their size in bytes as JSON.
    #[must_use]
    pub fn size(&self) -> (usize, usize) {
        let ring = self.lock();
        (ring.entries.len(), ring.bytes)
    }

    /// Every decision from now on.
    #[must_use]
    pub fn subscribe(&self) -> broadcast::Receiver<Arc<NumberedRecord>> {
        self.live.subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, Ring> {
        // Nothing panics while the lock is held, and a half-added record would be harmless.
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use mortise_apis::names::ObjectRef;
    use mortise_engine::decider_id::DeciderId;
    use mortise_engine::record::{Verdict, Visibility};
    use mortise_planning::reason::Reason;

    use super::*;

    fn record(text: &str) -> Record {
        Record {
            at: Timestamp::UNIX_EPOCH,
            decider: DeciderId::Provisioning,
            subject: ObjectRef::Node("n".into()),
            verdict: Verdict::Ignored,
            reasons: vec![Reason::PodIgnored {
                why: text.to_owned(),
            }],
            visibility: Visibility::DecisionLog,
            related: Vec::new(),
            generation: 1,
        }
    }

    #[test]
    fn keeps_the_newest_within_its_bytes() {
        let one = serde_json::to_vec(&NumberedRecord {
            id: 1,
            record: record("a"),
        })
        .unwrap()
        .len();
        let ring = DecisionLog::with_limit(3 * one);
        let mut live = ring.subscribe();
        ring.extend(["a", "b", "c", "d"].map(record));
        let ids: Vec<u64> = ring
            .newest(10, |_| true)
            .iter()
            .map(|each| each.id)
            .collect();
        assert_eq!(ids, [4, 3, 2]);
        assert_eq!(ring.size(), (3, 3 * one));
        assert_eq!(
            ring.newest(
                1,
                |record| matches!(&record.reasons[0], Reason::PodIgnored { why } if why == "c")
            )[0]
            .id,
            3
        );
        assert_eq!(live.try_recv().unwrap().id, 1, "listeners get every one");
    }
}
