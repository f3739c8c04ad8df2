//! Calls that arrive together are made together: a window collects what is asked for and asks the cloud once.
//!
//! A window opens with the first item of a group and closes when no other came for a while, when it has been open for long, or when it is full.
//! Each window runs as a task of its own, so that a caller that stops waiting takes nothing from the others.
//!
//! # Source
//! The windows of the reference implementation: `idle`, `longest` and `items` of each kind of call.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mortise_cloudprovider::BoxFuture;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout_at};

/// When a window closes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchLimits {
    /// So long after the last item.
    pub(crate) idle: Duration,
    /// So long after the first item, however many still arrive.
    pub(crate) longest: Duration,
    /// With this many items, which is also the most that one call takes.
    pub(crate) items: usize,
}

/// Calls about instances by their ids.
pub(crate) const INSTANCES: BatchLimits = BatchLimits {
    idle: Duration::from_millis(100),
    longest: Duration::from_secs(1),
    items: 500,
};

/// A window that collects, without time or channels of its own.
#[derive(Clone, Copy, Debug)]
struct BatchWindow {
    limits: BatchLimits,
    opened: Instant,
    last: Instant,
    items: usize,
}

impl BatchWindow {
    fn open(limits: BatchLimits, now: Instant) -> Self {
        Self {
            limits,
            opened: now,
            last: now,
            items: 0,
        }
    }

    fn add(&mut self, now: Instant) {
        self.last = now;
        self.items += 1;
    }

    /// When it closes if nothing else arrives; `None`: now.
    fn closes(&self) -> Option<Instant> {
        let idle = self.last + self.limits.idle;
        (self.items < self.limits.items).then(|| idle.min(self.opened + self.limits.longest))
    }
}

/// A batch ended without an answer for its caller: the process is shutting down, or the call panicked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the batch ended without an answer")]
pub(crate) struct BatchLost;

/// An item and who waits for its answer.
type Request<I, O> = (I, oneshot::Sender<O>);
/// Makes one call for the items of a group; its answers are in their order.
type Run<K, I, O> = dyn Fn(K, Vec<I>) -> BoxFuture<'static, Vec<O>> + Send + Sync;
/// Windows that still collect, by group.
type OpenWindows<K, I, O> = Mutex<BTreeMap<K, mpsc::UnboundedSender<Request<I, O>>>>;

/// Collects items of the same group `K` and runs them together; each caller gets the answer of its item.
pub(crate) struct Batcher<K, I, O> {
    limits: BatchLimits,
    run: Arc<Run<K, I, O>>,
    open: Arc<OpenWindows<K, I, O>>,
}

impl<K, I, O> fmt::Debug for Batcher<K, I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batcher")
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

impl<K, I, O> Batcher<K, I, O>
where
    K: Clone + Ord + Send + Sync + 'static,
    I: Send + 'static,
    O: Send + 'static,
{
    /// Runs nothing yet.
    pub(crate) fn new(
        limits: BatchLimits,
        run: impl Fn(K, Vec<I>) -> BoxFuture<'static, Vec<O>> + Send + Sync + 'static,
    ) -> Self {
        Self {
            limits,
            run: Arc::new(run),
            open: Arc::default(),
        }
    }

    /// The answer for one item, which is asked for together with the others of its group.
    /// # Errors
    /// The batch was lost.
    pub(crate) async fn call(&self, group: K, item: I) -> Result<O, BatchLost> {
        let (answer, answered) = oneshot::channel();
        self.send(group, (item, answer));
        answered.await.map_err(|_| BatchLost)
    }

    /// Adds a request to the open window of its group, or opens one.
    fn send(&self, group: K, request: Request<I, O>) {
        let mut open = lock(&self.open);
        let request = match open.get(&group) {
            None => request,
            Some(window) => match window.send(request) {
                Ok(()) => return,
                // It closed a moment ago.
                Err(mpsc::error::SendError(request)) => request,
            },
        };
        let (window, arrivals) = mpsc::unbounded_channel();
        if window.send(request).is_ok() {
            open.insert(group.clone(), window);
            drop(open);
            let (limits, run, all) = (self.limits, Arc::clone(&self.run), Arc::clone(&self.open));
            tokio::spawn(async move {
                let requests = collect(limits, arrivals, &group, &all).await;
                execute(limits, &*run, &group, requests).await;
            });
        }
    }
}

/// Takes arrivals until the window closes.
async fn collect<K: Ord, I, O>(
    limits: BatchLimits,
    mut arrivals: mpsc::UnboundedReceiver<Request<I, O>>,
    group: &K,
    open: &OpenWindows<K, I, O>,
) -> Vec<Request<I, O>> {
    let mut window = BatchWindow::open(limits, Instant::now());
    let mut requests = Vec::new();
    while let Some(until) = window.closes() {
        match timeout_at(until, arrivals.recv()).await {
            Ok(Some(request)) => {
                window.add(Instant::now());
                requests.push(request);
            }
            Ok(None) | Err(_) => break,
        }
    }
    arrivals.close();
    {
        // A closed window of the same group may have been replaced already.
        let mut open = lock(open);
        if open
            .get(group)
            .is_some_and(mpsc::UnboundedSender::is_closed)
        {
            open.remove(group);
        }
    }
    // What was sent before the window closed.
    while let Some(request) = arrivals.recv().await {
        requests.push(request);
    }
    requests
}

