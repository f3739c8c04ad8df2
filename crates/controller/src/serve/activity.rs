//! What a connection is doing, as far as it decides whether it may be ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How much a connection has shown of who is behind it. Those of a lower standing are ended first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Standing {
    /// It has asked nothing yet.
    Silent,
    /// It got an answer.
    Answered,
    /// Its caller proved who it is.
    Proven,
}

/// State of one connection, shared between its task, its requests and the table of connections.
#[derive(Debug)]
pub(crate) struct Activity {
    begun: Instant,
    /// Requests that are being answered at this moment, reading of their bodies apart.
    answering: AtomicUsize,
    answered: AtomicBool,
    proven: AtomicBool,
    /// Milliseconds from `begun` to the last sign that the caller takes part.
    last_ms: AtomicU64,
    evicted: CancellationToken,
}

impl Activity {
    /// Of a connection that was just accepted.
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

    /// The caller takes part: a request came whole, or took a part of its answer.
    pub(super) fn moved(&self) {
        let ms = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_ms.fetch_max(ms, Ordering::Relaxed);
    }

    /// The last sign that the caller takes part; the beginning when there was none.
    pub(super) fn last(&self) -> Instant {
        self.begun + Duration::from_millis(self.last_ms.load(Ordering::Relaxed))
    }

    /// A request is being answered until the returned value goes.
    pub(super) fn answer(self: &Arc<Self>) -> Answering {
        self.answering.fetch_add(1, Ordering::Relaxed);
        Answering(Arc::clone(self))
    }

    /// Does something for a request during which the connection may be ended: reading what the caller sends.
    pub(super) async fn reading<T>(&self, part: impl Future<Output = T>) -> T {
        self.answering.fetch_sub(1, Ordering::Relaxed);
        let _again = Again(self);
        part.await
    }

    /// The caller proved who it is.
    pub(super) fn prove(&self) {
        self.proven.store(true, Ordering::Relaxed);
    }

    /// Whether nothing would be lost here but what the caller could ask again.
    pub(super) fn may_end(&self) -> bool {
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

    /// Asks the connection's task to end it.
    pub(super) fn evict(&self) {
        self.evicted.cancel();
    }

    /// Waits until it is asked to end.
    pub(super) async fn evicted(&self) {
        self.evicted.cancelled().await;
    }
}

/// A request that is being answered.
#[derive(Debug)]
pub(super) struct Answering(Arc<Activity>);

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.moved();
        self.0.answered.store(true, Ordering::Relaxed);
        self.0.answering.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Counts a request as being answered again, also when reading it was given up.
struct Again<'a>(&'a Activity);

impl Drop for Again<'_> {
    fn drop(&mut self) {
        self.0.answering.fetch_add(1, Ordering::Relaxed);
    }
}
