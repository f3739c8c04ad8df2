//! Threads for work that takes a processor as long as its body is: reviews and conversions. The threads that keep the lease,
//! answer probes and kube-scheduler are never taken for it, and what waits is bounded in bytes.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinError, spawn_blocking};

/// What bytes in flight are counted in.
const UNIT: usize = 1 << 10;

/// So many threads at a time, and so many bytes of bodies that are read, wait or are worked on.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    turns: Arc<Semaphore>,
    units: Arc<Semaphore>,
}

/// Bytes that a body in flight holds; given back when dropped.
#[derive(Debug, Default)]
pub(crate) struct Held {
    permits: Option<OwnedSemaphorePermit>,
    bytes: usize,
    units: usize,
}

impl Pool {
    pub(crate) fn new(threads: usize, bytes: usize) -> Self {
        Self {
            turns: Arc::new(Semaphore::new(threads)),
            units: Arc::new(Semaphore::new(bytes / UNIT)),
        }
    }

    /// Counts more bytes of a body. `false` when there is no room for them now: nobody waits for it, because those who hold
    /// the room may be waiting too.
    pub(crate) fn hold(&self, held: &mut Held, bytes: usize) -> bool {
        held.bytes = held.bytes.saturating_add(bytes);
        let units = held.bytes.div_ceil(UNIT);
        let more = u32::try_from(units.saturating_sub(held.units)).unwrap_or(u32::MAX);
        let Ok(permits) = Arc::clone(&self.units).try_acquire_many_owned(more) else {
            return false;
        };
        held.units = units;
        match &mut held.permits {
            Some(all) => all.merge(permits),
            none => *none = Some(permits),
        }
        true
    }

    /// Works on a thread of the pool, when it is its turn. Whoever stops waiting before that gives the turn up; work that has
    /// begun is carried through, and keeps its turn and its bytes until its end.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        held: Held,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        let turn = Arc::clone(&self.turns).acquire_owned().await;
        spawn_blocking(move || {
            let done = work();
            drop((turn, held));
            done
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn bytes_are_counted_as_they_come_and_given_back() {
        let pool = Pool::new(1, 4 * UNIT);
        let (mut one, mut other) = (Held::default(), Held::default());
        assert!(pool.hold(&mut one, 10));
        assert!(pool.hold(&mut one, UNIT), "1,034 bytes are two units");
        assert_eq!(pool.units.available_permits(), 2);
        assert!(pool.hold(&mut other, 2 * UNIT));
        assert!(!pool.hold(&mut other, 1));
        assert!(pool.hold(&mut one, 10), "there is room in its last unit");
        drop(one);
        assert!(pool.hold(&mut other, UNIT));
        drop(other);
        assert_eq!(pool.units.available_permits(), 4);
    }

    #[tokio::test]
    async fn no_more_work_at_a_time_than_there_are_threads() {
        let pool = Pool::new(1, UNIT);
        let (begin, begun) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let first = tokio::spawn({
            let pool = pool.clone();
            async move {
                pool.run(Held::default(), move || {
                    begin.send(()).unwrap();
                    ended.recv().unwrap();
                })
                .await
            }
        });
        let began = tokio::task::spawn_blocking(move || begun.recv()).await;
        began.unwrap().unwrap();
        assert_eq!(pool.turns.available_permits(), 0);
        let mut second = Box::pin(pool.run(Held::default(), || 7));
        assert!(
            futures_poll(&mut second).await.is_none(),
            "its turn has not come"
        );
        end.send(()).unwrap();
        first.await.unwrap().unwrap();
        assert_eq!(second.await.unwrap(), 7);
    }

    /// Asks a future once.
    async fn futures_poll<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
        std::future::poll_fn(|context| {
            let asked = std::pin::Pin::new(&mut *future).poll(context);
            std::task::Poll::Ready(match asked {
                std::task::Poll::Ready(done) => Some(done),
                std::task::Poll::Pending => None,
            })
        })
        .await
    }
}
