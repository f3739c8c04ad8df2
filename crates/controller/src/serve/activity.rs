//! Activity of a connection, which decides whether it may be evicted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// What is known of the peer of a connection. Connections of a lower standing are evicted first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Standing {
    /// It has sent no request yet.
    Silent,
    /// It got a response.
    Answered,
    /// The caller has proven its identity.
    Proven,
}

/// State of one connection, shared between its task, its requests and the table of connections.
#[derive(Debug)]
pub(crate) struct Activity {
    begun: Instant,
    /// Requests in progress, except those whose body is still being read.
    answering: AtomicUsize,
    answered: AtomicBool,
    proven: AtomicBool,
    /// Milliseconds from `begun` to the last progress of the caller.
    last_ms: AtomicU64,
    evicted: CancellationToken,
}

impl Activity {
    /// State of a connection that was just accepted.
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            begun: Instant::now(),
            answering: AtomicUsize::new(0),
            answered: AtomicBool::new(false),
            proven: AtomicBool::new(false),
            last_ms: AtomicU64::new(0),
            evicted: CancellationToken::new(),
        })
    }

    /// Records progress: a request is complete, or the caller read a part of its response.
    pub(super) fn record_progress(&self) {
        let ms = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_ms.fetch_max(ms, Ordering::Relaxed);
    }

    /// The last progress of the caller; the beginning if there was none.
    pub(super) fn last_progress(&self) -> Instant {
        self.begun + Duration::from_millis(self.last_ms.load(Ordering::Relaxed))
    }

    /// A request is in progress until the returned value is dropped.
    pub(super) fn begin_request(self: &Arc<Self>) -> Answering {
        self.answering.fetch_add(1, Ordering::Relaxed);
        Answering(Arc::clone(self))
    }

    /// Runs a part of a request during which the connection may be evicted: reading what the caller sends.
    pub(super) async fn while_reading<T>(&self, part: impl Future<Output = T>) -> T {
        self.answering.fetch_sub(1, Ordering::Relaxed);
        let _again = Again(self);
        part.await
    }

    /// Records that the caller has proven its identity.
    pub(super) fn mark_proven(&self) {
        self.proven.store(true, Ordering::Relaxed);
    }

    /// Whether an eviction loses nothing that the caller could not request again.
    pub(super) fn can_evict(&self) -> bool {
        self.answering.load(Ordering::Relaxed) == 0
    }

    /// Its standing.
    pub(super) fn standing(&self) -> Standing {
        if self.proven.load(Ordering::Relaxed) {
            Standing::Proven
        } else if self.answered.load(Ordering::Relaxed) {
            Standing::Answered
        } else {
            Standing::Silent
        }
    }

    /// Tells the task of the connection to close it.
    pub(super) fn evict(&self) {
        self.evicted.cancel();
    }

    /// Waits for the eviction.
    pub(super) async fn wait_for_eviction(&self) {
        self.evicted.cancelled().await;
    }
}

/// A request in progress.
#[derive(Debug)]
pub(super) struct Answering(Arc<Activity>);

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.record_progress();
        self.0.answered.store(true, Ordering::Relaxed);
        self.0.answering.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Counts a request as in progress again, also after reading it was cancelled.
struct Again<'a>(&'a Activity);

impl Drop for Again<'_> {
    fn drop(&mut self) {
        self.0.answering.fetch_add(1, Ordering::Relaxed);
    }
}