/// Runs the requests that a caller still waits for, and hands each its answer.
async fn execute<K: Clone, I, O>(
    limits: BatchLimits,
    run: &Run<K, I, O>,
    group: &K,
    mut requests: Vec<Request<I, O>>,
) {
    requests.retain(|(_, answer)| !answer.is_closed());
    while !requests.is_empty() {
        let rest = requests.split_off(requests.len().min(limits.items.max(1)));
        let (items, waiting): (Vec<I>, Vec<_>) = requests.into_iter().unzip();
        let answers = run(group.clone(), items).await;
        for (answer, waiting) in answers.into_iter().zip(waiting) {
            // Who gave up meanwhile needs no answer.
            drop(waiting.send(answer));
        }
        requests = rest;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use futures::future::join_all;

    use super::*;

    type Calls = Arc<Mutex<Vec<(Duration, &'static str, Vec<u32>)>>>;

    /// Answers twice the item, and notes when what was asked.
    fn doubling(limits: BatchLimits) -> (Arc<Batcher<&'static str, u32, u32>>, Calls) {
        let calls = Calls::default();
        let (log, started) = (Arc::clone(&calls), Instant::now());
        let batcher = Batcher::new(limits, move |group, items: Vec<u32>| {
            lock(&log).push((started.elapsed(), group, items.clone()));
            Box::pin(async move { items.into_iter().map(|each| each * 2).collect() })
        });
        (Arc::new(batcher), calls)
    }

    #[tokio::test(start_paused = true)]
    async fn what_arrives_together_is_one_call_and_each_gets_its_own_answer() {
        let (batcher, calls) = doubling(INSTANCES);
        let answers = join_all((0..100).map(|item| batcher.call("a", item))).await;
        assert_eq!(
            answers,
            (0..100).map(|item| Ok(item * 2)).collect::<Vec<_>>()
        );
        let calls = lock(&calls);
        assert_eq!(calls.len(), 1, "{calls:?}");
        assert!(calls[0].0 >= INSTANCES.idle && calls[0].0 < INSTANCES.longest);
    }

    #[tokio::test(start_paused = true)]
    async fn a_window_closes_when_it_has_been_open_for_long() {
        let (batcher, calls) = doubling(INSTANCES);
        let steady = (0..40_u32).map(|item| {
            let batcher = Arc::clone(&batcher);
            async move {
                tokio::time::sleep(Duration::from_millis(u64::from(item) * 50)).await;
                batcher.call("a", item).await
            }
        });
        assert!(join_all(steady).await.iter().all(Result::is_ok));
        let calls = lock(&calls);
        assert_eq!(calls.len(), 2, "{calls:?}");
        assert!(
            calls
                .iter()
                .all(|(at, ..)| *at <= Duration::from_millis(2_200))
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_window_closes_at_once_and_groups_are_apart() {
        let limits = BatchLimits {
            items: 3,
            ..INSTANCES
        };
        let (batcher, calls) = doubling(limits);
        let of_a = (0..7).map(|item| batcher.call("a", item));
        let of_b = (7..8).map(|item| batcher.call("b", item));
        let answers = join_all(of_a.chain(of_b)).await;
        assert!(
            answers
                .iter()
                .enumerate()
                .all(|(at, answer)| *answer == Ok(at as u32 * 2))
        );
        let calls = lock(&calls);
        assert!(
            calls.iter().all(|(_, _, items)| items.len() <= 3),
            "{calls:?}"
        );
        assert_eq!(
            calls.iter().filter(|(_, group, _)| *group == "b").count(),
            1
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_that_stops_waiting_takes_nothing_from_the_others() {
        let (batcher, calls) = doubling(INSTANCES);
        let first = {
            let batcher = Arc::clone(&batcher);
            tokio::spawn(async move { batcher.call("a", 1).await })
        };
        tokio::time::sleep(Duration::from_millis(10)).await;
        let second = batcher.call("a", 2);
        first.abort();
        assert_eq!(second.await, Ok(4));
        assert_eq!(lock(&calls)[0].2, [2], "no caller waits for the first");
        assert!(
            lock(&batcher.open).is_empty(),
            "closed windows are forgotten"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_panics_is_an_error_of_its_callers_only() {
        let batcher = Batcher::new(INSTANCES, |fail: bool, items: Vec<u32>| {
            Box::pin(async move {
                assert!(!fail, "on purpose");
                items
            })
        });
        let (bad, good) = futures::join!(batcher.call(true, 1), batcher.call(false, 2));
        assert_eq!((bad, good), (Err(BatchLost), Ok(2)));
    }
}
