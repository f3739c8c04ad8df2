//! Threads for work that takes a processor as long as its body is: reviews and conversions. The threads that keep the lease,
//! answer probes and kube-scheduler are never taken for it.

use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::task::{JoinError, spawn_blocking};

/// A limited number of threads at a time.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    permits: Arc<Semaphore>,
}

impl Pool {
    pub(crate) fn new(threads: usize) -> Self {
        Self {
            permits: Arc::new(Semaphore::new(threads)),
        }
    }

    /// Works on a thread of the pool, when it is its turn. Whoever stops waiting before that gives the turn up; work that has
    /// begun is carried through, and keeps its turn until its end.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        let permit = Arc::clone(&self.permits).acquire_owned().await;
        spawn_blocking(move || {
            let done = work();
            drop(permit);
            done
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[tokio::test]
    async fn no_more_work_at_a_time_than_there_are_threads() {
        let pool = Pool::new(1);
        let (begin, begun) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let first = tokio::spawn({
            let pool = pool.clone();
            async move {
                pool.run(move || {
                    begin.send(()).unwrap();
                    ended.recv().unwrap();
                })
                .await
            }
        });
        let began = tokio::task::spawn_blocking(move || begun.recv()).await;
        began.unwrap().unwrap();
        assert_eq!(pool.permits.available_permits(), 0);
        let mut second = Box::pin(pool.run(|| 7));
        assert!(
            poll_once(&mut second).await.is_none(),
            "its turn has not come"
        );
        end.send(()).unwrap();
        first.await.unwrap().unwrap();
        assert_eq!(second.await.unwrap(), 7);
    }

    /// Asks a future once.
    async fn poll_once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
        std::future::poll_fn(|context| {
            let polled = std::pin::Pin::new(&mut *future).poll(context);
            std::task::Poll::Ready(match polled {
                std::task::Poll::Ready(done) => Some(done),
                std::task::Poll::Pending => None,
            })
        })
        .await
    }
}
